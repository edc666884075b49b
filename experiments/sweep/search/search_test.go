package search

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fulcrum/configs"
	"fulcrum/experiments/sweep/launcher"
	"fulcrum/experiments/sweep/sweeper"
	"fulcrum/internal/registry"
)

// mixed is a space of every kind of axis; numeric leaves the choices out.
func mixed(numeric bool) []configs.Dimension {
	dims := []configs.Dimension{
		decades("lr", 1e-5, 3),
		{Key: "dropout", Low: 0, High: 0.5},
		{Key: "layers", Low: 1, High: 6, Int: true},
		{Key: "batch", Low: 8, High: 512, Int: true, Tags: []string{"log"}},
		{Key: "clip", Choices: []string{"0.1", "0.3", "0.5", "0.7"}, Ordered: true},
		{Key: "width", Choices: []string{"512", "256", "128", "64"}, Ordered: true, Tags: []string{"log"}},
		{Key: "+head", Choices: []string{"cosine", "additive", "bilinear"}},
		{Key: "eps", Choices: []string{"0.1"}},
	}
	if numeric {
		return dims[:6]
	}
	return dims
}

func spaceFor(name string) []configs.Dimension { return mixed(name == "cmaes") }

// allowed checks one value of a proposal against its dimension.
func allowed(d configs.Dimension, text string) error {
	if d.Choices != nil {
		if !slices.Contains(d.Choices, text) {
			return fmt.Errorf("%s=%s: want one of %v", d.Key, text, d.Choices)
		}
		return nil
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || x < d.Low || x > d.High {
		return fmt.Errorf("%s=%s: want a number from %g to %g", d.Key, text, d.Low, d.High)
	}
	if _, err := strconv.Atoi(text); (err == nil) != d.Int {
		return fmt.Errorf("%s=%s: integer %v, want %v", d.Key, text, err == nil, d.Int)
	}
	return nil
}

// eventful is a history in which everything happens: failures, prunings, infinities, violated constraints, trials
// that still run.
func eventful(t testing.TB, s sweeper.Sweeper, n, objectives int, random *rand.Rand, dims []configs.Dimension) []sweeper.Trial {
	t.Helper()
	var history []sweeper.Trial
	for i := range n {
		params, err := s.Next(history)
		if err != nil {
			t.Fatal(err)
		}
		if len(params) != len(dims) {
			t.Fatalf("trial %d has %d parameters, want %d", i, len(params), len(dims))
		}
		for k, d := range dims {
			if err := allowed(d, params[k]); err != nil {
				t.Fatalf("trial %d: %v", i, err)
			}
		}
		trial := sweeper.Trial{Number: i, Params: params, State: launcher.Done}
		for range objectives {
			trial.Losses = append(trial.Losses, random.NormFloat64())
		}
		switch random.IntN(10) {
		case 0:
			trial.State, trial.Losses = launcher.Failed, nil
		case 1:
			trial.State = launcher.Pruned
		case 2:
			trial.State, trial.Losses = launcher.Running, nil
		case 3:
			trial.Violation = random.Float64()
		case 4:
			trial.Losses[0] = []float64{math.NaN(), math.Inf(1), math.Inf(-1)}[random.IntN(3)]
		}
		history = append(history, trial)
	}
	return history
}

// withToy is the table with one sweeper more.
func withToy() *registry.Table[maker] {
	t := table()
	t.Add("toy", newToy)
	return t
}

// Every sweeper proposes values of the space and nothing else, whatever happened before; the same options and
// history give the same proposal, in whatever order the history comes and however often it is asked; another
// seed gives another.
func TestConformance(t *testing.T) {
	if len(withToy().Names()) < 6 {
		t.Fatalf("sweepers: %v", withToy().Names())
	}
	for _, name := range withToy().Names() {
		t.Run(name, func(t *testing.T) {
			dims := spaceFor(name)
			for seed := range int64(5) {
				random := rand.New(rand.NewPCG(uint64(seed), 1))
				s, err := newFrom(withToy(), name, seeded(seed), dims)
				if err != nil {
					t.Fatal(err)
				}
				history := eventful(t, s, 70, 1, random, dims)
				for _, n := range []int{0, 1, 9, 10, 23, 70} {
					want, err := s.Next(history[:n])
					if err != nil {
						t.Fatal(err)
					}
					shuffled := slices.Clone(history[:n])
					random.Shuffle(n, func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
					again, err := newFrom(withToy(), name, seeded(seed), dims)
					if err != nil {
						t.Fatal(err)
					}
					before := fmt.Sprint(shuffled)
					got, err := again.Next(shuffled)
					if fmt.Sprint(shuffled) != before {
						t.Errorf("the history that it was given is changed")
					}
					if err != nil || !slices.Equal(got, want) {
						t.Errorf("after %d trials in another order: %v (%v), want %v", n, got, err, want)
					}
					other, err := newFrom(withToy(), name, seeded(seed+100), dims)
					if err != nil {
						t.Fatal(err)
					}
					if got, err := other.Next(history[:n]); err != nil || slices.Equal(got, want) {
						t.Errorf("after %d trials another seed proposes the same %v (%v)", n, got, err)
					}
				}
			}
		})
	}
}

// With nothing but failures, or nothing but running trials, there is still a next trial.
func TestNothingToLearnFrom(t *testing.T) {
	for _, name := range withToy().Names() {
		for _, state := range []string{launcher.Failed, launcher.Running, launcher.Queued, launcher.Lost} {
			t.Run(name+" "+state, func(t *testing.T) {
				s, err := newFrom(withToy(), name, sweeper.DefaultOptions(), spaceFor(name))
				if err != nil {
					t.Fatal(err)
				}
				var history []sweeper.Trial
				for i := range 40 {
					params, err := s.Next(history)
					if err != nil {
						t.Fatal(err)
					}
					history = append(history, sweeper.Trial{Number: i, Params: params, State: state})
				}
				if got := len(tried(history)); got < 38 {
					t.Errorf("%d different trials of 40", got)
				}
			})
		}
	}
}

// Runs are deterministic: what was tried is not proposed again while there is anything else.
func TestSmallSpacesAreExhausted(t *testing.T) {
	dims := []configs.Dimension{{Key: "a", Choices: []string{"1", "2", "3"}, Ordered: true}, {Key: "b", Low: 1, High: 4, Int: true}}
	for _, name := range withToy().Names() {
		t.Run(name, func(t *testing.T) {
			s, err := newFrom(withToy(), name, sweeper.DefaultOptions(), dims)
			if err != nil {
				t.Fatal(err)
			}
			var history []sweeper.Trial
			for i := range 14 { // two more than there are points
				params, err := s.Next(history)
				if err != nil {
					t.Fatal(err)
				}
				history = append(history, sweeper.Trial{Number: i, Params: params, State: launcher.Done, Losses: []float64{float64(i % 5)}})
			}
			want := 12
			if name == "tpe" || name == "cmaes" || name == "nsgaii" {
				want = 9 // they stay near the best, and look no further than their candidates
			}
			if got := len(tried(history)); got < want {
				t.Errorf("%d different points of 12 in 14 trials, want at least %d", got, want)
			}
		})
	}
}

// The optimizers beat random search in the mean over 12 seeds, on every function.
func TestBeatsRandom(t *testing.T) {
	const seeds, trials = 12, 40
	for _, f := range functions() {
		random := make([]float64, seeds)
		for i := range random {
			random[i], _ = minimize(t, "random", seeded(int64(i)), f, trials)
		}
		for _, tc := range []struct {
			name string
			wins int // seeds of 12 that end better; by chance 6
		}{{"tpe", 8}, {"cmaes", 5}} {
			t.Run(f.name+" "+tc.name, func(t *testing.T) {
				own, theirs, wins := 0.0, 0.0, 0
				for i := range random {
					best, _ := minimize(t, tc.name, seeded(int64(i)), f, trials)
					own, theirs = own+best/seeds, theirs+random[i]/seeds
					if best < random[i] {
						wins++
					}
				}
				t.Logf("mean %.4g, random %.4g, better in %d of %d seeds", own, theirs, wins, seeds)
				if wins < tc.wins || own >= theirs && !(tc.name == "cmaes" && f.name == "branin") { // three basins: CMA-ES picks one
					t.Errorf("mean %.4g, random %.4g, better in %d of %d seeds, want at least %d", own, theirs, wins, seeds, tc.wins)
				}
			})
		}
	}
}

// The first proposals of a seed stay what they are: a change here changes every sweep that is going on.
func TestProposalsAreStable(t *testing.T) {
	f := functions()[0]
	for name, want := range map[string]string{
		"random": "0.00616159 0.00285229 5.72184 3.72812 | 0.00167781 0.000755071 0.0165839 0.282184",
		"sobol":  "0.00067797 0.000142405 2.41637 0.0399091 | 8.37397e-05 0.00012233 0.273534 0.158402",
		"tpe":    "0.00067797 0.000142405 2.41637 0.0399091 | 0.00210478 0.00103098 0.0113255 0.0513642",
		"cmaes":  "0.000208404 0.0577819 0.0258581 0.0666825 | 0.00151756 0.00185861 0.0301573 0.090722",
		"nsgaii": "0.00067797 0.000142405 2.41637 0.0399091 | 1.67485e-05 0.00141123 0.189858 0.281283",
	} {
		_, history := minimize(t, name, seeded(3), f, 31)
		got := strings.Join(history[0].Params, " ") + " | " + strings.Join(history[30].Params, " ")
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
	}
}

// Trials that run at the same time go to different places: TPE counts those that have no result yet as bad.
func TestRunningTrialsSpread(t *testing.T) {
	f := functions()[0]
	_, history := minimize(t, "tpe", seeded(1), f, 30)
	s, err := New("tpe", seeded(1), f.dims)
	if err != nil {
		t.Fatal(err)
	}
	spread := func(state string) float64 { // mean distance of the next eight trials from each other
		h := slices.Clone(history)
		var points [][]float64
		for i := range 8 {
			params, err := s.Next(h)
			if err != nil {
				t.Fatal(err)
			}
			h = append(h, sweeper.Trial{Number: 30 + i, Params: params, State: state, Losses: []float64{0}})
			points = append(points, logs(numbers(t, params), f.dims))
		}
		sum := 0.0
		for i := range points {
			for j := range points {
				for k := range points[i] {
					sum += math.Abs(points[i][k] - points[j][k])
				}
			}
		}
		return sum
	}
	if pending, won := spread(launcher.Running), spread(launcher.Done); pending < 1.2*won {
		t.Errorf("distance between trials that run together %.3g, between trials that are each a new best %.3g: want clearly more", pending, won)
	}
}

// A constraint that rules out the unconstrained optimum moves the search to the border.
func TestConstraints(t *testing.T) {
	f := functions()[0] // sphere around 0.7, 0.3, …
	for name, near := range map[string]float64{"tpe": 0.12, "cmaes": 0.12, "nsgaii": 0.14} {
		t.Run(name, func(t *testing.T) {
			feasible, best := 0, math.Inf(1)
			for seed := range int64(5) {
				s, err := New(name, seeded(seed), f.dims)
				if err != nil {
					t.Fatal(err)
				}
				var history []sweeper.Trial
				for i := range 60 {
					params, err := s.Next(history)
					if err != nil {
						t.Fatal(err)
					}
					x := numbers(t, params)
					over := max(0, logs(x, f.dims)[0]-0.4)
					loss := f.f(x)
					if over == 0 {
						best = min(best, loss)
						if i >= 30 {
							feasible++
						}
					}
					history = append(history, sweeper.Trial{Number: i, Params: params, State: launcher.Done, Losses: []float64{loss}, Violation: over})
				}
			}
			if share := float64(feasible) / 150; share < 0.5 || best > near { // the best feasible value is 0.09; by chance 40 % are feasible
				t.Errorf("%.0f %% of the second half feasible, best %.4g: want at least 50 %% and at most %g", 100*share, best, near)
			}
		})
	}
}

// With two objectives the front that is found covers more than random search's.
func TestTwoObjectives(t *testing.T) {
	f := functions()[0]
	losses := func(x []float64) []float64 {
		u := logs(x, f.dims)
		spread := sq(u[1]-0.3) + sq(u[2]-0.55) + sq(u[3]-0.2)
		return []float64{sq(u[0]-0.2) + spread, sq(u[0]-0.8) + spread}
	}
	area := func(name string) (sum float64) {
		opt := sweeper.DefaultOptions()
		opt.Objective = []any{"val_loss", "val_kl"}
		for seed := range int64(6) {
			opt.Seed = &seed
			s, err := New(name, opt, f.dims)
			if err != nil {
				t.Fatal(err)
			}
			var history []sweeper.Trial
			for i := range 60 {
				params, err := s.Next(history)
				if err != nil {
					t.Fatal(err)
				}
				history = append(history, sweeper.Trial{Number: i, Params: params, State: launcher.Done, Losses: losses(numbers(t, params))})
			}
			front := firstFront(history)
			slices.SortFunc(front, func(a, b sweeper.Trial) int { return int(math.Copysign(1, a.Losses[0]-b.Losses[0])) })
			top := 1.0 // hypervolume below (1, 1)
			for _, p := range front {
				if p.Losses[0] < 1 && p.Losses[1] < top {
					sum += (1 - p.Losses[0]) * (top - p.Losses[1])
					top = p.Losses[1]
				}
			}
		}
		return sum / 6
	}
	random := area("random")
	for _, name := range []string{"tpe", "nsgaii"} {
		if got := area(name); got < random+0.02 {
			t.Errorf("%s covers %.4f, random search %.4f", name, got, random)
		} else {
			t.Logf("%s covers %.4f, random search %.4f", name, got, random)
		}
	}
}

// The YAML library names every sweeper, with the program's own defaults.
func TestLibraryHasEverySweeper(t *testing.T) {
	want := sweeper.DefaultOptions()
	for _, name := range append(table().Names(), sweeper.Basic) {
		c, err := configs.Compose(configs.Request{Library: configs.Library(), Overrides: []string{"hydra/sweeper=" + name}, Multirun: true})
		if err != nil {
			t.Fatal(err)
		}
		got, opt, err := sweeper.Resolve(c.Choice("hydra/sweeper"), "", func(dst any) error { return c.DecodeHydra("sweeper", dst) })
		if err != nil || got != name {
			t.Errorf("hydra/sweeper=%s: %s, %v", name, got, err)
			continue
		}
		if opt.NTrials != want.NTrials || opt.NJobs != want.NJobs || opt.OnFailure != want.OnFailure || opt.Pruner != want.Pruner ||
			opt.Candidates != want.Candidates || opt.Sigma0 != want.Sigma0 || opt.Scramble != want.Scramble || seed(opt) != 0 {
			t.Errorf("hydra/sweeper=%s: %+v, want %+v", name, opt, want)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	interval := configs.Dimension{Key: "lr", Low: 1e-5, High: 1e-2}
	two := sweeper.DefaultOptions()
	two.Objective = []any{"val_loss", "val_kl"}
	many := make([]configs.Dimension, 65)
	for i := range many {
		many[i] = interval
	}
	for _, tc := range []struct {
		name, sweeper string
		opt           sweeper.Options
		dims          []configs.Dimension
		want          string
	}{
		{"an unknown name", "tep", sweeper.DefaultOptions(), mixed(true), `unknown hydra/sweeper "tep" (did you mean tpe?)`},
		{"nothing to sweep", "tpe", sweeper.DefaultOptions(), nil, "hydra/sweeper=tpe: no key is swept: want at least one key=interval(…)"},
		{"choices for CMA-ES", "cmaes", sweeper.DefaultOptions(), mixed(false),
			"hydra/sweeper=cmaes: +head=cosine,additive,bilinear has no order, and this sweeper takes only numbers"},
		{"several objectives for CMA-ES", "cmaes", two, mixed(true),
			"hydra/sweeper=cmaes: takes one objective: for several take hydra/sweeper=tpe"},
		{"log from zero", "random", sweeper.DefaultOptions(), []configs.Dimension{{Key: "wd", High: 1, Tags: []string{"log"}}},
			"wd: tag(log, …) wants an interval above 0, got one from 0"},
		{"log of words", "random", sweeper.DefaultOptions(), []configs.Dimension{{Key: "a", Choices: []string{"x", "y"},
			Tags: []string{"log"}}}, "a: tag(log, …) is for numbers on an axis"},
		{"log range through zero", "random", sweeper.DefaultOptions(),
			[]configs.Dimension{{Key: "a", Choices: []string{"0", "1"}, Ordered: true,
				Tags: []string{"log"}}}, "a: tag(log, …) wants numbers above 0, got 0"},
		{"too many dimensions for Sobol", "sobol", sweeper.DefaultOptions(), many, "65 keys are swept: want at most 64"},
		{"an empty sweep", "random", sweeper.DefaultOptions(), []configs.Dimension{{Key: "a", Choices: []string{}}},
			"a: the sweep has no values"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := New(tc.sweeper, tc.opt, tc.dims); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("\n got %v\nwant %s", err, tc.want)
			}
		})
	}
	for _, name := range []string{"tpe", "cmaes", "nsgaii"} { // the others don't look at where trials were
		s, err := New(name, sweeper.DefaultOptions(), []configs.Dimension{interval})
		if err != nil {
			t.Fatal(err)
		}
		var history []sweeper.Trial
		for i := range 20 {
			history = append(history, sweeper.Trial{Number: i, Params: []string{"0.5"}, State: launcher.Done, Losses: []float64{1}})
		}
		if _, err := s.Next(history); err == nil || !strings.Contains(err.Error(), "lr=0.5 is not in the sweep's interval") {
			t.Errorf("%s: a history of another space: %v", name, err)
		}
	}
}

func ExampleNew() {
	space := []configs.Dimension{{Key: "rce.lr", Low: 1e-5, High: 1e-2, Tags: []string{"log"}},
		{Key: "selector", Choices: []string{"v2", "v3"}}}
	s, err := New("sobol", sweeper.DefaultOptions(), space)
	if err != nil {
		fmt.Println(err)
		return
	}
	var history []sweeper.Trial
	for number := range 3 {
		params, err := s.Next(history)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(params)
		history = append(history, sweeper.Trial{Number: number, Params: params, State: launcher.Done, Losses: []float64{0.5}})
	}
	// Output:
	// [5.871e-05 v3]
	// [0.00610894 v2]
	// [0.000368736 v3]
}
