package stats

import (
	"fmt"
	"math"

	"fulcrum/internal/stat"
	"fulcrum/reports/page"
)

// Where an interval of a mean is rough. docs/log/statistics.md has what it covers on either side of these limits.
const (
	fewUnits   = 100 // independent questions: 3/100 is the share that so many may not show (the rule of three)
	unseen     = 300 // independent questions of which none changed: fewer may not show a change of 1 %
	fewChanged = 20  // questions that changed
	strongSkew = 0.2 // |skewness| / √n, which the error of Student's interval is proportional to (Johnson 1978)
)

// roughness says why the interval of the mean of values, those of independent questions or clusters, may cover less
// than it promises, and the p-value with it; "" where nothing speaks against them. changed questions differ.
func roughness(values []float64, changed int) string {
	n := len(values)
	switch {
	case n < fewUnits:
		return fmt.Sprintf("%d independent questions are few, and what happens on less than %.0f%% of all may not show", n,
			math.Ceil(300/float64(n)))
	case changed == 0 && n < unseen:
		return fmt.Sprintf("what happens on less than %.0f%% of all questions may not show among %d", math.Ceil(300/float64(n)), n)
	case changed == 0:
		return ""
	case changed < fewChanged:
		return fmt.Sprintf("only %s of %s changed", page.Thousands(changed), page.Thousands(n))
	}
	if skew := skewness(values); math.Abs(skew) > strongSkew*math.Sqrt(float64(n)) {
		return fmt.Sprintf("the differences are strongly skewed (skewness %s)", page.Fixed(skew, 1))
	}
	return ""
}

// powers returns the sums of the squared and of the cubed distances of x from a centre.
func powers(x []float64, centre float64) (squares, cubes float64) {
	for _, v := range x {
		d := v - centre
		squares += d * d
		cubes += d * d * d
	}
	return squares, cubes
}

// skewness returns the third standardized moment of x, 0 where all are equal.
func skewness(x []float64) float64 {
	squares, cubes := powers(x, stat.Mean(x))
	if squares == 0 {
		return 0
	}
	return cubes * math.Sqrt(float64(len(x))) / math.Pow(squares, 1.5)
}
