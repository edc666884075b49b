package stats

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"fulcrum/internal/stat"
)

// With more signs than these their sum is normal for every practical purpose: 10,000 patterns of 20,000 questions.
const maxSigns = 200_000_000

// SignFlip returns the two-sided p-value of the sum of x under random signs: exact when there are no
// more sign patterns than resamples, by Monte Carlo with the observed pattern counted otherwise
// (Phipson and Smyth 2010), two standard errors of the drawing above its estimate: a winner must not
// hang on which patterns were drawn. Questions without a difference say nothing and are left out. floor says that no other
// pattern was drawn whose sum is as large: the p-value is the least that so many can give.
func SignFlip(x []float64, opt Options) (p float64, floor bool) {
	var d []float64
	var sum, abs, squares float64
	for _, v := range x {
		if v != 0 {
			d = append(d, v)
			sum += v
			abs += math.Abs(v)
			squares += v * v
		}
	}
	if len(d) == 0 {
		return 1, false
	}
	limit := math.Abs(sum) - 1e-12*abs // equal sums in another order still count as equal
	switch {
	case len(d) < 62 && 1<<len(d) <= opt.Resamples:
		return exactSignFlip(d, limit), false
	case len(d)*opt.Resamples > maxSigns:
		return 2 * distuv.UnitNormal.CDF(-math.Abs(sum)/math.Sqrt(squares)), false
	}
	sums := signedSums(d)
	source := rand.NewPCG(opt.Seed, 0x7065726d) // "perm"
	as := 1
	for range opt.Resamples {
		var signs uint64
		total := 0.0
		for i := range sums {
			if i%8 == 0 {
				signs = source.Uint64()
			}
			total += sums[i][signs&0xff]
			signs >>= 8
		}
		if math.Abs(total) >= limit {
			as++
		}
	}
	p = float64(as) / float64(opt.Resamples+1)
	return min(1, p+2*math.Sqrt(p*(1-p)/float64(opt.Resamples+1))), as == 1
}

// signedSums returns, for every eight values, their sum under each of the 256 sign patterns: a resample
// then costs one look-up for eight questions. A bit that is set flips a sign.
func signedSums(d []float64) [][256]float64 {
	sums := make([][256]float64, (len(d)+7)/8)
	for i, v := range d {
		table, bit := &sums[i/8], 1<<(i%8)
		for k := range bit { // patterns of the values before this one
			table[k|bit] = table[k] - v
			table[k] += v
		}
	}
	for i := range sums {
		for k := 1 << min(8, len(d)-8*i); k < 256; k++ { // the last table may have fewer than eight values
			sums[i][k] = sums[i][k&(1<<min(8, len(d)-8*i)-1)]
		}
	}
	return sums
}

// exactSignFlip walks all sign patterns in Gray-code order, one flip at a time.
func exactSignFlip(d []float64, limit float64) float64 {
	total, patterns, sign := stat.Sum(d), uint64(1)<<len(d), slices.Repeat([]float64{1}, len(d))
	as := 0
	for k := uint64(1); ; k++ {
		if math.Abs(total) >= limit {
			as++
		}
		if k == patterns {
			return float64(as) / float64(patterns)
		}
		i := bits.TrailingZeros64(k)
		sign[i] = -sign[i]
		total += 2 * sign[i] * d[i]
	}
}
