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

	"fulcrum/experiments/sweep/sweeper"
	"fulcrum/internal/list"
	"fulcrum/internal/registry"
	"fulcrum/reports/record"
)

// rule is one way to end runs: what hydra.sweeper.pruner.name may be.
type rule interface {
	// decides reports whether runs are judged after the given epoch.
	decides(epoch int) bool
	// keeps reports whether a run goes on that so many of the others are ahead of, and which ones of all do.
	keeps(ahead, others int) (goesOn bool, best string)
}

// table lists the rules.
func table() *registry.Table[func(sweeper.PrunerOptions) rule] {
	t := registry.New[func(sweeper.PrunerOptions) rule]("pruner")
	t.Add("asha", newASHA)
	t.Add("median", newMedian)
	return t
}

// Pruner judges one run.
type Pruner struct {
	rule  rule
	name  string
	sweep string // folder
	num   int    // of the job
	total int    // epochs of the whole run
	told  Progress
}

// New returns the pruner of job num in a sweep's folder. total is how many epochs the run has when nobody ends
// it: after the last there is nothing to decide.
func New(opt sweeper.PrunerOptions, sweep string, num, total int) (*Pruner, error) {
	return newPruner(table(), opt, sweep, num, total)
}

func newPruner(rules *registry.Table[func(sweeper.PrunerOptions) rule], opt sweeper.PrunerOptions, sweep string,
	num, total int) (*Pruner, error) {
	newRule, err := rules.Get(opt.Name)
	if err != nil {
		return nil, err
	}
	return &Pruner{rule: newRule(opt), name: opt.Name, sweep: sweep, num: num, total: total, told: Progress{Num: num}}, nil
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
	if epoch >= p.total || !p.rule.decides(epoch) {
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
	return p.judge(others), nil
}

// judge compares the run with the siblings that have been at its epoch, and says why it ends, or "".
func (p *Pruner) judge(others []float64) string {
	run := p.told
	epoch := len(run.Best)
	own := float64(run.Best[epoch-1])
	ahead := list.Count(others, func(v float64) bool { return better(v, own, run.Minimize) })
	goesOn, best := p.rule.keeps(ahead, len(others))
	if goesOn {
		return ""
	}
	at := fmt.Sprintf("best %s after %d epochs", run.Metric, epoch)
	if epoch == 1 {
		at = run.Metric + " after the first epoch"
	}
	return fmt.Sprintf("%s: %s is %.4g, better in %d of the %d other runs: only the best %s go on", p.name, at, own, ahead, len(others), best)
}

// better reports whether value a beats b. NaN beats nothing and loses to every number.
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
