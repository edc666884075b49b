//go:build !core

package main

import (
	"fulcrum/experiments/leverplus"
	"fulcrum/experiments/sweep"
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
		trackers: map[string]tracker.Open{"mlflow": mlflow.Open, "wandb": wandb.Open},
		verbs: map[string]newVerb{"board": boardVerb, "diff": diffVerb, "export": exportVerb, "lever-plus": leverPlusVerb, "ls": lsVerb,
			"open-test": openTestVerb, "verify": verifyVerb, "watch": watchVerb},
		bring:     []tasks.Bring{tasks.Frozen, leverplus.Bring},
		report:    reportOfSeveral,
		sweeps:    sweep.Annexes{Report: views.WriteReport, Search: search.New, Slurm: slurm.Open},
		judge:     pruner.JudgeOf,
		queueTask: slurm.RunTask,
	}
}
