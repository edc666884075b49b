package phases

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strings"
	"testing"

	"fulcrum/beamdata"
	"fulcrum/internal/golden"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/torchx"
	"fulcrum/phases/doctor"
	"fulcrum/rewardutil/advantage"
	"fulcrum/rewardutil/group"
	"fulcrum/rewardutil/schedule"
	"fulcrum/selector"
	"fulcrum/selector/pointer"
)

func TestMain(m *testing.M) {
	if err := torchx.Load(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// memory is a Recorder that keeps rows as JSON, and can cut a run short.
type memory struct {
	rows, evals, completions []string
	stopAt                   int    // global step after which stop is called; 0 = never
	stopAfter                string // or the row, by how it begins
	stop                     func()
}

func (m *memory) Record(kind, phase string, epoch, step, globalStep int, fields map[string]any) error {
	f := map[string]any{}
	for k, v := range fields {
		if k != "step_seconds" {
			f[k] = v
		}
	}
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	m.rows = append(m.rows, fmt.Sprintf("%s %s %d %d %d %s", kind, phase, epoch, step, globalStep, text))
	if m.stopAt > 0 && kind == "step" && globalStep == m.stopAt {
		m.stop()
	}
	if m.stopAfter != "" && strings.HasPrefix(m.rows[len(m.rows)-1], m.stopAfter) {
		m.stop()
	}
	return nil
}

func (m *memory) Scores(s Scores) error {
	m.evals = append(m.evals, fmt.Sprint(s))
	return nil
}

func (m *memory) Completions(phase string, epoch, step int, rows []Completion) error {
	for _, c := range rows {
		m.completions = append(m.completions, fmt.Sprint(phase, epoch, step, c))
	}
	return nil
}

func (m *memory) Mark() (int, int, int, error) {
	return len(m.rows), len(m.evals), len(m.completions), nil
}

// nearby rewards examples whose first coordinate is close to the query's: embeddings hide it among others.
type nearby struct {
	table *beamdata.Table
	pools [][]int32
	rows  []int64
}

func (n nearby) Score(i int, positions []int32) (float64, float64) {
	s := 0.0
	for _, p := range positions {
		d := float64(n.table.Row(int(n.pools[i][p]))[0] - n.table.Row(int(n.rows[i]))[0])
		s += math.Exp(-d*d) / float64(len(positions))
	}
	return s, math.NaN()
}

// toy is a learnable set: 48 train and 16 validation queries, pools of 10, recorded groups of 6.
func toy(t *testing.T) (train, val *pointer.Source) {
	t.Helper()
	r := rand.New(rand.NewPCG(9, 9))
	const rows, dim, queries, k = 160, 8, 64, 10
	data := make([]float32, rows*dim)
	for i := range data {
		data[i] = float32(r.NormFloat64())
	}
	table := beamdata.NewTable(rows, dim, data)
	score := nearby{table: table}
	var qs []beamdata.Query
	for i := range queries {
		perm := r.Perm(rows - queries)[:k]
		pool := make([]int32, k)
		for j := range pool {
			pool[j] = int32(queries + perm[j])
		}
		score.pools, score.rows = append(score.pools, pool), append(score.rows, int64(i))
		qs = append(qs, beamdata.Query{ID: int64(i), Pool: pool})
	}
	for i := range qs {
		for range 4 + i%3 {
			p := r.Perm(k)
			pos := []int32{int32(p[0]), int32(p[1])}
			reward, _ := score.Score(i, pos)
			qs[i].Candidates = append(qs[i].Candidates, pos)
			qs[i].Rewards = append(qs[i].Rewards, reward)
		}
	}
	all, err := beamdata.NewSet("toy", table, 2, qs, score)
	if err != nil {
		t.Fatal(err)
	}
	return pointer.NewSource(all.Filter(func(i int) bool { return i < 48 })), pointer.NewSource(all.Filter(func(i int) bool { return i >= 48 }))
}

func toyPolicy(t *testing.T) *pointer.Policy {
	t.Helper()
	torchx.Attach(1)
	opt := pointer.DefaultOptions()
	opt.HiddenDim, opt.Dropout, opt.AttnDropout = 6, 0.2, 0.1
	opt.Skip = pointer.SkipOptions{Enabled: true, Scale: 3, LearnedScale: 0.3}
	opt.Relation = pointer.RelationOptions{Scale: 3, Bilinear: "free", GateDim: 3, GateInitial: 2}
	p, err := pointer.New(opt, 8, 1, "cpu")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Free)
	return p
}

func toyEnv(t *testing.T, val *pointer.Source, rec Recorder, dir string) *Env {
	p := toyPolicy(t)
	initial := p.Clone()
	t.Cleanup(initial.Free)
	return &Env{Policy: p, Initial: initial, Seed: 4, Rec: rec, Dir: dir, ConfigHash: "hash", Data: Data{
		Val: val, Eval: val, EvalName: "dev", Shots: 2, Shuffle: true, Advantage: advantage.DefaultOptions(), ValLoss: ValLoss{Temperature: 0.5},
		Normalize: func(r []float64) []float64 { return group.Normalize(r, group.DefaultNormalizeOptions()) }}}
}

func intp(n int) *int           { return &n }
func floatp(x float64) *float64 { return &x }

// toyPlan has every phase and every kind of state: dropout, an old policy of its own, adaptive β, two
// passes over a rollout.
func toyPlan(train *pointer.Source) Plan {
	sched := schedule.DefaultLROptions()
	rce := DefaultRCEOptions()
	rce.Epochs, rce.LR = 2, 1e-3
	sft := DefaultSFTOptions()
	sft.Epochs, sft.LR = 1, 1e-3
	grpo := DefaultGRPOOptions()
	grpo.Epochs, grpo.LR, grpo.OldPolicy = 3, 3e-3, "epoch_start"
	grpo.Curriculum = advantage.CurriculumOptions{EarlyEpochs: 1, EarlyTopK: 3, Baseline: "group"}
	grpo.Temperature.Enabled = true
	online := DefaultGRPOOptions()
	online.Rollout, online.OldPolicy, online.NumIterations, online.Epochs, online.LR = "online", "batch", 2, 2, 3e-3
	online.KL.Controller = "proportional"
	return Plan{Checkpoint: DefaultCheckpointOptions(), Doctor: nosy(), Phases: []Phase{
		NewSFT(sft, DefaultOptimOptions(), sched, train, 16, 0.1),
		NewRCE(rce, DefaultOptimOptions(), sched, train, 16, 0.1),
		NewGRPO("grpo", grpo, DefaultOptimOptions(), sched, train, 16),
		NewGRPO("grpo_online", online, DefaultOptimOptions(), sched, train, 16),
	}}
}

// nosy is a doctor that speaks of a healthy run too, at steps that its windows decide.
func nosy() doctor.Options {
	o := doctor.DefaultOptions()
	o.GradientSpike = doctor.Window{Severity: doctor.Note, Limit: 1.01, Steps: 4}
	o.EntropyCollapse = doctor.Window{Severity: doctor.Note, Limit: 1.2, Steps: 4}
	o.KLBelowBand = doctor.Window{Severity: doctor.Warning, Limit: 1e3, Steps: 5}
	o.ESSUniform = doctor.Window{Severity: doctor.Note, Limit: 0.1, Steps: 4}
	o.ValidationDiverges = doctor.Limit{Severity: doctor.Note, Limit: 1}
	return o
}

// findings returns the checks that have spoken.
func (m *memory) findings() []string {
	var found []string
	for _, row := range m.rows {
		if _, name, ok := strings.Cut(row, `"event":"`); ok {
			name, _, _ = strings.Cut(name, `"`)
			found = append(found, name)
		}
	}
	return found
}

// TestInterruptedBetweenEpochs: a stop that comes when an epoch has ended without a checkpoint, or before
// the very first step, saves a state too, and the resume from it is exact.
func TestInterruptedBetweenEpochs(t *testing.T) {
	train, val := toy(t)
	plan := func() Plan {
		rce, grpo := DefaultRCEOptions(), DefaultGRPOOptions()
		rce.Epochs, rce.LR = 4, 1e-3
		grpo.Epochs, grpo.LR, grpo.OldPolicy, grpo.KL.Reference = 4, 3e-3, "epoch_start", "epoch_start"
		p := Plan{Checkpoint: DefaultCheckpointOptions(), Doctor: nosy(), Phases: []Phase{
			NewRCE(rce, DefaultOptimOptions(), schedule.DefaultLROptions(), train, 16, 0),
			NewGRPO("grpo", grpo, DefaultOptimOptions(), schedule.DefaultLROptions(), train, 16)}}
		p.Checkpoint.EveryEpochs, p.Checkpoint.Best.Metric = 3, str("val_kl") // the start stays best
		return p
	}
	whole, dir := &memory{}, t.TempDir()
	if _, err := Run(context.Background(), plan(), toyEnv(t, val, whole, dir), nil); err != nil {
		t.Fatal(err)
	}
	want := files(t, dir)
	if _, ok := want["checkpoints/rce_epoch2.safetensors"]; ok {
		t.Fatal("every epoch has a checkpoint: this test sees nothing")
	}
	for _, after := range []string{"eval init", "epoch rce 1 ", "epoch rce 2 ", "epoch rce 3 ", "epoch rce 4 ", "epoch grpo 1 ", "epoch grpo 2 "} {
		dir := t.TempDir()
		ctx, cancel := context.WithCancel(context.Background())
		rec := &memory{stopAfter: after, stop: cancel}
		_, err := Run(ctx, plan(), toyEnv(t, val, rec, dir), nil)
		cancel()
		saved, stateErr := FindState(dir)
		if !errors.Is(err, ErrInterrupted) || stateErr != nil || saved == nil {
			t.Fatalf("stopped after %q: %v; state %v, %v", after, err, saved, stateErr)
		}
		if last := rec.rows[saved.Rows()-1]; !strings.HasPrefix(last, after) && !strings.HasPrefix(last, "eval ") && !strings.HasPrefix(last, "event ") {
			t.Errorf("stopped after %q, the state is of %q", after, last)
		}
		rec.stopAfter, rec.rows, rec.evals = "", rec.rows[:saved.Rows()], rec.evals[:saved.Evals()]
		env := toyEnv(t, val, rec, dir)
		env.Policy.Params().SetValues(make([]float32, env.Policy.Params().Numel()))
		if _, err := Run(context.Background(), plan(), env, saved); err != nil {
			t.Fatalf("resumed after %q: %v", after, err)
		}
		if !reflect.DeepEqual(rec.rows, whole.rows) || !reflect.DeepEqual(rec.evals, whole.evals) {
			t.Errorf("resumed after %q: the rows differ", after)
		}
		if got := files(t, dir); !reflect.DeepEqual(got, want) {
			t.Errorf("resumed after %q: the checkpoints differ", after)
		}
	}
}

// TestResumeIsExact: plans of every kind of state go on exactly where they were stopped.
func TestResumeIsExact(t *testing.T) {
	train, _ := toy(t)
	for _, tc := range []struct {
		name  string
		plan  func() Plan
		steps int
	}{
		{"every phase", func() Plan { return toyPlan(train) }, 3 * (1 + 2 + 3 + 2*2)},
		{"constant policies", func() Plan { return constantPlan(train) }, 3 * (2 + 2)},
		{"compat", func() Plan { return compatPlan(train) }, 3 * (2 + 2)},
	} {
		t.Run(tc.name, func(t *testing.T) { resumesExactly(t, tc.plan, tc.steps) })
	}
}

// constantPlan has old and reference policies that are evaluated once, distributions included.
func constantPlan(train *pointer.Source) Plan {
	rce, grpo := DefaultRCEOptions(), DefaultGRPOOptions()
	rce.Epochs, grpo.Epochs, grpo.LR = 2, 2, 3e-3
	grpo.OldPolicy, grpo.KL.Reference, grpo.Freeze = "phase_start", "init", []string{"query_proj"}
	sched := schedule.DefaultLROptions()
	return Plan{Checkpoint: DefaultCheckpointOptions(), Doctor: nosy(), Phases: []Phase{
		NewRCE(rce, DefaultOptimOptions(), sched, train, 16, 0), NewGRPO("grpo", grpo, DefaultOptimOptions(), sched, train, 16)}}
}

// compatPlan has the reference's initial policy with other heads and its stale gradients.
func compatPlan(train *pointer.Source) Plan {
	rce, grpo := DefaultRCEOptions(), DefaultGRPOOptions()
	rce.Epochs, rce.KeepGradient, grpo.Epochs, grpo.LR, grpo.Compat = 2, true, 2, 3e-3, true
	grpo.OldPolicy, grpo.OldPolicyHeads, grpo.Freeze, grpo.MaxLogRatio = "init", intp(2), []string{"input_proj", "query_proj"}, math.Inf(1)
	grpo.KL.Reference, grpo.KL.Estimator, grpo.KL.Update = "init", "k3_reversed", "step"
	grpo.Curriculum = advantage.CurriculumOptions{EarlyEpochs: 1, EarlyTopK: 3, LateTopK: intp(5), Baseline: "subset"}
	sched := schedule.LROptions{Name: "constant"}
	return Plan{Checkpoint: DefaultCheckpointOptions(), Doctor: nosy(), Phases: []Phase{
		NewRCE(rce, DefaultOptimOptions(), sched, train, 16, 0), NewGRPO("grpo", grpo, DefaultOptimOptions(), sched, train, 16)}}
}

// resumesExactly stops a run after every single optimizer step in turn, resumes it with fresh phases and
// a fresh policy, and compares every row, evaluation and checkpoint byte with the undisturbed run.
func resumesExactly(t *testing.T, plan func() Plan, steps int) {
	_, val := toy(t)
	resumesExactlyIn(t, plan, steps, func(rec Recorder, dir string) *Env { return toyEnv(t, val, rec, dir) })
}

func resumesExactlyIn(t *testing.T, plan func() Plan, steps int, newEnv func(rec Recorder, dir string) *Env) {
	whole := &memory{}
	dir := t.TempDir()
	if _, err := Run(context.Background(), plan(), newEnv(whole, dir), nil); err != nil {
		t.Fatal(err)
	}
	want := files(t, dir)
	total := 0
	for _, row := range whole.rows {
		if strings.HasPrefix(row, "step ") {
			total++
		}
	}
	if total != steps {
		t.Fatalf("%d optimizer steps, want %d", total, steps)
	}
	if found := whole.findings(); len(found) < 3 {
		t.Fatalf("the doctor found %v: want several, so that its state matters", found)
	}
	every := 1
	if testing.Short() {
		every = max(3, total/6)
	}
	for stop := 1; stop < total; stop += every {
		dir := t.TempDir()
		ctx, cancel := context.WithCancel(context.Background())
		rec := &memory{stopAt: stop, stop: cancel}
		_, err := Run(ctx, plan(), newEnv(rec, dir), nil)
		cancel()
		if p := plan().Phases; err == nil && stop > total-p[len(p)-1].Passes() {
			continue // within the passes of the very last batch: the run simply ends
		}
		if !errors.Is(err, ErrInterrupted) {
			t.Fatalf("stopped after step %d: %v, want ErrInterrupted", stop, err)
		}
		saved, err := FindState(dir)
		if err != nil || saved == nil {
			t.Fatalf("stopped after step %d: state %v, %v", stop, saved, err)
		}
		rec.stopAt, rec.rows, rec.evals, rec.completions = 0, rec.rows[:saved.Rows()], rec.evals[:saved.Evals()], rec.completions[:saved.Completions()]
		env := newEnv(rec, dir)
		env.Policy.Params().SetValues(make([]float32, env.Policy.Params().Numel())) // nothing may come from here
		if _, err := Run(context.Background(), plan(), env, saved); err != nil {
			t.Fatalf("resumed after step %d: %v", stop, err)
		}
		for i, row := range whole.rows {
			if i >= len(rec.rows) || rec.rows[i] != row {
				t.Fatalf("resumed after step %d: row %d\n got %s\nwant %s", stop, i, at(rec.rows, i), row)
			}
		}
		if len(rec.rows) != len(whole.rows) || !reflect.DeepEqual(rec.evals, whole.evals) {
			t.Fatalf("resumed after step %d: %d rows, want %d; evaluations equal: %v", stop, len(rec.rows), len(whole.rows), reflect.DeepEqual(rec.evals, whole.evals))
		}
		if !slices.Equal(rec.completions, whole.completions) {
			t.Fatalf("resumed after step %d: the completions differ", stop)
		}
		got := files(t, dir)
		for name, content := range want {
			if got[name] != content {
				t.Fatalf("resumed after step %d: %s differs", stop, name)
			}
		}
		if len(got) != len(want) {
			t.Fatalf("resumed after step %d: %d files, want %d", stop, len(got), len(want))
		}
	}
}

func at(rows []string, i int) string {
	if i < len(rows) {
		return rows[i]
	}
	return "nothing"
}

// files reads a run folder's checkpoints: path → content, or link target.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	if err := filepath.Walk(filepath.Join(dir, "checkpoints"), func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		if info.Mode()&os.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			out[name] = "→ " + target
			return err
		}
		data, err := os.ReadFile(path)
		out[name] = string(data)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestPhasesLearn: on data whose reward hides in one coordinate, rce and offline grpo raise the held-out
// reward of the greedy selection a little and online grpo a lot.
func TestPhasesLearn(t *testing.T) {
	train, val := toy(t)
	sched := schedule.DefaultLROptions()
	online := DefaultGRPOOptions()
	online.Rollout, online.OldPolicy, online.Epochs, online.LR, online.KL.Beta = "online", "batch", 40, 1e-2, 0
	offline := DefaultGRPOOptions()
	offline.Epochs, offline.LR, offline.KL.Beta = 20, 1e-2, 0
	rce := DefaultRCEOptions()
	rce.Epochs, rce.LR = 60, 1e-2
	for _, tc := range []struct {
		name  string
		phase Phase
		gain  float64 // rce: 0.010 in the mean over seeds, 0 to 0.034
	}{
		{"rce", NewRCE(rce, DefaultOptimOptions(), sched, train, 16, 0), 0.005},
		{"offline grpo", NewGRPO("grpo", offline, DefaultOptimOptions(), sched, train, 16), 0.01},
		{"online grpo", NewGRPO("grpo_online", online, DefaultOptimOptions(), sched, train, 16), 0.1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env := toyEnv(t, val, &memory{}, t.TempDir())
			before, err := Validate(env.Initial, env.Initial, val, env.Data)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Run(context.Background(), Plan{Checkpoint: DefaultCheckpointOptions(), Phases: []Phase{tc.phase}}, env, nil); err != nil {
				t.Fatal(err)
			}
			after, err := Validate(env.Policy, env.Initial, val, env.Data)
			if err != nil {
				t.Fatal(err)
			}
			if after.Reward < before.Reward+tc.gain {
				t.Errorf("validation reward %.4f → %.4f, want a gain of at least %.2f", before.Reward, after.Reward, tc.gain)
			}
			if before.KL != 0 || after.KL <= 0 {
				t.Errorf("KL %.4g → %.4g, want 0 → positive", before.KL, after.KL)
			}
		})
	}
}

// TestRatioIsOneAfterARefresh runs every kind of old policy with dropout configured: the step checks
// itself that the first ratios are exactly 1; here the recorded mean must be, and later ones must not.
func TestRatioIsOneAfterARefresh(t *testing.T) {
	train, val := toy(t)
	for _, tc := range []struct {
		old   string
		every int
		ones  map[int]bool // steps (1-based, 3 an epoch) with ratio exactly 1
	}{
		{"phase_start", 1, map[int]bool{1: true}},
		{"epoch_start", 1, map[int]bool{1: true, 4: true}},
		{"every_n", 2, map[int]bool{1: true, 3: true, 5: true}},
		{"batch", 1, map[int]bool{1: true, 2: true, 3: true, 4: true, 5: true, 6: true}},
	} {
		t.Run(tc.old, func(t *testing.T) {
			opt := DefaultGRPOOptions()
			opt.Epochs, opt.LR, opt.OldPolicy, opt.UpdateOldAfter = 2, 1e-2, tc.old, tc.every
			rec := &memory{}
			phase := NewGRPO("grpo", opt, DefaultOptimOptions(), schedule.LROptions{Name: "constant"}, train, 16)
			if _, err := Run(context.Background(), Plan{Checkpoint: DefaultCheckpointOptions(), Phases: []Phase{phase}}, toyEnv(t, val, rec, t.TempDir()), nil); err != nil {
				t.Fatal(err)
			}
			step := 0
			for _, row := range rec.rows {
				if !strings.HasPrefix(row, "step ") {
					continue
				}
				step++
				var m struct {
					MeanRatio float64 `json:"mean_ratio"`
				}
				if err := json.Unmarshal([]byte(row[strings.Index(row, "{"):]), &m); err != nil {
					t.Fatal(err)
				}
				if (m.MeanRatio == 1) != tc.ones[step] {
					t.Errorf("step %d: mean ratio %.9g, exactly 1 expected: %v", step, m.MeanRatio, tc.ones[step])
				}
			}
			if step != 6 {
				t.Errorf("%d steps, want 6", step)
			}
		})
	}
}

// TestObjectives compares the tensor formulas with their definitions in float64.
func TestObjectives(t *testing.T) {
	torchx.Attach(1)
	defer torchx.Scope()()
	ratio := []float64{1, 1.5, 0.5, 1.1}
	adv := []float64{2, 1, -1, -3}
	valid := []float64{1, 1, 1, 0}
	want := -(math.Min(2, 2) + math.Min(1.5, 1.2) + math.Min(-0.5, -0.8)) / 3
	got := surrogate(torchx.From(ratio, 2, 2), torchx.From(adv, 2, 2), torchx.From(valid, 2, 2), 0.2, 0.2, 3).Item()
	golden.Close(t, []float64{got}, []float64{want}, 1e-12)
	high := surrogate(torchx.From(ratio, 2, 2), torchx.From(adv, 2, 2), torchx.From(valid, 2, 2), 0.2, 0.4, 3).Item()
	golden.Close(t, []float64{high}, []float64{-(2 + 1.4 - 0.8) / 3}, 1e-12)

	r := []float64{0.3, -1.2, 30}
	for _, tc := range []struct {
		estimator string
		f         func(float64) float64
	}{
		{"k1", func(r float64) float64 { return r }},
		{"k2", func(r float64) float64 { return r * r / 2 }},
		{"k3", func(r float64) float64 { r = math.Min(r, 20); return math.Exp(-r) - 1 + r }},
		{"k3_reversed", func(r float64) float64 { r = math.Min(r, 20); return math.Exp(r) - 1 - r }},
	} {
		want := make([]float64, len(r))
		for i := range r {
			want[i] = tc.f(r[i])
		}
		golden.Close(t, sampledKL(tc.estimator, torchx.From(r, 3), 20).Floats(), want, 1e-12)
	}

	p, q := []float64{0.7, 0.2, 0.1, 0}, []float64{0.25, 0.25, 0.5, 0}
	logs := func(x []float64) torchx.Tensor {
		out := make([]float64, len(x))
		for i := range x {
			out[i] = -1e9 // as an excluded action
			if x[i] > 0 {
				out[i] = math.Log(x[i])
			}
		}
		return torchx.From(out, 1, 1, 1, len(x))
	}
	mask := torchx.From([]float64{1}, 1, 1, 1)
	klWant := 0.7*math.Log(0.7/0.25) + 0.2*math.Log(0.2/0.25) + 0.1*math.Log(0.1/0.5)
	one := &selector.Batch{Mask: []float32{1}, Queries: []int{0}, G: 1, T: 1}
	kl := func(p, q []float64) []float64 {
		out := torchx.PickLogp(torchx.Squeeze(logs(p), 1), torchx.From([]int64{0}, 1, 1, 1), -1e9, logs(q))
		return maskedSum(out.KL, one).Floats()
	}
	golden.Close(t, kl(p, q), []float64{klWant}, 1e-12)
	golden.Close(t, kl(p, p), []float64{0}, 1e-15)
	entropyWant := -(0.7*math.Log(0.7) + 0.2*math.Log(0.2) + 0.1*math.Log(0.1))
	golden.Close(t, []float64{entropy(logs(p), mask, 1).Item()}, []float64{entropyWant}, 1e-12)

	out := selector.Output{LogP: torchx.From([]float64{math.Log(0.2)}, 1, 1, 1), Dist: logs(p)}
	smooth := -(0.9*math.Log(0.2) + 0.1*(math.Log(0.7)+math.Log(0.2)+math.Log(0.1))/3)
	golden.Close(t, crossEntropy(out, one, 0.1).Floats(), []float64{smooth}, 1e-12)
	golden.Close(t, crossEntropy(out, one, 0).Floats(), []float64{-math.Log(0.2)}, 1e-12)
}

// TestNonFiniteStopsBeforeTheWeights: a NaN reward ends the step with one line and the weights as they were.
func TestNonFiniteStopsBeforeTheWeights(t *testing.T) {
	train, val := toy(t)
	env := toyEnv(t, val, &memory{}, t.TempDir())
	opt := DefaultGRPOOptions()
	phase := NewGRPO("grpo", opt, DefaultOptimOptions(), schedule.DefaultLROptions(), poisoned{train}, 16)
	if err := phase.Begin(env, 10); err != nil {
		t.Fatal(err)
	}
	defer phase.End()
	before := env.Policy.Params().Values()
	_, err := phase.Step(context.Background(), 1, 0, 0, []int{0, 1, 2})
	if err == nil || !strings.Contains(err.Error(), "candidate 0 of its group has reward NaN") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v, want one line about the reward", err)
	}
	if !reflect.DeepEqual(before, env.Policy.Params().Values()) {
		t.Error("the weights changed")
	}
}

// poisoned returns batches with a NaN reward.
type poisoned struct{ *pointer.Source }

func (p poisoned) Recorded(queries []int) *selector.Batch {
	b := p.Source.Recorded(queries)
	b.Rewards[0] = math.NaN()
	return b
}

func TestBest(t *testing.T) {
	h := []bestCandidate{
		{"init", 0, "init", 0.5, 0, 0, true}, {"rce", 1, "a", 0.7, 0.2, 0, true}, {"rce", 2, "b", 0.9, 2, 0, true}, {"grpo", 1, "c", 0.7, 0.1, 0, true}, {"grpo", 2, "d", 0.6, 0.1, 0, true},
	}
	for _, tc := range []struct {
		name      string
		opt       BestOptions
		canScore  bool
		history   []bestCandidate
		want      string
		qualified bool
	}{
		{"largest reward by default", BestOptions{}, true, h, "b", true},
		{"smallest loss where nothing scores", BestOptions{}, false, h, "init", true},
		{"kl_max excludes, ties go to the earlier", BestOptions{KLMax: floatp(1)}, true, h, "a", true},
		{"none qualifies: lowest KL", BestOptions{KLMax: floatp(0.05)}, true, h[1:], "c", false},
		{"NaN never wins, nor stays", BestOptions{}, true, []bestCandidate{{Phase: "init", File: "init", Value: math.NaN()}, {Phase: "rce", Epoch: 1, File: "a", Value: 0.1, KL: 1}, {Phase: "rce", Epoch: 2, File: "b", Value: math.NaN(), KL: 1}}, "a", true},
		{"ties within a phase go to the lowest loss", BestOptions{}, true, []bestCandidate{{Phase: "sft", File: "a", Loss: 3}, {Phase: "sft", File: "b", Loss: 2}, {Phase: "sft", File: "c", Loss: 2}, {Phase: "grpo", File: "d", Loss: 1}}, "b", true},
		{"mode min", BestOptions{Metric: str("val_reward"), Mode: str("min")}, true, h, "init", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newRule(tc.opt, tc.canScore).choose(tc.history)
			if b.Candidate.File != tc.want || b.Qualified != tc.qualified {
				t.Errorf("best %s (qualified %v), want %s (%v)", b.Candidate.File, b.Qualified, tc.want, tc.qualified)
			}
		})
	}
	for _, tc := range []struct {
		klMax   *float64
		nearest string
		none    bool
	}{{nil, "a", false}, {floatp(0.2), "a", false}, {floatp(0.05), "c", true}} {
		if nearest, none := newRule(BestOptions{KLMax: tc.klMax}, true).outside(h); nearest.File != tc.nearest || none != tc.none {
			t.Errorf("kl_max %v: nearest trained candidate %s, outside %v; want %s, %v", tc.klMax, nearest.File, none, tc.nearest, tc.none)
		}
	}
	if n := newRule(BestOptions{KLMax: floatp(1)}, true).choose(h).stale(h, "grpo"); n != 2 {
		t.Errorf("%d epochs of grpo without a better one, want 2", n)
	}
}

func str(s string) *string { return &s }

// TestKeepAndPatience: old checkpoints go, the start, the best and the newest stay, and a phase without
// progress ends early.
func TestKeepAndPatience(t *testing.T) {
	train, val := toy(t)
	rce := DefaultRCEOptions()
	rce.Epochs, rce.LR = 30, 1e-9 // nothing moves: epoch 0 stays best
	plan := Plan{Checkpoint: DefaultCheckpointOptions(), Phases: []Phase{NewRCE(rce, DefaultOptimOptions(), schedule.DefaultLROptions(), train, 16, 0)}}
	plan.Checkpoint.Keep, plan.Checkpoint.PatienceEpochs = intp(2), intp(4)
	opt := DefaultOptimOptions()
	opt.WeightDecay = 0
	rec, dir := &memory{}, t.TempDir()
	result, err := Run(context.Background(), plan, toyEnv(t, val, rec, dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	if result.BestPhase != "init" {
		t.Errorf("best is %s epoch %d, want the initial policy", result.BestPhase, result.BestEpoch)
	}
	entries, err := os.ReadDir(filepath.Join(dir, "checkpoints"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	sort.Strings(names)
	want := []string{"best.safetensors", "init_epoch0.safetensors", "last.safetensors", "rce_epoch3.safetensors", "rce_epoch3.state", "rce_epoch4.safetensors", "rce_epoch4.state"}
	if !reflect.DeepEqual(names, want) {
		t.Errorf("checkpoints %v, want %v", names, want)
	}
	if !strings.Contains(strings.Join(rec.rows, "\n"), "early_stop") {
		t.Error("no event says that the phase ended early")
	}
}

// TestUnknownMetricStopsBeforeTraining: a deciding metric that the data does not give is refused by the
// initial policy's validation, by name.
func TestUnknownMetricStopsBeforeTraining(t *testing.T) {
	train, val := toy(t) // its scorer knows no accuracy
	plan := Plan{Checkpoint: DefaultCheckpointOptions(), Phases: []Phase{NewRCE(DefaultRCEOptions(), DefaultOptimOptions(), schedule.DefaultLROptions(), train, 16, 0)}}
	plan.Checkpoint.Best.Metric = str("val_accuracy")
	rec := &memory{}
	_, err := Run(context.Background(), plan, toyEnv(t, val, rec, t.TempDir()), nil)
	var unknown *MetricError
	if !errors.As(err, &unknown) || !strings.Contains(err.Error(), "val_accuracy") || !strings.Contains(err.Error(), "val_reward") || len(rec.rows) != 0 {
		t.Errorf("error %v after %d rows, want a MetricError that names what there is, before any", err, len(rec.rows))
	}
}

// TestKeepCountsCheckpoints: with a checkpoint every third epoch, keep=1 keeps the last of them and not only
// what the last epoch happened to write.
func TestKeepCountsCheckpoints(t *testing.T) {
	train, val := toy(t)
	rce := DefaultRCEOptions()
	rce.Epochs, rce.LR = 8, 1e-3
	plan := Plan{Checkpoint: DefaultCheckpointOptions(), Phases: []Phase{NewRCE(rce, DefaultOptimOptions(), schedule.DefaultLROptions(), train, 16, 0)}}
	plan.Checkpoint.EveryEpochs, plan.Checkpoint.Keep, plan.Checkpoint.Best.Metric = 3, intp(2), str("val_kl") // the start stays best
	dir := t.TempDir()
	if _, err := Run(context.Background(), plan, toyEnv(t, val, &memory{}, dir), nil); err != nil {
		t.Fatal(err)
	}
	kept, err := filepath.Glob(filepath.Join(dir, "checkpoints", "rce_epoch*.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range kept {
		kept[i] = filepath.Base(path)
	}
	if want := []string{"rce_epoch6.safetensors", "rce_epoch8.safetensors"}; !reflect.DeepEqual(kept, want) {
		t.Errorf("kept %v, want %v", kept, want)
	}
}

// TestBestOutsideKL: where only the initial policy is within kl_max, a warning says so; evaluations name
// the policy that their KL is measured against.
func TestBestOutsideKL(t *testing.T) {
	train, val := toy(t)
	grpo := DefaultGRPOOptions()
	grpo.Epochs, grpo.LR, grpo.KL.Reference = 2, 1e-2, "phase_start"
	for _, tc := range []struct {
		klMax float64
		warns bool
	}{{1e-12, true}, {1e6, false}} {
		plan := Plan{Checkpoint: DefaultCheckpointOptions(), Phases: []Phase{NewGRPO("grpo", grpo, DefaultOptimOptions(), schedule.DefaultLROptions(), train, 16)}}
		plan.Checkpoint.Best.KLMax = &tc.klMax
		rec := &memory{}
		r, err := Run(context.Background(), plan, toyEnv(t, val, rec, t.TempDir()), nil)
		if err != nil {
			t.Fatal(err)
		}
		rows := strings.Join(rec.rows, "\n")
		if got := len(r.Warnings) == 1 && strings.Contains(rows, "best_outside_kl"); got != tc.warns || tc.warns && (r.BestPhase != "init" || !strings.Contains(r.Warnings[0], "best is the initial policy")) {
			t.Errorf("kl_max %g: best %s, warnings %q; want a warning: %v", tc.klMax, r.BestPhase, r.Warnings, tc.warns)
		}
		for policy, reference := range map[string]string{"init": "init", "grpo": "phase_start", "best": "init"} {
			if n := strings.Count(rows, fmt.Sprintf(`"kl_reference":%q,"loss":`, reference)); n == 0 || !strings.Contains(rows, fmt.Sprintf(`"policy":%q`, policy)) {
				t.Errorf("no evaluation of %s says that its KL is against %s", policy, reference)
			}
		}
	}
}

// TestDamagedCheckpointIsNamed: a state is refused when one of its files is not what was saved, by name.
func TestDamagedCheckpointIsNamed(t *testing.T) {
	train, val := toy(t)
	dir := t.TempDir()
	grpo := DefaultGRPOOptions()
	grpo.Epochs = 1
	plan := Plan{Checkpoint: DefaultCheckpointOptions(), Phases: []Phase{NewGRPO("grpo", grpo, DefaultOptimOptions(), schedule.DefaultLROptions(), train, 16)}}
	if _, err := Run(context.Background(), plan, toyEnv(t, val, &memory{}, dir), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := FindState(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"grpo_epoch1.safetensors", "init_epoch0.safetensors", "grpo_epoch1.state/state.json",
		"grpo_epoch1.state/optimizer.safetensors", "grpo_epoch1.state/frozen.safetensors", "grpo_epoch1.state/SHA256SUMS"} {
		path := filepath.Join(dir, "checkpoints", name)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		flipped := bytes.Clone(whole)
		flipped[len(flipped)-3] ^= 1
		for what, damaged := range map[string][]byte{"cut short": whole[:len(whole)/2], "one bit flipped": flipped, "empty": {}} {
			if err := os.WriteFile(path, damaged, 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := FindState(dir); err == nil || !strings.Contains(err.Error(), filepath.Dir(path)) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s %s: error %v, want one line that names it", name, what, err)
			} else if name != "grpo_epoch1.state/SHA256SUMS" && !strings.Contains(err.Error(), path) {
				t.Errorf("%s %s: the error names another file: %v", name, what, err)
			}
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if _, err := FindState(dir); err == nil || !strings.Contains(err.Error(), filepath.Base(path)) {
			t.Errorf("%s missing: error %v, want one that names it", name, err)
		}
		if err := os.WriteFile(path, whole, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBetaOnItsBoundIsReported: a coefficient that wants to leave its bounds is an event that names the keys.
func TestBetaOnItsBoundIsReported(t *testing.T) {
	train, val := toy(t)
	opt := DefaultGRPOOptions()
	opt.Epochs, opt.LR = 2, 1e-2
	opt.KL.TargetMin, opt.KL.TargetMax, opt.KL.BetaMax = 0, 1e-9, 0.1 // any movement is too much, and 0.1 is the most
	rec := &memory{}
	phase := NewGRPO("grpo", opt, DefaultOptimOptions(), schedule.DefaultLROptions(), train, 16)
	if _, err := Run(context.Background(), Plan{Checkpoint: DefaultCheckpointOptions(), Doctor: doctor.DefaultOptions(), Phases: []Phase{phase}}, toyEnv(t, val, rec, t.TempDir()), nil); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, row := range rec.rows {
		if strings.HasPrefix(row, "event ") && strings.Contains(row, `"beta_at_bound"`) && strings.Contains(row, "grpo.kl.beta_max") {
			found++
		}
	}
	if found != 1 {
		t.Errorf("%d warnings in a phase, want 1:\n%s", found, strings.Join(rec.rows, "\n"))
	}
}

// A short last batch weighs as much as a full one where batches are averaged (defect D16).
func TestMeanOfBatches(t *testing.T) {
	x := []float64{1, 2, 3, 10, 20}
	for batch, want := range map[int]float64{0: 36.0 / 5, 3: (2 + 15) / 2.0, 2: (1.5 + 6.5 + 20) / 3, 1: 36.0 / 5, 9: 36.0 / 5} {
		golden.Close(t, []float64{meanOfBatches(x, batch)}, []float64{want}, 1e-12)
	}
	if got := meanOfBatches(nil, 2); !math.IsNaN(got) {
		t.Errorf("the mean of nothing is %v", got)
	}
}

// TestMetadataOfNonFiniteMetrics: a checkpoint's metadata holds NaN and infinity as metrics.jsonl does.
func TestMetadataOfNonFiniteMetrics(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	if err := saveWeights(path, toyPolicy(t), "grpo", 1, "hash", Metrics{"val_loss": math.NaN(), "kl": math.Inf(1), "lr": math.Inf(-1), "val_kl": 0.5}); err != nil {
		t.Fatal(err)
	}
	c, err := pointer.ReadCheckpoint(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, want := c.Metadata["metrics"], `{"kl":"inf","lr":"-inf","val_kl":0.5,"val_loss":"nan"}`; got != want {
		t.Errorf("metrics\n got %s\nwant %s", got, want)
	}
}

// TestRestoreBest: a phase hands on its best epoch, here the one nearest the start, and its evaluation is of that one.
func TestRestoreBest(t *testing.T) {
	train, val := toy(t)
	rce, grpo := DefaultRCEOptions(), DefaultGRPOOptions()
	rce.Epochs, rce.LR, grpo.Epochs, grpo.LR = 3, 1e-2, 1, 1e-30 // GRPO leaves the weights as it finds them
	optim := DefaultOptimOptions()
	optim.WeightDecay = 0
	sched := schedule.DefaultLROptions()
	plan := Plan{Checkpoint: DefaultCheckpointOptions(), Phases: []Phase{NewRCE(rce, optim, sched, train, 16, 0), NewGRPO("grpo", grpo, optim, sched, train, 16)}}
	plan.Checkpoint.RestoreBest, plan.Checkpoint.Best.Metric = true, str("val_kl")
	plan.Checkpoint.Keep = intp(1)
	rec, dir := &memory{}, t.TempDir()
	if _, err := Run(context.Background(), plan, toyEnv(t, val, rec, dir), nil); err != nil {
		t.Fatal(err)
	}
	weights := func(name string) map[string][]float32 {
		f, err := tensorfile.ReadSafetensors(filepath.Join(dir, "checkpoints", name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		out := map[string][]float32{}
		for _, w := range f.Tensors {
			values, err := w.Float32s()
			if err != nil {
				t.Fatal(err)
			}
			out[w.Name] = slices.Clone(values) // the file is unmapped on return
		}
		return out
	}
	if !reflect.DeepEqual(weights("rce_epoch1.safetensors"), weights("grpo_epoch1.safetensors")) {
		t.Error("grpo did not start from rce's best epoch, the first")
	}
	if all := strings.Join(rec.rows, "\n"); !strings.Contains(all, "rce hands on its epoch 1") {
		t.Error("no note says which epoch was handed on")
	}
	// What restore_best hands on was chosen on val, as best was; its scores say from how many. Held-out ones were not.
	for prefix, want := range map[string]string{"{val rce rce 1 reward 2 ": " 4}", "{val best ": " 5}", "{dev rce rce 1 reward 2 ": " 0}"} {
		at := slices.IndexFunc(rec.evals, func(e string) bool { return strings.HasPrefix(e, prefix) })
		if at < 0 || !strings.HasSuffix(rec.evals[at], want) {
			t.Errorf("scores %s… do not end in%s checkpoints: %.60q", prefix, want, rec.evals)
		}
	}
}

// TestBestIsInitial: where no epoch does better than the policy that the run began with, an event says so.
func TestBestIsInitial(t *testing.T) {
	train, val := toy(t)
	optim := DefaultOptimOptions()
	optim.WeightDecay = 0
	for _, tc := range []struct {
		lr   float64
		says bool
	}{{1e-30, true}, {1e-2, false}} {
		rce := DefaultRCEOptions()
		rce.Epochs, rce.LR = 2, tc.lr
		plan := Plan{Checkpoint: DefaultCheckpointOptions(), Phases: []Phase{NewRCE(rce, optim, schedule.DefaultLROptions(), train, 16, 0)}}
		plan.Checkpoint.Best.Metric = str("val_loss")
		rec := &memory{}
		r, err := Run(context.Background(), plan, toyEnv(t, val, rec, t.TempDir()), nil)
		if err != nil {
			t.Fatal(err)
		}
		rows := strings.Join(rec.rows, "\n")
		if (r.BestPhase == "init") != tc.says || strings.Contains(rows, "best is the initial policy: it has val_loss ") != tc.says {
			t.Errorf("lr %g: best is of %s; want the event: %v", tc.lr, r.BestPhase, tc.says)
		}
	}
}

// TestBestOptions: a rule that the initial policy wins whatever is trained is refused, by what to set instead.
func TestBestOptions(t *testing.T) {
	for _, tc := range []struct {
		name string
		opt  BestOptions
		ok   bool
	}{
		{"the defaults", BestOptions{}, true},
		{"val_kl", BestOptions{Metric: str("val_kl")}, false},
		{"val_kl, the least", BestOptions{Metric: str("val_kl"), Mode: str("min")}, false},
		{"a bound changes nothing: 0 is below it", BestOptions{Metric: str("val_kl"), KLMax: floatp(0.1)}, false},
		{"the largest val_kl within a bound", BestOptions{Metric: str("val_kl"), Mode: str("max"), KLMax: floatp(0.1)}, true},
		{"val_reward within a bound", BestOptions{Metric: str("val_reward"), KLMax: floatp(0.1)}, true},
		{"a mode of no metric", BestOptions{Mode: str("max")}, false},
	} {
		err := tc.opt.Validate()
		if (err == nil) != tc.ok {
			t.Errorf("%s: %v", tc.name, err)
		}
		if tc.opt.Metric != nil && err != nil && !strings.Contains(err.Error(), "best.kl_max") {
			t.Errorf("%s: %v does not say what to set", tc.name, err)
		}
	}
}

// TestEpochQueries: an epoch over a part of the queries draws another part each time, and the same on a resume.
func TestEpochQueries(t *testing.T) {
	train, val := toy(t)
	opt := DefaultRCEOptions()
	opt.Epochs, opt.EpochQueries = 2, intp(10)
	phase := NewRCE(opt, DefaultOptimOptions(), schedule.DefaultLROptions(), train, 4, 0)
	if n := StepsPerEpoch(phase); n != 3 {
		t.Errorf("%d steps for 10 queries in batches of 4, want 3", n)
	}
	s := &scheduler{env: toyEnv(t, val, &memory{}, t.TempDir())}
	s.env.Data.Shuffle = true
	first, again, second := s.order(phase, 1), s.order(phase, 1), s.order(phase, 2)
	if len(first) != 10 || !slices.Equal(first, again) || slices.Equal(first, second) {
		t.Errorf("epoch 1 takes %v, again %v, epoch 2 %v: want ten queries, drawn by epoch", first, again, second)
	}
	opt.EpochQueries = intp(train.Len() + 5)
	if n := len(s.order(NewRCE(opt, DefaultOptimOptions(), schedule.DefaultLROptions(), train, 4, 0), 1)); n != train.Len() {
		t.Errorf("an epoch of %d queries, there are %d", n, train.Len())
	}
}
