package tasks

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"fulcrum/experiments/job"
	"fulcrum/internal/list"
	"fulcrum/internal/program"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/usage"
)

// look makes sure that the mapped files are what they were, and returns their names and digests: embedding tables, weights of models.
func look(j *job.Job) ([]string, error) {
	notes, err := tensorfile.Look()
	for _, note := range notes {
		j.Log.Warnf("%s", note)
	}
	if err != nil {
		return nil, err
	}
	names := list.Map(tensorfile.Inputs(), inputLine)
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Unchanged returns err, of a task, or the better reason that a mapped file has changed under it.
func Unchanged(j *job.Job, err error) error {
	changed, ok := errors.AsType[*tensorfile.ChangedError](err)
	if !ok && !errors.As(tensorfile.Changed(), &changed) {
		return err
	}
	if !j.Config.Does().Trains {
		return fmt.Errorf("%w and run this again", changed)
	}
	return fmt.Errorf("%w, and go on from the last state before that: %s", changed, program.OnFolder("resume", j.Dir))
}

// inputLine names a file for a saved state. It holds no path: the run's files may have moved.
func inputLine(i tensorfile.Input) string { return i.Name() + " " + i.Digest }

// sameInputs refuses a resume where a mapped file is not what the saved state has learned from.
func sameInputs(j *job.Job, saved, now []string) error {
	for _, i := range tensorfile.Inputs() {
		known := slices.ContainsFunc(saved, func(s string) bool { return strings.HasPrefix(s, i.Name()+" ") })
		if known && slices.Contains(now, inputLine(i)) && !slices.Contains(saved, inputLine(i)) {
			return usage.Errorf("%s: its content is not what the saved state has learned from: put the file back, or start anew elsewhere: %s",
				i.Path, program.OnFolder("--rerun", j.Dir))
		}
	}
	return nil
}
