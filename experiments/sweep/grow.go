package sweep

import (
	"context"
	"fmt"

	"fulcrum/configs"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/internal/interrupt"
	"fulcrum/internal/usage"
	"fulcrum/reports/sweeps"
)

// Create is Start of a study that grows by seeds, without running anything: Resume does. It returns the study's folder, which a dry run
// leaves out. command is what repeats the study.
func Create(ctx context.Context, runs Runs, req configs.Request, ask sweeps.Ask, command []string) (dir string, err error) {
	return start(ctx, runs, req, &ledger.Sweep{Overrides: req.Overrides, Command: command, Ask: &ask}, false)
}

// Grow adds the jobs of a study's further seeds, so that it has the seeds 0 to seeds − 1, and keeps ask. Resume runs them. Nobody may run
// the study meanwhile, and its configuration must not have changed: a question is asked of one recipe.
func Grow(runs Runs, dir string, ask sweeps.Ask, seeds int) error {
	f, err := claimSweep(dir)
	if err != nil {
		return err
	}
	defer f.Release()
	l, err := ledger.Open(dir)
	if err != nil {
		return err
	}
	defer l.Close()
	s, err := l.Sweep()
	if err != nil {
		return err
	}
	had, err := l.Jobs()
	if err != nil {
		return err
	}
	s.Ask, s.Overrides = &ask, append(s.Overrides, fmt.Sprintf("seed=range(0,%d)", seeds)) // of two the last counts
	p, err := reopen(runs, dir, s)
	if err != nil {
		return err
	}
	jobs, err := p.jobs()
	if err != nil {
		return err
	}
	var more []ledger.Job
	for i, j := range jobs {
		switch {
		case i >= len(had):
			j.row.Generation = s.Generation
			more = append(more, j.row)
		case j.row.Fingerprint != had[i].Fingerprint:
			return usage.Errorf("%s: the configuration has changed since the question was asked (%s): its further seeds would be of another "+
				"recipe; ask again, in another hydra.sweep.dir", dir, p.changes(s.Generation))
		}
	}
	s.Dimensions = p.dims
	defer interrupt.Hold(nil).Release()
	if err := l.Add(more...); err != nil {
		return err
	}
	return l.SetSweep(s)
}
