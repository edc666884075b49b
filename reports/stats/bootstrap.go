package stats

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"fulcrum/internal/stat"
)

// With more draws than these, 10,000 resamples of 100 questions, the saddlepoint approximation of what would be drawn is as good, and a
// small run does not spend a tenth of its time on drawing.
const maxDraws = 1_000_000

// BootstrapBCa returns the bias-corrected and accelerated bootstrap interval of the mean of x
// (Efron 1987). For a mean the acceleration has a closed form, the skewness of x / (6 √n).
func BootstrapBCa(x []float64, opt Options) Interval {
	n := len(x)
	mean, se := stat.MeanSE(x)
	if se == 0 {
		return Interval{mean, mean}
	}
	if n > 20_000 { // the distribution of such a mean is normal for every practical purpose
		return StudentInterval(mean, se, n, opt.Level)
	}
	squares, cubes := powers(x, mean)
	accel := cubes / (6 * math.Pow(squares, 1.5))
	z0, quantile := accel, func(z float64) float64 { // the bias of a mean is its acceleration (Efron 1987, section 5)
		return mean + saddlepoint(x, mean, math.Sqrt(squares), z)
	}
	if n*opt.Resamples <= maxDraws {
		means := resampledMeans(x, opt)
		slices.Sort(means)
		z0 = biasOf(means, mean, se)
		quantile = func(z float64) float64 { return sortedQuantile(means, distuv.UnitNormal.CDF(z)) }
	}
	at := func(p float64) float64 {
		z := z0 + distuv.UnitNormal.Quantile(p)
		return quantile(z0 + z/(1-accel*z))
	}
	return Interval{at(0.5 - opt.Level/2), at(0.5 + opt.Level/2)}
}

// biasOf returns the normal quantile of the share of resampled means that are below the mean; ties count half: scores are often discrete.
func biasOf(means []float64, mean, se float64) float64 {
	below, equal := 0, 0
	for _, m := range means {
		switch {
		case math.Abs(m-mean) <= 1e-12*(math.Abs(mean)+se):
			equal++
		case m < mean:
			below++
		}
	}
	share, least := (float64(below)+float64(equal)/2)/float64(len(means)), 0.5/float64(len(means))
	return distuv.UnitNormal.Quantile(min(max(share, least), 1-least))
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

// saddlepoint returns where the mean of len(x) values drawn from x, less the mean of x, has the standard normal quantile z: it inverts
// r* = w + ln(u/w)/w of the empirical cumulants (Davison and Hinkley 1988, Barndorff-Nielsen 1991). root is √Σ(x − mean)².
func saddlepoint(x []float64, mean, root, z float64) float64 {
	n := float64(len(x))
	at := func(t float64) (r, tilted float64) { // r* and mean where a draw's probability is multiplied by exp(t·value)
		var most, sum, first, second float64
		for _, v := range x {
			most = max(most, t*(v-mean))
		}
		for _, v := range x {
			e := math.Exp(t*(v-mean) - most)
			sum, first, second = sum+e, first+e*(v-mean), second+e*(v-mean)*(v-mean)
		}
		tilted = first / sum
		w := math.Copysign(math.Sqrt(2*n*(t*tilted-most-math.Log(sum/n))), t)
		u := t * math.Sqrt(n*(second/sum-tilted*tilted))
		return w + math.Log(u/w)/w, tilted
	}
	z = max(-8, min(z, 8))
	near, far := 0.0, z/root // the latter is exact where x is normal
	for range 6 {
		if r, _ := at(far); math.Abs(r) > math.Abs(z) {
			break
		}
		near, far = far, 2*far
	}
	for range 40 {
		if r, _ := at((near + far) / 2); math.Abs(r) > math.Abs(z) {
			far = (near + far) / 2
		} else { // NaN too: every value is the greatest
			near = (near + far) / 2
		}
	}
	_, tilted := at(near)
	return tilted
}
