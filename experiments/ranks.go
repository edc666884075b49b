package experiments

import (
	"cmp"
	"context"
	"errors"
	"io"

	"fulcrum/experiments/runfolder"
	"fulcrum/internal/interrupt"
	"fulcrum/internal/ranks"
	"fulcrum/internal/stdout"
	"fulcrum/internal/torchx"
	"fulcrum/internal/usage"
	"fulcrum/phases"
	"fulcrum/reports/record"
)

// inProcesses runs the job in the processes that parallel.processes, torchrun or srun ask for: rank 0 calls lead in its folder, the others
// follow it and write nothing.
func (r *run) inProcesses(ctx context.Context, lead func() error) (err error) {
	place, err := ranks.Here()
	if err != nil {
		return usage.Errorf("%v", err)
	}
	o, alone := r.Config.Parallel, place == nil && r.Config.Parallel.Processes == 1
	switch {
	case r.Config.DryRun && place != nil && place.Rank > 0:
		return nil // one process checks all there is
	case alone || r.Config.DryRun:
		return lead()
	case !r.Config.Does().Trains:
		return usage.Errorf("task=%s runs in one process, and %s has started %d: start it alone", r.Config.Task, place.By, place.Size)
	}
	var started *ranks.Started
	if place == nil {
		r.Ranks, started, err = ranks.Start(ctx, o.Processes, o.Timeout())
	} else {
		if err := o.Fits(place.Size, place.By); err != nil {
			return usage.Errorf("parallel.%v", err)
		}
		r.Local = place.Local
		r.Ranks, err = ranks.Meet(ctx, place, o.Timeout())
	}
	if err != nil {
		return err
	}
	defer func() {
		failed := err
		if errors.Is(err, context.Canceled) || errors.Is(err, phases.ErrInterrupted) {
			failed = nil // all have agreed on it
		}
		r.Ranks.Close(failed)
		started.End(o.Timeout())
	}()
	if r.Ranks.First() {
		return lead()
	}
	return r.follow(ctx)
}

// follow is the run of a process that is not rank 0, in a folder that is thrown away.
func (r *run) follow(ctx context.Context) (err error) {
	dir, remove, err := interrupt.Folder("", "fulcrum-rank-")
	if err != nil {
		return err
	}
	defer remove()
	if err := stdout.Mute(); err != nil {
		return err
	}
	r.Dir = dir
	r.Holder = interrupt.Hold(nil) // a signal ends all processes at the same step
	defer r.Holder.Release()
	if r.Hash, err = runfolder.Fingerprint(r.composed); err != nil {
		return err
	}
	if r.Log, err = record.OpenLog(dir, record.LogOptions{Stderr: io.Discard}); err != nil {
		return err
	}
	remove() // the open log is all that it needs, and a process that is killed leaves nothing
	defer r.Log.Close()
	defer r.Close()
	task, err := r.Config.Entries.Tasks.Get(r.Config.Task)
	if err != nil {
		return err
	}
	err = torchx.Try(func() error { return task.Run(ctx, r.Job) })
	if errors.Is(err, phases.ErrInterrupted) {
		err = cmp.Or(asked(ctx, err), context.Canceled)
	}
	return err
}

// asked is why a run was asked to stop: its own context's cause, or what another of its processes was told.
func asked(ctx context.Context, err error) error {
	if stopped, ok := errors.AsType[*ranks.StoppedError](err); ok && context.Cause(ctx) == nil {
		return stopped
	}
	return context.Cause(ctx)
}
