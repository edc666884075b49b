package views

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"fulcrum/experiments/sweep"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/experiments/sweep/sweeper"
	"fulcrum/internal/list"
	"fulcrum/reports/compare"
)

// ReadDiff reads what run diff compares of a sweep.
func ReadDiff(dir string) (compare.DiffSide, error) {
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
	var arms []string
	rows := make([]compare.DiffJob, len(jobs))
	for i, j := range jobs {
		params := list.Make(len(s.Dimensions), func(k int) string { return s.Dimensions[k].Key + "=" + j.Params[k] })
		slices.Sort(params)
		if j.Arm != "" {
			params = append([]string{"arm=" + j.Arm}, params...)
			if !slices.Contains(arms, j.Arm) {
				arms = append(arms, j.Arm)
				swept["sweep.arm"] = strings.Join(arms, ", ")
			}
		}
		rows[i] = compare.DiffJob{Params: strings.Join(params, " "), Dir: filepath.Join(dir, j.Dir)}
	}
	state := fmt.Sprintf("%d of %d jobs ended", sweep.CountEnded(jobs), max(len(jobs), s.Trials))
	return compare.ReadDiffSweep(dir, filepath.Join(dir, sweep.MultirunName(s.Generation)), state, swept, rows)
}
