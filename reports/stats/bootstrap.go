package stats

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"fulcrum/internal/stat"
)

// Above this many draws the resampling distribution of a mean is normal for every practical
// purpose, and resampling would cost seconds: 10,000 resamples of 20,000 questions.
const maxDraws = 200_000_000

// BootstrapBCa returns the bias-corrected and accelerated bootstrap interval of the mean of x
// (Efron 1987). For a mean the acceleration has a closed form, the skewness of x / (6 √n).
func BootstrapBCa(x []float64, opt Options) Interval {
	n := len(x)
	mean, se := stat.MeanSE(x)
	if se == 0 {
		return Interval{mean, mean}
	}
	if n*opt.Resamples > maxDraws {
		z := distuv.UnitNormal.Quantile(0.5 + opt.Level/2)
		return Interval{mean - z*se, mean + z*se}
	}
	means := resampledMeans(x, opt)
	slices.Sort(means)

	below, equal := 0, 0 // ties count half: scores are often discrete
	for _, m := range means {
		switch {
		case math.Abs(m-mean) <= 1e-12*(math.Abs(mean)+se):
			equal++
		case m < mean:
			below++
		}
	}
	share := (float64(below) + float64(equal)/2) / float64(len(means))
	share = min(max(share, 0.5/float64(len(means))), 1-0.5/float64(len(means)))
	z0 := distuv.UnitNormal.Quantile(share)

	squares, cubes := powers(x, mean)
	accel := cubes / (6 * math.Pow(squares, 1.5))

	at := func(p float64) float64 {
		z := z0 + distuv.UnitNormal.Quantile(p)
		return sortedQuantile(means, distuv.UnitNormal.CDF(z0+z/(1-accel*z)))
	}
	return Interval{at(0.5 - opt.Level/2), at(0.5 + opt.Level/2)}
}

// resampledMeans draws len(x) values with replacement, opt.Resamples times. One 64-bit draw makes
// two indices; a multiplication maps 32 bits to [0, n) with a bias below n/2³².
func resampledMeans(x []float64, opt Options) []float64 {
	source := rand.NewPCG(opt.Seed, 0x626f6f74) // "boot"
	n := uint64(len(x))
	means := make([]float64, opt.Resamples)
	for r := range means {
		var a, b float64
		for i := uint64(0); i+1 < n; i += 2 {
			bits := source.Uint64()
			a += x[(bits>>32)*n>>32]
			b += x[(bits&0xffffffff)*n>>32]
		}
		if n%2 == 1 {
			a += x[(source.Uint64()>>32)*n>>32]
		}
		means[r] = (a + b) / float64(n)
	}
	return means
}

// sortedQuantile interpolates between order statistics, the i-th standing at i/(n+1).
func sortedQuantile(sorted []float64, p float64) float64 {
	at := p*float64(len(sorted)+1) - 1
	i := int(math.Floor(at))
	switch {
	case i < 0:
		return sorted[0]
	case i >= len(sorted)-1:
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}
