package group

import "math"

// WeightStats describes RCE's weights. The effective sample size of a group, 1/Σw², runs from 1 (all
// weight on one candidate) to the group's size (uniform weights: the temperature is far above the
// rewards' spread, and nothing tells good candidates from bad ones).
type WeightStats struct {
	Groups int     // groups with at least one counted entry
	ESS    float64 // mean effective sample size

	// Of what τ is held against: equal rewards have equal weights whatever τ is.
	Several     int     // groups of two candidates or more
	Signal      int     // groups whose rewards differ
	SignalShare float64 // mean effective sample size over group size of these groups
	Spread      float64 // mean deviation of the rewards of these groups, as they came in
}

// Weights returns RCE's weights [B*G], softmax(r/τ) within each group over the counted entries; masked
// entries and empty groups get 0, a group's weights sum to 1. They are computed in log space, so that
// rewards of any scale are safe. With relative, τ counts in deviations of the group (rewards that do not Differ:
// uniform). τ of 0 is the limit: equal weights on the best. Source: reward-weighted regression (Peters
// & Schaal 2007), with the reference's softmax over the candidates of a query (parity specification §5).
func Weights(rewards []float64, valid []bool, B, G int, tau float64, relative bool) ([]float64, WeightStats) {
	w := make([]float64, B*G)
	var stats WeightStats
	for b := range B {
		r, at := Gather(Row(rewards, valid, b, G))
		if len(r) == 0 {
			continue
		}
		t := tau
		_, std, spread := Moments(r)
		signal := len(r) > 1 && Differ(r, spread)
		switch {
		case relative && signal:
			t *= std
		case relative:
			t = math.Inf(1) // uniform, whatever rounding has left
		}
		p := softmax(r, t)
		squares := 0.0
		for i, v := range p {
			w[b*G+at[i]] = v
			squares += v * v
		}
		stats.Groups++
		stats.ESS += 1 / squares
		if len(r) > 1 {
			stats.Several++
		}
		if signal {
			stats.Signal++
			stats.SignalShare += 1 / squares / float64(len(r))
			stats.Spread += std
		}
	}
	if n := float64(stats.Signal); n > 0 {
		stats.SignalShare, stats.Spread = stats.SignalShare/n, stats.Spread/n
	}
	if n := float64(stats.Groups); n > 0 {
		stats.ESS /= n
	}
	return w, stats
}

// softmax returns exp(x/t) over its sum; t = 0 shares the weight among the largest.
func softmax(x []float64, t float64) []float64 {
	largest := math.Inf(-1)
	for _, v := range x {
		largest = math.Max(largest, v)
	}
	p, sum := make([]float64, len(x)), 0.0
	for i, v := range x {
		d := v - largest
		if v == largest {
			d = 0 // also where both are infinite
		}
		switch {
		case d == 0:
			p[i] = 1
		case t > 0:
			p[i] = math.Exp(d / t)
		}
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}
