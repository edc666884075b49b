package search

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"
)

// parzen is a density over the unit cube: a mixture with one kernel for each observation and one broad kernel
// for the prior. Kernels are products over the axes (the multivariate estimator of Falkner et al. 2018, not
// the original's product of one-dimensional mixtures), so that the density sees which values go together: a
// normal truncated to [0, 1] for a number, a smoothed count for a choice.
type parzen struct {
	axes    []axis
	kernels []kernel
	total   float64 // of the weights
}

type kernel struct {
	weight float64
	center []float64 // in the unit cube; of a choice the middle of its part
	sigma  []float64 // of a number; for a choice the share of the probability that is spread evenly
}

const (
	priorWeight = 1.0 // of the broad kernel, in observations
	bandwidth   = 0.1 // of a single observation, as a share of the axis
)

// newParzen places kernels on points, which come in the order of time. Their width falls with their number n
// by Scott's rule, n^(-1/(D+4)) for D axes.
func newParzen(axes []axis, points [][]float64) *parzen {
	p := &parzen{axes: axes}
	n := len(points)
	width := bandwidth * math.Pow(math.Max(float64(n), 1), -1/float64(len(axes)+4))
	for i, point := range points {
		p.add(recency(i, n), point, width, priorWeight/float64(n+1))
	}
	middle := slices.Repeat([]float64{0.5}, len(axes))
	p.add(priorWeight, middle, 1, math.Inf(1))
	return p
}

// recency returns the weight of observation i of n: the last 25 count fully, earlier ones the less the older
// (Optuna's default weights).
func recency(i, n int) float64 {
	const full = 25
	if n <= full || i >= n-full {
		return 1
	}
	first := 1 / float64(n)
	if n-full == 1 {
		return first
	}
	return first + (1-first)*float64(i)/float64(n-full-1)
}

// add adds a kernel; even is the count that a choice adds to each of its values, before they are normalized.
func (p *parzen) add(weight float64, center []float64, width, even float64) {
	k := kernel{weight: weight, center: center, sigma: make([]float64, len(center))}
	for i := range p.axes {
		a := &p.axes[i]
		k.sigma[i] = width
		if a.categorical() {
			k.sigma[i] = 1
			if !math.IsInf(even, 1) {
				n := float64(len(a.choices))
				k.sigma[i] = even * n / (1 + even*n)
			}
		}
	}
	p.kernels = append(p.kernels, k)
	p.total += weight
}

// draw returns a point of the density.
func (p *parzen) draw(r *rand.Rand) []float64 {
	x := r.Float64() * p.total
	i := 0
	for ; i < len(p.kernels)-1 && x >= p.kernels[i].weight; i++ {
		x -= p.kernels[i].weight
	}
	k := p.kernels[i]
	point := make([]float64, len(p.axes))
	for i := range p.axes {
		u := r.Float64()
		if p.axes[i].categorical() {
			point[i] = k.center[i]
			if u < k.sigma[i] {
				point[i] = u / k.sigma[i]
			}
			continue
		}
		low, high := phi(-k.center[i]/k.sigma[i]), phi((1-k.center[i])/k.sigma[i])
		point[i] = min(max(k.center[i]+k.sigma[i]*quantile(low+u*(high-low)), 0), 1)
	}
	return point
}

// logDensity returns the logarithm of the density at a point.
func (p *parzen) logDensity(point []float64) float64 {
	terms := make([]float64, len(p.kernels))
	for j, k := range p.kernels {
		t := math.Log(k.weight / p.total)
		for i := range p.axes {
			a := &p.axes[i]
			if a.categorical() {
				share := k.sigma[i] / float64(len(a.choices))
				if k.sigma[i] < 1 && a.index(point[i]) == a.index(k.center[i]) {
					share += 1 - k.sigma[i]
				}
				t += math.Log(share)
				continue
			}
			z := (point[i] - k.center[i]) / k.sigma[i]
			inside := phi((1-k.center[i])/k.sigma[i]) - phi(-k.center[i]/k.sigma[i])
			t += -z*z/2 - math.Log(math.Sqrt(2*math.Pi)*k.sigma[i]*inside)
		}
		terms[j] = t
	}
	return floats.LogSumExp(terms)
}

// phi returns the distribution function of the standard normal; quantile is its inverse.
func phi(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }

func quantile(p float64) float64 { return -math.Sqrt2 * math.Erfcinv(2*p) }
