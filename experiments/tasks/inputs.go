package tasks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/configs"
	"fulcrum/experiments/job"
	"fulcrum/internal/digest"
	"fulcrum/internal/list"
	"fulcrum/internal/program"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/usage"
)

// look makes sure that the files that a run reads while it trains are what they were, and returns their names and digests: embedding
// tables, weights of models, scripts that give rewards. was is what the last look returned.
func look(j *job.Job, was []string) ([]string, error) {
	notes, err := tensorfile.Look()
	for _, note := range notes {
		j.Log.Warnf("%s", note)
	}
	if err != nil {
		return nil, err
	}
	scripts, err := rewardScripts(j)
	if err != nil {
		return nil, err
	}
	names := list.Map(slices.Concat(tensorfile.Inputs(), scripts, j.Served), inputLine)
	for _, i := range scripts { // one that is kept running has not read it
		before := linesOf(i, was)
		if len(before) > 0 && !slices.Contains(before, inputLine(i)) {
			j.Log.Warnf("%s has changed since this run read it first: rewards may be of the one or the other from here on", i.Path)
		}
		names = append(names, before...)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// rewardScripts are the files that give rewards, with what they hold now.
func rewardScripts(j *job.Job) (all []tensorfile.Input, err error) {
	for _, path := range j.Config.Rewards.Scripts() {
		sum, _, err := digest.File(path)
		if err != nil {
			return nil, err
		}
		all = append(all, tensorfile.Input{Path: path, Digest: sum})
	}
	return all, nil
}

// linesOf returns those of the lines that are of a file, whatever it held.
func linesOf(i tensorfile.Input, lines []string) []string {
	return list.Filter(lines, func(line string) bool { return strings.HasPrefix(line, i.Name()+" ") })
}

// Unchanged returns err, of a task, or the better reason that a mapped file has changed under it. An error about a file that the settings
// name and that is not there is a mistake in them.
func Unchanged(j *job.Job, err error) error {
	changed, ok := errors.AsType[*tensorfile.ChangedError](err)
	if !ok && !errors.As(tensorfile.Changed(), &changed) {
		blamed := func(path string) bool { return strings.Contains(err.Error(), path) && absent(path) }
		if err != nil && !j.Begun && !errors.Is(err, context.Canceled) && slices.ContainsFunc(filesOf(j.Config), blamed) {
			return &configs.Error{Msg: err.Error()} // no usage.Error: the job of a sweep keeps its folder
		}
		return err
	}
	if !j.Config.Does().Trains {
		return fmt.Errorf("%w and run this again", changed)
	}
	return fmt.Errorf("%w, and go on from the last state before that: %s", changed, program.OnFolder("resume", j.Dir))
}

// absent reports whether no file has a name, or fits a pattern.
func absent(path string) bool {
	_, err := os.Stat(path)
	found, _ := filepath.Glob(path)
	return errors.Is(err, fs.ErrNotExist) && len(found) == 0
}

// inputLine names a file for a saved state. It holds no path: the run's files may have moved.
func inputLine(i tensorfile.Input) string { return i.Name() + " " + i.Digest }

// sameInputs refuses a resume where such a file is not what the saved state has learned from.
func sameInputs(j *job.Job, saved []string) error {
	scripts, err := rewardScripts(j)
	for _, i := range slices.Concat(tensorfile.Inputs(), scripts, j.Served) {
		if was := linesOf(i, saved); len(was) > 0 && !slices.Contains(was, inputLine(i)) {
			return usage.Errorf("%s: its content is not what the saved state has learned from: put it back, or start anew elsewhere: %s",
				i.Path, program.OnFolder("--rerun", j.Dir))
		}
	}
	return err
}
