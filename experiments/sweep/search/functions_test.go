package search

import (
	"math"
	"strconv"
	"testing"

	"fulcrum/configs"
	"fulcrum/experiments/sweep/launcher"
	"fulcrum/experiments/sweep/sweeper"
)

// function is something to minimize over four or two keys on a log scale.
type function struct {
	name string
	dims []configs.Dimension
	f    func(x []float64) float64
}

// decades is a key on a log scale from low over so many decades.
func decades(key string, low float64, n int) configs.Dimension {
	return configs.Dimension{Key: key, Low: low, High: low * math.Pow(10, float64(n)), Tags: []string{"log"}}
}

// logs maps values on a log scale to the axes of a test function: 0 at the low end, 1 at the high end.
func logs(x []float64, dims []configs.Dimension) []float64 {
	u := make([]float64, len(x))
	for i := range x {
		u[i] = math.Log(x[i]/dims[i].Low) / math.Log(dims[i].High/dims[i].Low)
	}
	return u
}

func functions() []function {
	four := []configs.Dimension{decades("a.lr", 1e-5, 3), decades("b.lr", 1e-4, 3), decades("c.decay", 1e-3, 4), decades("d.tau", 1e-2, 3)}
	two := four[:2]
	return []function{
		{"sphere", four, func(x []float64) float64 {
			u, sum := logs(x, four), 0.0
			for i, at := range []float64{0.7, 0.3, 0.55, 0.2} {
				sum += (u[i] - at) * (u[i] - at)
			}
			return sum
		}},
		{"ellipsoid", four, func(x []float64) float64 { // two keys matter much, two little
			u := logs(x, four)
			return 10*sq(u[0]-0.8) + 3*sq(u[1]-0.4) + 0.3*sq(u[2]-0.6) + 0.1*sq(u[3]-0.3)
		}},
		{"valley", four, func(x []float64) float64 { // Rosenbrock's, in the box [-1, 1.5]^4
			u, sum := logs(x, four), 0.0
			for i := range u {
				u[i] = -1 + 2.5*u[i]
			}
			for i := range 3 {
				sum += 100*sq(u[i+1]-u[i]*u[i]) + sq(1-u[i])
			}
			return math.Log1p(sum)
		}},
		{"branin", two, func(x []float64) float64 {
			u := logs(x, two)
			a, b := -5+15*u[0], 15*u[1]
			return sq(b-5.1/(4*math.Pi*math.Pi)*a*a+5/math.Pi*a-6) + 10*(1-1/(8*math.Pi))*math.Cos(a) + 10
		}},
		{"cliff", four, func(x []float64) float64 { // a learning rate just before divergence
			u := logs(x, four)
			if u[0] > 0.8 {
				return 3 + u[0]
			}
			return 2*(0.8-u[0]) + sq(u[1]-0.5) + 2*sq(u[2]-0.5-0.3*(u[0]-0.5)) + 0.2*u[3]
		}},
	}
}

func sq(x float64) float64 { return x * x }

// minimize runs n trials one after another and returns the best value.
func minimize(t testing.TB, name string, opt sweeper.Options, f function, n int) (best float64, history []sweeper.Trial) {
	t.Helper()
	s, err := New(name, opt, f.dims)
	if err != nil {
		t.Fatal(err)
	}
	best = math.Inf(1)
	for i := range n {
		params, err := s.Next(history)
		if err != nil {
			t.Fatal(err)
		}
		value := f.f(numbers(t, params))
		best = math.Min(best, value)
		history = append(history, sweeper.Trial{Number: i, Params: params, State: launcher.Done, Losses: []float64{value}})
	}
	return best, history
}

func numbers(t testing.TB, params []string) []float64 {
	t.Helper()
	x := make([]float64, len(params))
	for i, p := range params {
		var err error
		if x[i], err = strconv.ParseFloat(p, 64); err != nil {
			t.Fatal(err)
		}
	}
	return x
}

func seeded(seed int64) sweeper.Options {
	opt := sweeper.DefaultOptions()
	opt.Seed = &seed
	return opt
}
