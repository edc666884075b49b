package experiments

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/experiments/sweep/sweeper"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
	"fulcrum/reports/compare"
)

// differError ends run diff with exit code 1, as diff(1) ends where its files differ.
type differError struct{ verdict string }

func (e *differError) Error() string { return e.verdict }

// ExitCode is 1: a result, not a mistake in the command.
func (e *differError) ExitCode() int { return 1 }

// jsonFlag has a command print JSON.
const jsonFlag = "--json"

// verbDiff says what differs between two runs, two sweeps or two config files.
func verbDiff(_ context.Context, _ App, args []string) error {
	asJSON := slices.Contains(args, jsonFlag)
	args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return arg == jsonFlag })
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") {
			return usage.Errorf("run diff: unknown flag %s: want %s or none", arg, jsonFlag)
		}
	}
	if err := want(args, 2, "diff A B ["+jsonFlag+"]: two run folders, two sweep folders or two config files"); err != nil {
		return err
	}
	var sides [2]compare.DiffSide
	for i, path := range args {
		var err error
		if sides[i], err = diffSide(path); err != nil {
			return err
		}
	}
	diff, err := compare.DiffOf(sides[0], sides[1])
	if err != nil {
		return err
	}
	if asJSON {
		text, err := json.MarshalIndent(diff, "", "  ")
		if err != nil {
			return err
		}
		stdout.Printf("%s\n", text)
	} else if err := diff.WriteText(stdout.Writer()); err != nil {
		return err
	}
	if !diff.Same {
		return &differError{diff.Verdict()}
	}
	if !asJSON {
		stdout.Println("\n" + diff.Verdict())
	}
	return nil
}

// diffSide reads what a path holds: a sweep, a run or a config file. What it cannot be is a mistake in the command.
func diffSide(path string) (compare.DiffSide, error) {
	info, err := os.Stat(path)
	if err != nil {
		return compare.DiffSide{}, usage.Errorf("%v: want a run folder, a sweep folder or a config file", err)
	}
	if !info.IsDir() {
		side, err := compare.ReadDiffConfig(path)
		if err != nil {
			return side, usage.Errorf("%v", err)
		}
		return side, nil
	}
	if err := sweep.LostLedger(path); err != nil {
		return compare.DiffSide{}, err
	}
	switch {
	case ledger.Exists(path):
		return diffSweep(path)
	case runfolder.IsRun(path):
		return compare.ReadDiffRun(path)
	}
	return compare.DiffSide{}, usage.Errorf("%s: neither a run folder nor a sweep folder", path)
}

// diffSweep reads a sweep out of its ledger.
func diffSweep(dir string) (compare.DiffSide, error) {
	s, jobs, err := ledger.Load(dir)
	if err != nil {
		return compare.DiffSide{}, err
	}
	swept := map[string]string{"sweep.sweeper": s.Sweeper, "sweep.pruner": s.Pruner, "hydra.launcher": s.Launcher}
	if s.Sweeper != sweeper.Basic {
		swept["sweep.trials"] = strconv.Itoa(s.Trials)
	}
	if len(s.Constraints) > 0 {
		swept["sweep.constraints"] = strings.Join(s.Constraints, ", ")
	}
	for _, d := range s.Dimensions {
		values := strings.Join(d.Choices, ", ")
		if d.Interval() {
			values = fmt.Sprintf("interval(%g, %g)", d.Low, d.High)
		}
		swept["sweep."+d.Key] = values
	}
	rows := make([]compare.DiffJob, len(jobs))
	for i, j := range jobs {
		params := make([]string, len(s.Dimensions))
		for k, d := range s.Dimensions {
			params[k] = d.Key + "=" + j.Params[k]
		}
		slices.Sort(params)
		rows[i] = compare.DiffJob{Params: strings.Join(params, " "), Dir: filepath.Join(dir, j.Dir)}
	}
	state := fmt.Sprintf("%d of %d jobs ended", sweep.CountEnded(jobs), max(len(jobs), s.Trials))
	return compare.ReadDiffSweep(dir, filepath.Join(dir, sweep.MultirunName(s.Generation)), state, swept, rows)
}
