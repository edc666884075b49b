package search

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"fulcrum/configs"
	"fulcrum/experiments/sweep/launcher"
	"fulcrum/experiments/sweep/sweeper"
)

// The estimator is a density: its integral is 1, and points drawn from it are where it says.
func TestParzenIsADensity(t *testing.T) {
	dims := []configs.Dimension{{Key: "x", Low: 0, High: 1}, {Key: "c", Choices: []string{"a", "b", "c"}}}
	s, err := newSpace(dims)
	if err != nil {
		t.Fatal(err)
	}
	for name, points := range map[string][][]float64{
		"no observation":   nil,
		"one":              {{0.2, 1. / 6}},
		"several":          {{0.2, 1. / 6}, {0.25, 1. / 6}, {0.99, 5. / 6}, {0, 0.5}, {1, 0.5}},
		"more than 25 age": slices.Repeat([][]float64{{0.3, 1. / 6}, {0.8, 0.5}}, 30),
	} {
		t.Run(name, func(t *testing.T) {
			p := newParzen(s.axes, points)
			const cells, draws = 50, 20000
			var mass [3][10]float64
			total := 0.0
			for c := range 3 {
				for i := range 10 * cells {
					x := (float64(i) + 0.5) / (10 * cells)
					m := math.Exp(p.logDensity([]float64{x, (float64(c) + 0.5) / 3})) / (10 * cells)
					mass[c][i/cells] += m
					total += m
				}
			}
			if math.Abs(total-1) > 1e-3 {
				t.Errorf("the density sums to %.5f", total)
			}
			random := rand.New(rand.NewPCG(1, 2))
			var counts [3][10]float64
			for range draws {
				u := p.draw(random)
				if u[0] < 0 || u[0] > 1 || u[1] < 0 || u[1] >= 1 {
					t.Fatalf("drew %v", u)
				}
				counts[s.axes[1].index(u[1])][min(int(u[0]*10), 9)]++
			}
			for c := range counts {
				for i, got := range counts[c] {
					want := mass[c][i] * draws
					if math.Abs(got-want) > 5*math.Sqrt(want)+5 {
						t.Errorf("choice %d, x around %.2f: drew %.0f, the density says %.1f", c, float64(i)/10+0.05, got, want)
					}
				}
			}
		})
	}
}

// Optuna's default weights: of 30 observations the newest 25 count fully, the others rise from 1/30 on.
func TestRecency(t *testing.T) {
	if got := recency(0, 25); got != 1 {
		t.Errorf("the first of 25 weighs %g", got)
	}
	got := []float64{recency(0, 30), recency(4, 30), recency(5, 30), recency(29, 30), recency(0, 26), recency(1, 26)}
	want := []float64{1. / 30, 1, 1, 1, 1. / 26, 1}
	for i := range want {
		if math.Abs(got[i]-want[i]) > 1e-12 {
			t.Errorf("weights %v, want %v", got, want)
			break
		}
	}
}

// CMA-ES is one: it converges on ill-conditioned and curved functions that no axis is aligned with, linearly, in as
// many evaluations as the literature needs.
func TestCMAESConverges(t *testing.T) {
	rotated := func(x []float64) []float64 { // by Hadamard's matrix
		h := [4][4]float64{{1, 1, 1, 1}, {1, -1, 1, -1}, {1, 1, -1, -1}, {1, -1, -1, 1}}
		y := make([]float64, 4)
		for i := range y {
			for j := range x {
				y[i] += h[i][j] / 2 * (x[j] - 0.3)
			}
		}
		return y
	}
	for _, tc := range []struct {
		name  string
		f     func(x []float64) float64
		evals int
		below float64
	}{
		{"sphere", func(x []float64) float64 { return sq(x[0]-1) + sq(x[1]) + sq(x[2]+1) + sq(x[3]-2) }, 600, 1e-8},
		{"rotated ellipsoid, condition 10⁴", func(x []float64) float64 {
			y := rotated(x)
			return sq(y[0]) + 21*sq(y[1]) + 464*sq(y[2]) + 1e4*sq(y[3])
		}, 1200, 1e-8},
		{"Rosenbrock", func(x []float64) float64 {
			sum := 0.0
			for i := range 3 {
				sum += 100*sq(x[i+1]-x[i]*x[i]) + sq(1-x[i])
			}
			return sum
		}, 2400, 1e-8},
	} {
		t.Run(tc.name, func(t *testing.T) {
			best := math.Inf(1)
			d, random := newGaussian(4, 8, 0.3), rand.New(rand.NewPCG(1, 2))
			for range tc.evals / 8 {
				if err := d.decompose(); err != nil {
					t.Fatal(err)
				}
				type tried struct{ point, x []float64 }
				var generation []tried
				for range 8 {
					z := make([]float64, 4)
					for i := range z {
						z[i] = random.NormFloat64()
					}
					point, x := d.outOf(z), make([]float64, 4)
					for i := range point {
						point[i] = d.mean[i] + d.sigma*point[i]
						x[i] = -2 + 5*point[i]
					}
					generation = append(generation, tried{point, x})
					best = min(best, tc.f(x))
				}
				slices.SortFunc(generation, func(a, b tried) int { return cmp.Compare(tc.f(a.x), tc.f(b.x)) })
				var points [][]float64
				for _, g := range generation {
					points = append(points, g.point)
				}
				if err := d.update(points); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("%.3g after %d evaluations", best, tc.evals)
			if best > tc.below {
				t.Errorf("%.3g after %d evaluations, want below %g", best, tc.evals, tc.below)
			}
		})
	}
}

// The parameters that the tutorial's table 1 gives for n = 10, λ = 10, without negative weights.
func TestCMAESParameters(t *testing.T) {
	d := newGaussian(10, 10, 0.3)
	for _, p := range []struct {
		name      string
		got, want float64
	}{
		{"μ_eff", d.muEff, 3.167299}, {"c_σ", d.cSigma, 0.284429}, {"d_σ", d.dSigma, 1.284429}, {"c_c", d.cc, 0.294990}, {"c_1",
			d.c1, 0.0152838}, {"c_μ", d.cmu, 0.0201543}, {"E‖N(0,I)‖", d.chi, 3.084727},
	} {
		if math.Abs(p.got-p.want) > 2e-6*math.Max(1, p.want) {
			t.Errorf("%s = %.7g, want %.7g", p.name, p.got, p.want)
		}
	}
}

// With trials in flight CMA-ES draws from the last distribution that is known, and goes on once they have ended,
// in whatever order.
func TestCMAESInFlight(t *testing.T) {
	f := functions()[0]
	s, err := New("cmaes", seeded(2), f.dims) // 8 trials in a generation
	if err != nil {
		t.Fatal(err)
	}
	var history []sweeper.Trial
	best := math.Inf(1)
	for i := range 96 {
		params, err := s.Next(history)
		if err != nil {
			t.Fatal(err)
		}
		history = append(history, sweeper.Trial{Number: i, Params: params, State: launcher.Running})
		if i >= 3 { // four at a time; the newest of them but one ends first
			j := i - 1
			if i%2 == 0 {
				j = i - 3
			}
			for _, k := range []int{j, i - 3} {
				value := f.f(numbers(t, history[k].Params))
				history[k].State, history[k].Losses = launcher.Done, []float64{value}
				best = min(best, value)
			}
		}
	}
	if best > 0.01 {
		t.Errorf("best %.4g after 96 trials, four at a time: want at most 0.01", best)
	}
}

func TestRanked(t *testing.T) {
	trial := func(number int, state string, violation float64, losses ...float64) sweeper.Trial {
		return sweeper.Trial{Number: number, State: state, Violation: violation, Losses: losses}
	}
	order := func(trials []sweeper.Trial) []int {
		var out []int
		for _, t := range trials {
			out = append(out, t.Number)
		}
		return out
	}
	for _, tc := range []struct {
		name    string
		history []sweeper.Trial
		want    []int
		front   []int
	}{
		{"less is better, ties to the earlier, NaN last", []sweeper.Trial{
			trial(3, launcher.Done, 0, 1), trial(0, launcher.Done, 0, 2), trial(1, launcher.Done, 0, math.NaN()), trial(2,
				launcher.Done, 0, 1), trial(4, launcher.Done, 0, math.Inf(1)),
		}, []int{2, 3, 0, 1, 4}, []int{2, 3}},
		{"a pruned trial counts with its value, others without a result don't", []sweeper.Trial{
			trial(0, launcher.Done, 0, 2), trial(1, launcher.Pruned, 0, 1), trial(2, launcher.Failed, 0), trial(3, launcher.Running,
				0), trial(4, launcher.Lost, 0),
		}, []int{1, 0}, []int{1}},
		{"feasible before violating, those by how much", []sweeper.Trial{
			trial(0, launcher.Done, 0.5, 0), trial(1, launcher.Done, 0, 9), trial(2, launcher.Done, 0.1, 5), trial(3, launcher.Done, math.NaN(), 1),
		}, []int{1, 2, 0, 3}, []int{1}},
		{"nothing feasible", []sweeper.Trial{trial(0, launcher.Done, 2, 0), trial(1, launcher.Done, 1, 0)}, []int{1, 0}, nil},
		{"a pruned trial of two objectives, which is cheap for that, behind those done", []sweeper.Trial{
			trial(0, launcher.Pruned, 0, 3, 1), trial(1, launcher.Done, 0, 2, 10), trial(2, launcher.Pruned, 0, 2, 1),
			trial(3, launcher.Done, 0, 3, 20),
		}, []int{1, 3, 2, 0}, []int{2}},
		{"two objectives: fronts, the lonely first", []sweeper.Trial{
			trial(0, launcher.Done, 0, 0, 10), trial(1, launcher.Done, 0, 5, 5), trial(2, launcher.Done, 0, 10, 0), trial(3, launcher.Done, 0, 6, 6),
			trial(4, launcher.Done, 0, 4.9, 5.2), trial(5, launcher.Done, 0, 7, 7), trial(6, launcher.Done, 0, 1, 8),
		}, []int{0, 2, 4, 1, 6, 3, 5}, []int{0, 1, 2, 4, 6}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := order(ranked(tc.history))
			if tc.name[:3] == "two" { // inside the first front only its ends are sure to come first
				if !slices.Equal(got[:2], tc.want[:2]) || !slices.Equal(got[5:], tc.want[5:]) {
					t.Errorf("order %v, want %v", got, tc.want)
				}
			} else if !slices.Equal(got, tc.want) {
				t.Errorf("order %v, want %v", got, tc.want)
			}
			if front := order(firstFront(tc.history)); !slices.Equal(front, tc.front) {
				t.Errorf("front %v, want %v", front, tc.front)
			}
		})
	}
}

func TestCrowding(t *testing.T) {
	front := []sweeper.Trial{{Losses: []float64{0, 10}}, {Losses: []float64{2, 6}}, {Losses: []float64{4, 4}}, {Losses: []float64{10, 0}}}
	want := []float64{math.Inf(1), 0.4 + 0.6, 0.8 + 0.6, math.Inf(1)}
	for i, got := range crowding(front) {
		if got != want[i] && math.Abs(got-want[i]) > 1e-12 {
			t.Errorf("crowding distance %d is %g, want %g", i, got, want[i])
		}
	}
}

// firstFront are the feasible trials that no other dominates, by number.
func firstFront(history []sweeper.Trial) []sweeper.Trial {
	var feasible []sweeper.Trial
	for _, t := range byNumber(history) {
		if ended(t) && t.Violation == 0 {
			feasible = append(feasible, t)
		}
	}
	if len(feasible) == 0 {
		return nil
	}
	return fronts(feasible)[0]
}
