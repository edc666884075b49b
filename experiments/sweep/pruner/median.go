package pruner

import "fulcrum/experiments/sweep/sweeper"

// median is the median stopping rule (Golovin et al. 2017, §3.2.1): it ends a run whose best value is worse than the
// median of the others' at the same epoch.
type median struct{ first, startup int }

func newMedian(opt sweeper.PrunerOptions) rule { return median{opt.MinEpochs, opt.StartupTrials} }

func (m median) decides(epoch int) bool { return epoch >= m.first }

func (m median) keeps(ahead, others int) (bool, string) {
	return others < m.startup || 2*ahead <= others, "50 %"
}
