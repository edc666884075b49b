package sweeper

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/configs"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
)

func TestParseOnFailure(t *testing.T) {
	for text, want := range map[string]OnFailure{
		"continue": {}, "stop": {Stop: true}, "retry": {Retries: 1}, "retry(2)": {Retries: 2}, "retry:30": {Retries: 30}, " stop ": {Stop: true},
	} {
		if got, err := ParseOnFailure(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "retry()", "retry(0)", "retry(-1)", "retry:x", "retry(2", "retry 2", "abort",
		"retry(99999999999999999999)"} {
		if got, err := ParseOnFailure(text); err == nil {
			t.Errorf("%q: %+v, want an error", text, got)
		}
	}
}

func TestGoals(t *testing.T) {
	for _, tc := range []struct {
		name        string
		objective   any
		direction   any
		constraints []string
		want        Goals
		err         string
	}{
		{"nothing said: the run's own best metric", nil, nil, nil, Goals{Objectives: []Objective{{}}}, ""},
		{"one", "val_loss", "maximize", nil, Goals{Objectives: []Objective{{"val_loss", Maximize}}}, ""},
		{"two", []any{"val_reward", "seconds"}, []any{"maximize", "minimize"}, nil,
			Goals{Objectives: []Objective{{"val_reward", Maximize}, {"seconds", Minimize}}}, ""},
		{"constraints", nil, nil, []string{"val_kl <= 0.1", "seconds<60", "eval.dev.best.reward>=1e-2", "val_loss > -1"},
			Goals{Objectives: []Objective{{}}, Constraints: []Constraint{
				{"val_kl", "<=", 0.1}, {"seconds", "<", 60}, {"eval.dev.best.reward", ">=", 0.01}, {"val_loss", ">", -1}}}, ""},
		{"a direction for each", []any{"loss", "kl"}, "minimize", nil, Goals{}, "direction: want one for each of the 2 objectives, got 1"},
		{"a direction that is none", nil, "up", nil, Goals{}, `direction: want minimize or maximize, got "up"`},
		{"an objective that is no name", 3, nil, nil, Goals{}, "objective: want a metric's name, a list of names, or null, got 3"},
		{"an empty list", []any{}, nil, nil, Goals{}, "objective: want a metric's name"},
		{"twice the same", []any{"kl", "kl"}, nil, nil, Goals{}, "objective: kl is named twice"},
		{"an objective that no run has", "val_los", nil, nil, Goals{}, `objective: unknown metric "val_los" (did you mean val_loss?)`},
		{"an objective that is text", "event", nil, nil, Goals{}, `objective: unknown metric "event": want one of accuracy, advantage_clipped, `},
		{"an objective that is true or false", "kl_beta_at_bound", nil, nil, Goals{}, `objective: unknown metric "kl_beta_at_bound"`},
		{"the reward of no evaluation", "reward", nil, nil, Goals{}, `objective: unknown metric "reward"`},
		{"a constraint on text", nil, nil, []string{"policy <= 1"}, Goals{}, `constraints.0: unknown metric "policy"`},
		{"an evaluation cut short", "eval.dev", nil, nil, Goals{}, `objective: unknown metric "eval.dev"`},
		{"a constraint that no run has", nil, nil, []string{"val_kk < 1"}, Goals{},
			`constraints.0: unknown metric "val_kk" (did you mean val_kl?)`},
		{"a constraint without a number", nil, nil, []string{"val_kl <= much"}, Goals{}, `constraints.0: want a number behind <=, got "much"`},
		{"a constraint without an operator", nil, nil, []string{"val_kl <= 1", "val_kl = 0.1"}, Goals{},
			"constraints.1: want a metric, <=, <, >= or >, and a number"},
		{"a bound that is no number", nil, nil, []string{"val_kl <= nan"}, Goals{}, "constraints.0: want a number"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			opt := DefaultOptions()
			opt.Objective, opt.Direction, opt.Constraints = tc.objective, tc.direction, tc.constraints
			got, err := opt.Goals()
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || opt.Validate() == nil {
					t.Errorf("\n got %v\nwant %s", err, tc.err)
				}
				return
			}
			if err != nil || !slices.Equal(got.Objectives, tc.want.Objectives) || !slices.Equal(got.Constraints, tc.want.Constraints) {
				t.Errorf("got %+v, %v; want %+v", got, err, tc.want)
			}
		})
	}
}

func TestExcess(t *testing.T) {
	for _, tc := range []struct {
		op    string
		value float64
		want  float64
	}{
		{"<=", 1.5, 0.5}, {"<=", 1, 0}, {"<=", 0, 0}, {"<", 1, smallest}, {"<", 0.9, 0}, {">=", 0.25, 0.75}, {">=", 1, 0}, {">",
			1, smallest}, {">", 2, 0},
		{"<=", math.NaN(), worst}, {">", math.NaN(), worst},
	} {
		if got := (Constraint{"m", tc.op, 1}).Excess(tc.value); got != tc.want {
			t.Errorf("%g %s 1 is violated by %g, want %g", tc.value, tc.op, got, tc.want)
		}
	}
}

func TestDirections(t *testing.T) {
	for name, falls := range map[string]bool{
		"val_loss": true, "loss": true, "ppo_loss": true, "val_kl": true, "kl": true, "seconds": true, "step_seconds": true,
		"eval.dev.best.loss": true,
		"val_reward":         false, "val_accuracy": false, "entropy": false, "eval.dev.best": false, "eval.dev.best.reward": false,
	} {
		if got := (Objective{Name: name}).Minimizes(!falls); got != falls {
			t.Errorf("%s: minimizes %v, want %v", name, got, falls)
		}
		if got := (Objective{Name: name, Goal: Maximize}).Minimizes(falls); got {
			t.Errorf("%s is minimized although the options say maximize", name)
		}
	}
	if !(Objective{}).Minimizes(true) || (Objective{}).Minimizes(false) {
		t.Error("the run's own direction does not count")
	}
}

func TestPrunerNeedsAnEpochMetric(t *testing.T) {
	opt := DefaultOptions()
	opt.Objective, opt.Pruner.Name = []any{"seconds", "val_loss"}, "asha"
	if err := opt.Validate(); err == nil || !strings.Contains(err.Error(),
		"pruner.name: asha judges runs by a metric of their epochs, and the first objective, seconds, is none") {
		t.Errorf("got %v", err)
	}
	opt.Objective = []any{"val_loss", "seconds"}
	if err := opt.Validate(); err != nil {
		t.Error(err)
	}
}

// compose composes our own tree with overrides and resolves its sweeper.
func compose(t *testing.T, overrides ...string) (string, Options, error) {
	t.Helper()
	c, err := configs.Compose(configs.Request{Library: configs.Library(), Overrides: overrides, Multirun: true})
	if err != nil {
		t.Fatal(err)
	}
	return Resolve(c.Choice("hydra/sweeper"), c.Choice("hydra/sweeper/sampler"), func(dst any) error { return c.DecodeHydra("sweeper", dst) })
}

func TestResolve(t *testing.T) {
	for _, tc := range []struct {
		overrides string
		name      string
		check     func(o Options) bool
		err       string
	}{
		{"", "basic", func(o Options) bool {
			return o.NTrials == 20 && o.NJobs == 1 && *o.Seed == 0 && o.MaxBatchSize == nil && o.Pruner.Name == "none"
		}, ""},
		{"hydra.sweeper.max_batch_size=3 hydra.sweeper.objective=val_kl", "basic",
			func(o Options) bool { return *o.MaxBatchSize == 3 && o.Objective == "val_kl" }, ""},
		{"hydra/sweeper=tpe hydra.sweeper.n_trials=40 hydra.sweeper.n_startup_trials=7 hydra.sweeper.on_failure=retry:2", "tpe",
			func(o Options) bool { return o.NTrials == 40 && *o.Startup == 7 && o.OnFailure == "retry:2" }, ""},
		{"hydra/sweeper=cmaes hydra.sweeper.population_size=6 +hydra.sweeper.params.a=1", "cmaes",
			func(o Options) bool { return *o.Population == 6 && o.Sigma0 == 0.3 }, ""},
		{"hydra/sweeper=optuna hydra/sweeper/sampler=qmc +hydra.sweeper.sampler.scramble=false", "sobol",
			func(o Options) bool { return !o.Scramble }, ""},
		{"hydra/sweeper=nsgaii hydra.sweeper.objective=[val_reward,seconds]", "nsgaii",
			func(o Options) bool { return len(o.Objective.([]any)) == 2 }, ""},
		{"hydra/sweeper=random hydra.sweeper.pruner.name=asha hydra.sweeper.pruner.reduction_factor=4", "random",
			func(o Options) bool { return o.Pruner.Active() && o.Pruner.ReductionFactor == 4 }, ""},
		{"hydra/sweeper=optuna", "tpe", func(o Options) bool { return o.Direction == nil }, ""},
		{"hydra/sweeper=optuna hydra/sweeper/sampler=qmc hydra.sweeper.sampler.seed=9 hydra.sweeper.direction=maximize", "sobol",
			func(o Options) bool { return *o.Seed == 9 && o.Direction == "maximize" }, ""},
		{"hydra/sweeper=optuna hydra/sweeper/sampler=tpe +hydra.sweeper.sampler.n_startup_trials=4 " +
			"+hydra.sweeper.sampler.n_ei_candidates=5", "tpe", func(o Options) bool { return *o.Startup == 4 && o.Candidates == 5 }, ""},
		{"hydra/sweeper=optuna hydra/sweeper/sampler=grid", "basic", func(Options) bool { return true }, ""},
		{"hydra/sweeper=optuna hydra/sweeper/sampler=nsgaii", "nsgaii", func(Options) bool { return true }, ""},
		{"hydra/sweeper=optuna hydra/sweeper/sampler=gp", "", nil,
			"hydra/sweeper/sampler=gp: not supported; the nearest is hydra/sweeper/sampler=tpe"},
		{"hydra/sweeper=optuna hydra.sweeper.sampler._target_=optuna.samplers.TPESampler", "tpe", func(Options) bool { return true }, ""},
		{"hydra/sweeper=optuna hydra/sweeper/sampler=cmaes hydra.sweeper.sampler._target_=optuna.samplers.CmaEsSampler", "cmaes",
			func(Options) bool { return true }, ""},
		{"hydra/sweeper=optuna hydra.sweeper.sampler._target_=null", "tpe", func(Options) bool { return true }, ""},
		{"hydra/sweeper=optuna hydra.sweeper.sampler._target_=optuna.samplers.CmaEsSampler", "", nil,
			"hydra.sweeper.sampler._target_=optuna.samplers.CmaEsSampler: the option chooses the sampler, and " +
				"hydra/sweeper/sampler=tpe is chosen: want hydra/sweeper/sampler=cmaes"},
		{"hydra/sweeper=optuna hydra/sweeper/sampler=qmc hydra.sweeper.sampler._target_=optuna.samplers.tpe", "", nil,
			"want hydra/sweeper/sampler=tpe"},
		{"hydra/sweeper=optuna hydra.sweeper.sampler._target_=my.Sampler", "", nil,
			"hydra.sweeper.sampler._target_=my.Sampler: no such sampler here: choose one by hydra/sweeper/sampler=cmaes|grid|nsgaii|qmc|random|tpe"},
		{"hydra/sweeper=optuna hydra.sweeper.storage=sqlite:///a.db", "", nil,
			"hydra.sweeper.storage=sqlite:///a.db: not supported: the sweep's own ledger"},
		{"hydra/sweeper=optuna hydra.sweeper.study_name=mine", "", nil, "not supported: a sweep is named by its folder"},
		{"hydra/sweeper=optuna hydra.sweeper.custom_search_space=a.b", "", nil, "not supported: write the ranges on the command line"},
		{"hydra/sweeper=optuna +hydra.sweeper.sampler.multivariate=true", "", nil, "unknown key hydra.sweeper.sampler.multivariate"},
		{"hydra.sweeper.on_failure=retry:0", "", nil, "hydra.sweeper.on_failure=retry:0: want from 1 to 1000 retries"},
		{"hydra.sweeper.direction=up", "", nil, `hydra.sweeper.direction=up: want minimize or maximize, got "up"`},
		{"hydra.sweeper.pruner.name=hyperband", "", nil, "want one of none, asha, median, got hyperband"},
		{"hydra.sweeper.pruner.name=asha hydra.sweeper.objective=seconds", "", nil, "asha judges runs by a metric of their epochs"},
		{"hydra/sweeper=tpe +hydra.sweeper.n_trails=4", "", nil, "unknown key hydra.sweeper.n_trails (did you mean hydra.sweeper.n_trials?)"},
		{"hydra.sweeper.max_failure_rate=2", "", nil, "want a number in [0, 1], got 2"},
	} {
		t.Run(tc.overrides, func(t *testing.T) {
			name, opt, err := compose(t, strings.Fields(tc.overrides)...)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("\n got %v\nwant %s", err, tc.err)
				}
				return
			}
			if err != nil || name != tc.name || !tc.check(opt) {
				t.Errorf("%s, %+v, %v", name, opt, err)
			}
		})
	}
}

// A tree of the user's own keeps exactly the node that Hydra has.
func TestForeignTreeHasHydrasNode(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte("a: 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := configs.Compose(configs.Request{ConfigPath: dir})
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.YAML("hydra", false, "hydra.sweeper")
	want := "# @package hydra.sweeper\n_target_: hydra._internal.core_plugins.basic_sweeper.BasicSweeper\nmax_batch_size: null\nparams: null\n"
	if err != nil || got != want {
		t.Errorf("%v\n got %s\nwant %s", err, got, want)
	}
}

const row = `{"kind":"epoch","phase":"rce","epoch":1,"step":4,"global_step":4,"time":5.0,"loss":2.5,"val_loss":3.0,"val_kl":0.2,"val_reward":0.3}
{"kind":"epoch","phase":"grpo","epoch":1,"step":4,"global_step":8,"time":6.0,"loss":0.5,"val_loss":2.0,"val_kl":0.4,"val_reward":"nan"}
{"kind":"eval","phase":"init","epoch":0,"step":0,"global_step":0,"time":4.0,"split":"val","policy":"init","reward":0.1,"loss":9.0,"kl":0}
{"kind":"eval","phase":"grpo","epoch":1,"step":4,"global_step":8,"time":7.0,"split":"dev","policy":"best","reward":0.25,"accuracy":0.5}
`

func runFolder(t *testing.T, state string, best *record.BestSummary) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "metrics.jsonl"), []byte(row), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := results.WriteSummary(dir, record.Summary{State: state, Task: "train", WallSeconds: 12.5, Best: best}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestRead(t *testing.T) {
	grpo := &record.BestSummary{Metric: "val_loss", Mode: "min", Value: 2, Phase: "grpo", Epoch: 1}
	rce := &record.BestSummary{Metric: "val_reward", Mode: "max", Value: 0.3, Phase: "rce", Epoch: 1}
	initial := &record.BestSummary{Metric: "val_loss", Mode: "min", Value: 9, Phase: "init"}
	for _, tc := range []struct {
		name        string
		best        *record.BestSummary
		objective   any
		constraints []string
		names       []string
		losses      []float64
		violation   float64
		err         string
	}{
		{"the run's own", grpo, nil, nil, []string{"val_loss"}, []float64{2}, 0, ""},
		{"the run's own, rising", rce, nil, nil, []string{"val_reward"}, []float64{-0.3}, 0, ""},
		{"another metric of the best epoch", rce, "val_kl", nil, []string{"val_kl"}, []float64{0.2}, 0, ""},
		{"of the initial policy", initial, []any{"val_kl", "val_reward"}, nil, []string{"val_kl", "val_reward"}, []float64{0, -0.1}, 0, ""},
		{"NaN is worst", grpo, "val_reward", nil, []string{"val_reward"}, []float64{math.Inf(1)}, 0, ""},
		{"seconds and an evaluation", grpo, []any{"seconds", "eval.dev.best", "eval.dev.best.accuracy"}, nil,
			[]string{"seconds", "eval.dev.best", "eval.dev.best.accuracy"}, []float64{12.5, -0.25, -0.5}, 0, ""},
		{"constraints add up", grpo, nil, []string{"val_kl <= 0.1", "seconds < 10", "loss < 5"}, []string{"val_loss"},
			[]float64{2}, 0.3 + 2.5, ""},
		{"a metric that this run has not", grpo, "val_accuracy", nil, nil, nil, 0,
			`unknown objective "val_accuracy": want one of eval.dev.best, `},
		{"a constraint on one", grpo, nil, []string{"eval.test.best < 1"}, nil, nil, 0,
			`unknown constraint "eval.test.best" (did you mean eval.dev.best?)`},
		{"nothing measured", nil, nil, nil, nil, nil, 0, "task=train measures nothing that a sweep could optimize"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			opt := DefaultOptions()
			opt.Objective, opt.Constraints = tc.objective, tc.constraints
			goals, err := opt.Goals()
			if err != nil {
				t.Fatal(err)
			}
			dir := runFolder(t, record.StatePruned, tc.best)
			out, err := goals.Read(dir)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || !strings.Contains(err.Error(), dir) {
					t.Errorf("\n got %v\nwant %s", err, tc.err)
				}
				return
			}
			if err != nil || !slices.Equal(out.Names, tc.names) || !slices.Equal(lossesOf(out), tc.losses) ||
				math.Abs(out.Violation-tc.violation) > 1e-12 {
				t.Errorf("%v, losses %v, violation %g, %v; want %v, %v, %g", out.Names, lossesOf(out), out.Violation, err, tc.names,
					tc.losses, tc.violation)
			}
		})
	}
	free := Goals{Objectives: []Objective{{}}, Optional: true}
	if out, err := free.Read(runFolder(t, record.StateDone, nil)); err != nil || len(out.Values) > 0 || out.Metrics["seconds"] != 12.5 {
		t.Errorf("a run without an objective in a grid: %+v, %v", out, err)
	}
	if _, err := (Goals{Objectives: []Objective{{}}}).Read(t.TempDir()); err == nil || !strings.Contains(err.Error(), "no summary.json") {
		t.Errorf("a folder without a run: %v", err)
	}
}

// lossesOf returns the values of an outcome as losses: less is better, NaN is worst.
func lossesOf(o Outcome) []float64 {
	losses := make([]float64, len(o.Values))
	for i, v := range o.Values {
		if !o.Minimize[i] {
			v = -v
		}
		if losses[i] = v; math.IsNaN(v) {
			losses[i] = math.Inf(1)
		}
	}
	return losses
}
