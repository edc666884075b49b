package sweep

import (
	"context"
	"fmt"

	"fulcrum/configs"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/internal/interrupt"
	"fulcrum/internal/program"
	"fulcrum/internal/usage"
	"fulcrum/reports/sweeps"
)

// Create is Start of a study that grows by seeds, without running anything: Resume does. It returns the study's folder, which a dry run
// leaves out. command is what repeats the study.
func Create(ctx context.Context, runs Runs, req configs.Request, ask sweeps.Ask, command []string) (dir string, err error) {
	return start(ctx, runs, req, &ledger.Sweep{Overrides: req.Overrides, Command: command, Ask: &ask}, false)
}

// owned does something with the ledger of a sweep's folder that nobody else controls meanwhile.
func owned(dir string, do func(l *ledger.Ledger, s ledger.Sweep) error) error {
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
	return do(l, l.Sweep())
}

// Agree writes into the ledger what change makes of the rule that a study grows by: a budget, or that somebody has agreed to its cost. What
// was fixed before the first run change must leave alone. A sweep that asks nothing is refused.
func Agree(dir string, change func(*sweeps.Ask) error) error {
	return owned(dir, func(l *ledger.Ledger, s ledger.Sweep) error {
		if s.Ask == nil {
			return usage.Errorf("%s: a sweep that asks no question; to go on with it: %s", dir, program.OnFolder("resume", dir))
		}
		was := *s.Ask
		if err := change(s.Ask); err != nil || *s.Ask == was {
			return err
		}
		return l.SetSweep(s)
	})
}

// Own does something in the folder of a sweep that nobody else controls meanwhile.
func Own(dir string, do func() error) error {
	return owned(dir, func(*ledger.Ledger, ledger.Sweep) error { return do() })
}

// End says that a study grows no more: its jobs' program is not needed any longer.
func End(dir string) error { return Own(dir, func() error { return dropProgram(dir) }) }

// Grow adds the jobs of a study's further seeds, so that it has the seeds 0 to seeds − 1; one that has them stays as it is. Resume runs
// them. Nobody may run the study meanwhile, and its configuration must not have changed: a question is asked of one recipe.
func Grow(runs Runs, dir string, seeds int) error {
	return owned(dir, func(l *ledger.Ledger, s ledger.Sweep) error {
		had, err := l.Jobs()
		if err != nil {
			return err
		}
		s.Overrides = append(s.Overrides, fmt.Sprintf("seed=range(0,%d)", seeds)) // of two the last counts
		p, err := reopen(runs, dir, s)
		if err != nil {
			return err
		}
		jobs, err := p.jobs()
		if err != nil || len(jobs) <= len(had) { // somebody else has grown it meanwhile
			return err
		}
		var more []ledger.Job
		for i, j := range jobs {
			switch {
			case i >= len(had):
				j.row.Generation = s.Generation
				more = append(more, j.row)
			case j.row.Fingerprint != had[i].Fingerprint:
				return usage.Errorf("%s: the configuration has changed since the question was asked (%s): its further seeds would be of "+
					"another recipe; ask again, in another hydra.sweep.dir", dir, p.changes(s.Generation))
			}
		}
		s.Dimensions = p.dims
		defer interrupt.Hold(nil).Release()
		if err := l.SetSweep(s); err != nil { // first: killed in between it grows again, and no job has seeds that it lacks
			return err
		}
		return l.Add(more...)
	})
}
