package main

import (
	"fulcrum/reports/mlflow"
	"fulcrum/reports/tracker"
	"fulcrum/reports/wandb"
)

// trackers returns the trackers of experiments that a run's rows can be copied to.
func trackers() map[string]tracker.Open {
	return map[string]tracker.Open{
		"mlflow": mlflow.Open,
		"wandb":  wandb.Open,
	}
}
