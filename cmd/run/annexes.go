//go:build !core

package main

import (
	"fulcrum/experiments"
	"fulcrum/experiments/leverplus"
	"fulcrum/experiments/sweep"
	"fulcrum/experiments/sweep/ask"
	"fulcrum/experiments/sweep/pruner"
	"fulcrum/experiments/sweep/search"
	"fulcrum/experiments/sweep/slurm"
	"fulcrum/experiments/sweep/views"
	"fulcrum/experiments/tasks"
	"fulcrum/reports/mlflow"
	"fulcrum/reports/tracker"
	"fulcrum/reports/wandb"
)

// annexes returns all annexes: without this file (-tags core) the program is the core.
func annexes() annex {
	return annex{
		app: experiments.App{
			Trackers: map[string]tracker.Open{"mlflow": mlflow.Open, "wandb": wandb.Open},
			Bring:    []tasks.Bring{tasks.Frozen, leverplus.Bring},
			Sweeps:   sweep.Annexes{Report: views.WriteReport, Search: search.New, Slurm: slurm.Open},
			Judge:    pruner.JudgeOf,
		},
		verbs: map[string]newVerb{"ask": askVerb, "board": boardVerb, "diff": diffVerb, "export": exportVerb, "lever-plus": leverPlusVerb,
			"ls": lsVerb, "open-test": openTestVerb, "prove": proveVerb, "verify": verifyVerb, "watch": watchVerb},
		report:    reportOfSeveral,
		figures:   paperFigures,
		queueTask: slurm.RunTask,
		goOn:      ask.GoOn,
	}
}
