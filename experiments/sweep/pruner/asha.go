package pruner

import (
	"fmt"
	"math"

	"fulcrum/experiments/sweep/sweeper"
)

// asha is asynchronous successive halving (Li et al. 2020, arXiv:1810.05934, algorithm 2), which promotes runs that
// wait at a rung. Runs in flight do not wait: as in the stopping variant of Klein et al. (2020, arXiv:2003.10865) one
// goes on past a rung when it is among the best ⌊n/η⌋ of the n runs that have reached it so far, itself included; while
// n < η nobody can tell, and all go on. A later arrival never ends a run that has gone on.
type asha struct{ first, eta int }

func newASHA(opt sweeper.PrunerOptions) rule { return asha{opt.MinEpochs, opt.ReductionFactor} }

// decides implements rule: rung k is at epoch first·η^k.
func (a asha) decides(epoch int) bool {
	rung := a.first
	for rung < epoch {
		if rung > math.MaxInt/a.eta {
			return false
		}
		rung *= a.eta
	}
	return rung == epoch
}

func (a asha) keeps(ahead, others int) (bool, string) {
	n := others + 1
	return n < a.eta || ahead < n/a.eta, fmt.Sprintf("%d of %d", n/a.eta, n)
}
