//go:build !core

package main

import (
	"context"
	"strconv"

	"fulcrum/experiments/sweep/launcher"
	"fulcrum/internal/usage"
)

// runQueueTask does what a batch script of Slurm's ends in: one job of a sweep.
func runQueueTask(ctx context.Context, args []string) error {
	if err := want(args, 2, launcher.TaskVerb+" SWEEP_FOLDER JOB_NUMBER"); err != nil {
		return err
	}
	num, err := strconv.Atoi(args[1])
	if err != nil {
		return usage.Errorf("%s %s: want the number of a job", launcher.TaskVerb, args[1])
	}
	return launcher.RunTask(ctx, args[0], num)
}
