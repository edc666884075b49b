package search

import (
	"math"
	"math/rand/v2"
	"sort"
	"strconv"
	"testing"

	"fulcrum/configs"
	"fulcrum/experiments/sweep/sweeper"
)

// Every point of the cube has a value of the axis, and that value's point has it again.
func TestTextAndUnitAgree(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	check := func(d configs.Dimension) {
		t.Helper()
		a, err := newAxis(d)
		if err != nil {
			t.Fatalf("%+v: %v", d, err)
		}
		for _, u := range []float64{0, 1, 0.5, random.Float64(), random.Float64(), random.Float64()} {
			text := a.text(u)
			if err := allowed(d, text); err != nil {
				t.Errorf("%+v at %g: %v", d, u, err)
			}
			back, err := a.unit(text)
			if err != nil || back < 0 || back > 1 {
				t.Errorf("%+v: unit(%s) = %g, %v", d, text, back, err)
			}
			if again := a.text(back); again != text {
				t.Errorf("%+v: %s at %g, %s at its own point %g", d, text, u, again, back)
			}
			if d.Choices == nil && !d.Int && math.Abs(back-u) > 1e-4 {
				t.Errorf("%+v: %g became %s, which lies at %g", d, u, text, back)
			}
		}
	}
	for _, d := range mixed(false) {
		check(d)
	}
	for range 2000 {
		low := math.Exp(random.NormFloat64() * 8)
		high := low * (1 + math.Exp(random.NormFloat64()*3))
		check(configs.Dimension{Key: "a", Low: low, High: high, Tags: []string{"log"}})
		check(configs.Dimension{Key: "a", Low: -low, High: high})
		check(configs.Dimension{Key: "a", Low: -high, High: -low})
		if high < 1e15 && math.Trunc(high) > math.Trunc(low) {
			check(configs.Dimension{Key: "a", Low: math.Trunc(low), High: math.Trunc(high), Int: true})
			check(configs.Dimension{Key: "a", Low: math.Trunc(low) + 1, High: math.Trunc(high) + 1, Int: true, Tags: []string{"log"}})
		}
	}
}

// Numbers are written as Python writes them, which is how sweeps write numbers, and short.
func TestNumbersAreShort(t *testing.T) {
	for _, tc := range []struct {
		d    configs.Dimension
		u    float64
		want string
	}{
		{decades("a", 1e-5, 3), 0, "1e-05"},
		{decades("a", 1e-5, 3), 1, "0.01"},
		{decades("a", 1e-5, 3), 1. / 3, "0.0001"},
		{decades("a", 1e-5, 3), 0.4321, "0.000197834"},
		{configs.Dimension{Low: 0, High: 2}, 0.5, "1.0"},
		{configs.Dimension{Low: 0, High: 3}, 1. / 9, "0.333333"},
		{configs.Dimension{Low: 1, High: 1.0001}, 1. / 3, "1.000033333"},
		{configs.Dimension{Low: -1e20, High: 1e20}, 0.25, "-5e+19"},
		{configs.Dimension{Low: 1, High: 6, Int: true}, 1, "6"},
		{configs.Dimension{Low: 1, High: 6, Int: true}, 0.01, "1"},
	} {
		a, err := newAxis(tc.d)
		if err != nil {
			t.Fatal(err)
		}
		if got := a.text(tc.u); got != tc.want {
			t.Errorf("%+v at %g: %s, want %s", tc.d, tc.u, got, tc.want)
		}
	}
}

// kolmogorov is the largest distance between the empirical distribution of u and the uniform one.
func kolmogorov(u []float64) float64 {
	sort.Float64s(u)
	d, n := 0.0, float64(len(u))
	for i, x := range u {
		d = max(d, x-float64(i)/n, float64(i+1)/n-x)
	}
	return d
}

// Random search is uniform on each axis's own scale: logarithms of a log axis, each integer, each choice as often.
func TestRandomIsUniform(t *testing.T) {
	const n = 2000
	dims := mixed(false)
	s, err := New("random", seeded(7), dims)
	if err != nil {
		t.Fatal(err)
	}
	values := make([][]string, len(dims))
	for i := range n {
		params, err := s.Next([]sweeper.Trial{{Number: i - 1, Params: []string{}}})
		if err != nil {
			t.Fatal(err)
		}
		for k, p := range params {
			values[k] = append(values[k], p)
		}
	}
	for k, d := range dims {
		if d.Interval() && !d.Int {
			u := make([]float64, n)
			for i, text := range values[k] {
				x, err := strconv.ParseFloat(text, 64)
				if err != nil {
					t.Fatal(err)
				}
				u[i] = (x - d.Low) / (d.High - d.Low)
				if d.Log() {
					u[i] = math.Log(x/d.Low) / math.Log(d.High/d.Low)
				}
			}
			if got, limit := kolmogorov(u), 1.63/math.Sqrt(n); got > limit { // the 1 % point
				t.Errorf("%s: Kolmogorov-Smirnov distance %.4f from the uniform distribution, want at most %.4f", d.Key, got, limit)
			}
			continue
		}
		if d.Log() && d.Int {
			continue // small integers have wider parts than large ones
		}
		counts := map[string]int{}
		for _, text := range values[k] {
			counts[text]++
		}
		kinds := len(d.Choices)
		if d.Int {
			kinds = int(d.High-d.Low) + 1
		}
		want := float64(n) / float64(kinds)
		if len(counts) != kinds {
			t.Errorf("%s: %d different values, want %d", d.Key, len(counts), kinds)
		}
		for text, got := range counts {
			if math.Abs(float64(got)-want) > 4*math.Sqrt(want) {
				t.Errorf("%s=%s came %d times of %d, want about %.0f", d.Key, text, got, n, want)
			}
		}
	}
}
