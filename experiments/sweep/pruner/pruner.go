// Package pruner ends runs of a sweep that do badly beside their siblings. A run decides for itself, at the end
// of its epochs: it writes the best value that it has reached to a file in the sweep's folder (its rung file) and
// reads those of the others. No controller takes part, so that it works the same under every launcher, and with
// no controller alive.
//
//	p := pruner.New(opt, sweepDir, jobNumber, totalEpochs)
//	reason, err := p.Report(epoch, "val_loss", value, true) // reason != "": the run ends here
package pruner

import (
	"fmt"
	"math"

	"fulcrum/reports/record"
)

// Pruner judges one run.
type Pruner struct {
	opt   Options
	sweep string // folder
	num   int    // of the job
	total int    // epochs of the whole run
	told  Progress
}

// New returns the pruner of job num in a sweep's folder. total is how many epochs the run has when nobody ends
// it: after the last there is nothing to decide.
func New(opt Options, sweep string, num, total int) *Pruner {
	return &Pruner{opt: opt, sweep: sweep, num: num, total: total, told: Progress{Num: num}}
}

// Seed tells of an epoch that the run had finished before it was resumed. Epochs come in order, from 1.
func (p *Pruner) Seed(epoch int, metric string, value float64, minimize bool) error {
	if epoch != len(p.told.Best)+1 {
		return fmt.Errorf("pruner: epoch %d after %d: want every epoch once, in order", epoch, len(p.told.Best))
	}
	if epoch > 1 {
		if before := float64(p.told.Best[epoch-2]); !better(value, before, minimize) {
			value = before
		}
	}
	p.told.Metric, p.told.Minimize = metric, minimize
	p.told.Best = append(p.told.Best, record.Number(value))
	return nil
}

// Report tells the siblings of a finished epoch and returns why the run should end with it, or "".
func (p *Pruner) Report(epoch int, metric string, value float64, minimize bool) (reason string, err error) {
	if err := p.Seed(epoch, metric, value, minimize); err != nil {
		return "", err
	}
	if err := p.told.write(p.sweep); err != nil {
		return "", fmt.Errorf("pruner: %w", err)
	}
	if epoch >= p.total || !p.opt.decides(epoch) {
		return "", nil
	}
	siblings, err := Siblings(p.sweep)
	if err != nil {
		return "", fmt.Errorf("pruner: %w", err)
	}
	var others []float64 // best values of the siblings that have been here
	for _, s := range siblings {
		if s.Num != p.num && s.Metric == metric && s.Minimize == minimize && len(s.Best) >= epoch {
			others = append(others, float64(s.Best[epoch-1]))
		}
	}
	return p.opt.judge(p.told, others), nil
}

// decides reports whether runs are judged after the given epoch.
func (o Options) decides(epoch int) bool {
	if o.Name == Median {
		return epoch >= o.MinEpochs && (epoch-o.MinEpochs)%o.IntervalEpochs == 0
	}
	rung := o.MinEpochs
	for rung < epoch {
		if rung > math.MaxInt/o.ReductionFactor {
			return false
		}
		rung *= o.ReductionFactor
	}
	return rung == epoch
}

// judge compares a run with the siblings that have been at its epoch, and says why it ends, or "".
//
// ASHA (Li et al. 2020, arXiv:1810.05934, algorithm 2) promotes runs that wait at a rung. Runs in flight do not
// wait: as in the stopping variant of Klein et al. (2020, arXiv:2003.10865) one goes on past a rung when it is
// among the best ⌊n/η⌋ of the n runs that have reached it so far, itself included; while n < η nobody can tell,
// and all go on. A later arrival never ends a run that has gone on.
//
// The median rule (Golovin et al. 2017, §3.2.1) ends a run whose best value is worse than the median of the
// others' at the same epoch.
func (o Options) judge(run Progress, others []float64) string {
	epoch := len(run.Best)
	own := float64(run.Best[epoch-1])
	ahead := 0
	for _, v := range others {
		if better(v, own, run.Minimize) {
			ahead++
		}
	}
	at := fmt.Sprintf("%s: best %s after %d epochs is %.4g", o.Name, run.Metric, epoch, own)
	if epoch == 1 {
		at = fmt.Sprintf("%s: %s after the first epoch is %.4g", o.Name, run.Metric, own)
	}
	switch o.Name {
	case ASHA:
		n := len(others) + 1
		if n < o.ReductionFactor || ahead < n/o.ReductionFactor {
			return ""
		}
		return fmt.Sprintf("%s, better in %d of the %d other runs: only the best %d of %d go on", at, ahead, len(others), n/o.ReductionFactor, n)
	case Median:
		if len(others) < o.StartupTrials || float64(ahead) <= o.Percentile/100*float64(len(others)) {
			return ""
		}
		return fmt.Sprintf("%s, better in %d of the %d other runs: only the best %g %% go on", at, ahead, len(others), o.Percentile)
	}
	return ""
}

// better reports whether value a beats b. What is no number beats nothing and loses to every number.
func better(a, b float64, minimize bool) bool {
	switch {
	case math.IsNaN(a):
		return false
	case math.IsNaN(b):
		return true
	case minimize:
		return a < b
	}
	return a > b
}
