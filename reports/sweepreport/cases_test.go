package sweepreport

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"

	"fulcrum/reports/record"
	"fulcrum/reports/sweeps"
)

// gridSweep is a grid of 3×3 settings with 3 seeds.
func gridSweep(dir string) ([]sweeps.Job, sweeps.Options) {
	rng := rand.New(rand.NewPCG(1, 1))
	opt := sweeps.Options{Title: "okvqa_v3 grid", Objectives: []sweeps.Objective{{Name: "val_reward"}}, Sweeper: "basic", Launcher: "local",
		Dimensions: []sweeps.Dimension{{Key: "grpo.lr", Values: []string{"1e-5", "1e-4", "1e-3"}},
			{Key: "grpo/kl", Values: []string{"fixed", "adaptive", "proportional"}}, {Key: "seed", Values: []string{"0", "1", "2"}}},
		Command: []string{"bin/run", "-m", "exp=okvqa_v3", "grpo.lr=1e-5,1e-4,1e-3", "grpo/kl=fixed,adaptive,proportional",
			"seed=0,1,2"}}
	var jobs []sweeps.Job
	for i, lr := range opt.Dimensions[0].Values {
		for k, kl := range opt.Dimensions[1].Values {
			for s, seed := range opt.Dimensions[2].Values {
				n := len(jobs)
				overrides := []string{"exp=okvqa_v3", "grpo.lr=" + lr, "grpo/kl=" + kl, "seed=" + seed}
				jobs = append(jobs, sweeps.Job{Number: n, Dir: filepath.Join(dir, fmt.Sprint(n)), Overrides: overrides, State: record.StateDone,
					Params:     map[string]string{"grpo.lr": lr, "grpo/kl": kl, "seed": seed},
					Objectives: []float64{0.11 + []float64{0, 0.04, 0.02}[i] + []float64{0, 0.012, 0.004}[k] + 0.005*rng.NormFloat64()},
					Epochs:     14, Seconds: 300 + 40*rng.Float64(), Attempts: 1 + s/2*i/2, Command: append([]string{"bin/run"},
						overrides...)})
			}
		}
	}
	return jobs, opt
}

// tpeSweep is a search over 4 logarithmic intervals and a choice, with pruned and failed jobs.
func tpeSweep(dir string, n int) ([]sweeps.Job, sweeps.Options) {
	rng := rand.New(rand.NewPCG(2, 1))
	opt := sweeps.Options{Title: "search", Objectives: []sweeps.Objective{{Name: "val_reward"}}, Sweeper: "tpe",
		Launcher: "slurm", Pruner: "asha",
		Dimensions: []sweeps.Dimension{{Key: "grpo.lr", Log: true, Interval: true}, {Key: "grpo.kl.beta", Log: true, Interval: true},
			{Key: "grpo.clip.epsilon", Log: true, Interval: true},
			{Key: "optim.weight_decay", Log: true, Interval: true}, {Key: "selector",
				Values: []string{"pointer", "cosine", "additive_attention"}}},
		Command: []string{"bin/run", "-m", "hydra/sweeper=tpe", "grpo.lr=tag(log, interval(1e-6, 1e-2))"}}
	var jobs []sweeps.Job
	best := []float64{-4, -1, -0.7, -3}
	low, high := []float64{-6, -3, -2, -6}, []float64{-2, 1, 0, -1}
	for i := range n {
		p := map[string]string{}
		loss := 0.0
		for k, d := range opt.Dimensions[:4] {
			u := low[k] + (high[k]-low[k])*rng.Float64()
			if i > n/4 && rng.Float64() < 0.7 {
				u = min(max(best[k]+0.5*rng.NormFloat64(), low[k]), high[k])
			}
			p[d.Key] = fmt.Sprintf("%.5g", math.Pow(10, u))
			loss += []float64{0.02, 0.008, 0.002, 0.0005}[k] * (u - best[k]) * (u - best[k])
		}
		word := rng.IntN(3)
		p["selector"] = opt.Dimensions[4].Values[word]
		overrides := []string{"exp=okvqa_online"}
		for _, d := range opt.Dimensions {
			overrides = append(overrides, d.Key+"="+p[d.Key])
		}
		j := sweeps.Job{Number: i, Dir: filepath.Join(dir, fmt.Sprint(i)), Overrides: overrides, State: record.StateDone, Params: p, Epochs: 9,
			Seconds: 200 + 30*rng.Float64(), Attempts: 1,
			Objectives: []float64{0.2 - loss - []float64{0, 0.02, 0.005}[word] + 0.003*rng.NormFloat64()},
			Command:    append([]string{"bin/run"}, overrides...)}
		switch {
		case i%13 == 5:
			j.State, j.Objectives, j.ExitCode, j.Epochs, j.Attempts = record.StateFailed, nil, 1, 2, 2
			j.Cause = fmt.Sprintf("grpo epoch 3 step %d: loss is nan: lower grpo.lr", i)
			j.Tail = []string{"grpo  epoch 3/9  step 12/40  loss 0.19", "\x1b[31mrun: " + j.Cause + "\x1b[0m"}
		case i == 20:
			j.State, j.Objectives, j.ExitCode, j.Epochs = record.StateFailed, nil, -1, 1
			j.Cause = "killed by signal 9 (out of memory?)"
		case j.Objectives[0] < 0.165 && i > 8:
			j.State, j.Epochs = record.StatePruned, 1+2*(i%2)
			j.Seconds *= 0.2
		}
		jobs = append(jobs, j)
	}
	return jobs, opt
}

// paretoSweep has two objectives and a constraint.
func paretoSweep(dir string) ([]sweeps.Job, sweeps.Options) {
	rng := rand.New(rand.NewPCG(3, 1))
	opt := sweeps.Options{Title: "reward against KL", Objectives: []sweeps.Objective{{Name: "val_reward"}, {Name: "val_kl", Minimize: true}},
		Constraints: []string{"val_kl <= 1.5"}, Sweeper: "random",
		Dimensions: []sweeps.Dimension{{Key: "grpo.lr", Log: true, Interval: true}, {Key: "grpo.kl.beta",
			Values: []string{"0", "0.01", "0.1", "1"}}, {Key: "grpo.epochs", Interval: true}}}
	var jobs []sweeps.Job
	for i := range 36 {
		lr, beta, epochs := math.Pow(10, -5+2*rng.Float64()), opt.Dimensions[1].Values[rng.IntN(4)], 2+rng.IntN(9)
		b := map[string]float64{"0": 0, "0.01": 0.3, "0.1": 0.8, "1": 2}[beta]
		kl := math.Exp(math.Log(lr)/2+5.5-b+0.1*float64(epochs)) * (0.8 + 0.4*rng.Float64())
		p := map[string]string{"grpo.lr": fmt.Sprintf("%.6g", lr), "grpo.kl.beta": beta, "grpo.epochs": fmt.Sprint(epochs)}
		overrides := []string{"grpo.lr=" + p["grpo.lr"], "grpo.kl.beta=" + beta, "grpo.epochs=" + p["grpo.epochs"]}
		jobs = append(jobs, sweeps.Job{Number: i, Dir: filepath.Join(dir, fmt.Sprint(i)), Overrides: overrides, State: record.StateDone,
			Params: p, Epochs: epochs, Seconds: 60,
			Objectives: []float64{0.25*(1-math.Exp(-kl)) + 0.012*rng.NormFloat64() - 0.02*kl, kl}, Violation: max(0, kl-1.5),
			Command: append([]string{"bin/run"}, overrides...)})
	}
	return jobs, opt
}

// sweepCase is a synthetic sweep.
type sweepCase struct {
	name  string
	jobs  []sweeps.Job
	opt   sweeps.Options
	plots string // that must be drawn
}

// simple makes a job per row of values of the keys, judged by objective; a NaN is a failed job.
func simple(keys []string, rows [][]string, objective func(i int) float64) []sweeps.Job {
	var jobs []sweeps.Job
	for i, row := range rows {
		j := sweeps.Job{Number: i, State: record.StateDone, Params: map[string]string{}, Epochs: 3, Seconds: 10, Attempts: 1}
		for k, key := range keys {
			j.Params[key] = row[k]
			j.Overrides = append(j.Overrides, key+"="+row[k])
		}
		j.Command = append([]string{"run"}, j.Overrides...)
		if y := objective(i); math.IsNaN(y) {
			j.State, j.ExitCode, j.Cause = record.StateFailed, 1, "out of luck"
		} else {
			j.Objectives = []float64{y}
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// column makes rows of one value each.
func column(values ...string) [][]string {
	var rows [][]string
	for _, v := range values {
		rows = append(rows, []string{v})
	}
	return rows
}

// sweepCases are sweeps with something odd about them.
func sweepCases() []sweepCase {
	reward := []sweeps.Objective{{Name: "val_reward"}}
	loss := []sweeps.Objective{{Name: "val_loss", Minimize: true}}
	rng := rand.New(rand.NewPCG(9, 1))
	noise := func(i int) float64 { return 0.1 + 0.01*rng.NormFloat64() }
	nan := func(int) float64 { return math.NaN() }

	var longKeys []string
	for i := range 12 {
		longKeys = append(longKeys, fmt.Sprintf("section_%d.a_rather_long_subsection.setting_with_a_long_name_%d", i, i))
	}
	var longRows, wide [][]string
	for range 60 {
		var row []string
		for i := range 12 {
			switch i % 3 {
			case 0:
				row = append(row, fmt.Sprint(math.Pow(10, -8+4*rng.Float64())))
			case 1:
				row = append(row, []string{"a_word_of_some_length", "'two words'", "null", "true"}[rng.IntN(4)])
			default:
				row = append(row, fmt.Sprint(rng.IntN(100000)))
			}
		}
		longRows = append(longRows, row)
	}
	for i := range 40 {
		wide = append(wide, []string{fmt.Sprintf("variant_number_%d", i)})
	}

	pruned := simple([]string{"lr"}, column("1e-3", "2e-3", "3e-3"), noise)
	for i := range pruned {
		pruned[i].State = record.StatePruned
	}
	waiting := simple([]string{"lr"}, column("1", "2", "3", "4", "5"), noise)
	for i, state := range []string{sweeps.StateQueued, sweeps.StateRunning, sweeps.StateLost, record.StateInterrupted} {
		waiting[i].State, waiting[i].Objectives = state, nil
	}
	infeasible := simple([]string{"lr"}, column("1", "2", "3"), noise)
	for i := range infeasible {
		infeasible[i].Violation = float64(3 - i)
	}
	three := simple([]string{"lr", "beta"}, [][]string{{"1e-3", "1"}, {"1e-4", "2"}, {"1e-5", "3"}, {"1e-4", "4"}, {"1e-5", "5"}}, noise)
	for i := range three {
		three[i].Objectives = append(three[i].Objectives, float64(i*i%5), math.Pow(10, float64(i)))
	}
	missing := simple([]string{"a", "b"}, [][]string{{"1", "x"}, {"2", "y"}, {"3", "x"}, {"4", "y"}}, noise)
	delete(missing[1].Params, "b")
	delete(missing[2].Params, "a")
	broken := simple([]string{"lr"}, column("1", "2", "3"), func(i int) float64 { return []float64{0.1, 0.2, 0.3}[i] })
	broken[0].Objectives[0], broken[1].Objectives[0] = math.NaN(), math.Inf(1)
	odd := simple([]string{"text"}, column("'a|b'", "`x`", "[1,2]", "{a:1}", "'<b>'"), noise)

	return []sweepCase{
		{"no jobs", nil, sweeps.Options{}, ""},
		{"one job", simple([]string{"lr"}, column("1e-3"), noise), sweeps.Options{Objectives: reward}, ""},
		{"no swept key", simple(nil, [][]string{nil, nil, nil}, noise), sweeps.Options{Objectives: reward}, ""},
		{"seeds only", simple([]string{"seed"}, column("1", "2", "3", "4", "5"), noise), sweeps.Options{Objectives: reward}, "parameters"},
		{"one key", simple([]string{"lr"}, column("0", "1e-5", "1e-4", "1e-3", "0", "1e-5", "1e-4", "1e-3"), noise),
			sweeps.Options{Objectives: reward}, "parameters"},
		{"all failed", simple([]string{"lr"}, column("1", "2", "3"), nan), sweeps.Options{Objectives: reward}, ""},
		{"nothing finite", broken[:2], sweeps.Options{Objectives: reward}, ""},
		{"one finite", broken, sweeps.Options{Objectives: reward}, ""},
		{"equal objectives", simple([]string{"lr"}, column("1", "2", "3", "4", "5", "6", "7", "8"), func(int) float64 { return 0.25 }),
			sweeps.Options{Objectives: reward}, "parameters"},
		{"equal values", simple([]string{"lr"}, column("1", "1", "1"), noise), sweeps.Options{Objectives: reward}, "parameters"},
		{"huge and tiny", simple([]string{"x"}, column("1e-300", "1e-100", "1", "1e100", "1e300", "1e-200"),
			func(i int) float64 { return math.Pow(10, float64(50*i-100)) }), sweeps.Options{Objectives: loss, Sweeper: "random",
			Dimensions: []sweeps.Dimension{{Key: "x", Interval: true}}}, "parameters history"},
		{"largest numbers", simple([]string{"x"}, column("1", "2", "3", "4", "5"), func(i int) float64 { return float64(i-2) * 4e304 }),
			sweeps.Options{Objectives: loss}, "parameters"},
		{"diverged jobs", simple([]string{"x"}, column("1", "2", "3", "4", "5", "6", "7", "8", "9", "10"),
			func(i int) float64 { return []float64{0.30, 0.31, 0.33, 0.29, 0.35, 0.32, -4e6, 0.31, -12, 0.3}[i] }),
			sweeps.Options{Objectives: reward, Sweeper: "sobol", Dimensions: []sweeps.Dimension{{Key: "x", Interval: true}}}, "parameters history"},
		{"long names", simple(longKeys, longRows, func(int) float64 { return 3 + rng.Float64() }),
			sweeps.Options{Objectives: []sweeps.Objective{{Name: "a_metric_with_a_name_that_does_not_fit_beside_a_panel"}}, Sweeper: "cmaes"},
			"parameters history"},
		{"forty words", simple([]string{"exp"}, wide, noise), sweeps.Options{Objectives: reward}, "parameters"},
		{"all pruned", pruned, sweeps.Options{Objectives: reward, Sweeper: "tpe", Pruner: "asha"}, "parameters history"},
		{"not ended", waiting, sweeps.Options{Objectives: reward}, ""},
		{"all infeasible", infeasible, sweeps.Options{Objectives: reward, Constraints: []string{"val_kl <= 1"}}, "parameters"},
		{"three objectives", three, sweeps.Options{Objectives: []sweeps.Objective{{Name: "reward"}, {Name: "kl", Minimize: true},
			{Name: "loss", Minimize: true}}}, "pareto parameters parameters_2 parameters_3"},
		{"missing values", missing, sweeps.Options{Objectives: reward}, "parameters"},
		{"odd text", odd, sweeps.Options{Objectives: []sweeps.Objective{{Name: "a|b_c*"}}, Title: "<x> | `y`"}, "parameters"},
	}
}
