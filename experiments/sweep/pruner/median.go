package pruner

import "fmt"

// median is the median stopping rule (Golovin et al. 2017, §3.2.1): it ends a run whose best value is worse than the
// median, or another percentile, of the others' at the same epoch.
type median struct {
	first, interval, startup int
	percentile               float64
}

func newMedian(opt Options) rule {
	return median{opt.MinEpochs, opt.IntervalEpochs, opt.StartupTrials, opt.Percentile}
}

// decides implements rule.
func (m median) decides(epoch int) bool { return epoch >= m.first && (epoch-m.first)%m.interval == 0 }

// keeps implements rule.
func (m median) keeps(ahead, others int) (bool, string) {
	return others < m.startup || float64(ahead) <= m.percentile/100*float64(others), fmt.Sprintf("%g %%", m.percentile)
}
