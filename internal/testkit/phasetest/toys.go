// Package phasetest holds toy policies, data and recorders for tests of phases.
package phasetest

import (
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
	"strings"
	"testing"

	"fulcrum/beamdata"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/doctor"
	"fulcrum/rewardutil/advantage"
	"fulcrum/rewardutil/group"
	"fulcrum/selector"
	"fulcrum/selector/pointer"
)

// Memory is a Recorder that keeps rows as JSON, and can cut a run short.
type Memory struct {
	Rows, Evals, Kept []string
	Asked             []phases.Scores // of Evals
	stopAt            int             // global step after which stop is called; 0 = never
	StopAfter         string          // or the row, by how it begins
	Stop              func()
}

func (m *Memory) Record(kind, phase string, epoch, step, globalStep int, fields map[string]any) error {
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
	m.Rows = append(m.Rows, fmt.Sprintf("%s %s %d %d %d %s", kind, phase, epoch, step, globalStep, text))
	if m.stopAt > 0 && kind == "step" && globalStep == m.stopAt {
		m.Stop()
	}
	if m.StopAfter != "" && strings.HasPrefix(m.Rows[len(m.Rows)-1], m.StopAfter) {
		m.Stop()
	}
	return nil
}

func (m *Memory) Scores(s phases.Scores) error {
	m.Evals, m.Asked = append(m.Evals, fmt.Sprint(s)), append(m.Asked, s)
	return nil
}

func (m *Memory) Completions(phase string, epoch, step int, rows []phases.Completion) error {
	for _, c := range rows {
		m.Kept = append(m.Kept, fmt.Sprint(phase, epoch, step, c))
	}
	return nil
}

func (m *Memory) Mark() (int, int, int, error) {
	return len(m.Rows), len(m.Evals), len(m.Kept), nil
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

// Toy is a learnable set: 48 train and 16 validation queries, pools of 10, recorded groups of 6.
func Toy(t *testing.T) (train, val *pointer.Source) {
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
	return pointer.NewSource(all.Filter(func(i int) bool { return i < 48 })),
		pointer.NewSource(all.Filter(func(i int) bool { return i >= 48 }))
}

func ToyPolicy(t *testing.T) *pointer.Policy {
	t.Helper()
	torchx.Attach(1)
	opt := pointer.DefaultOptions()
	opt.HiddenDim, opt.Dropout, opt.AttnDropout = 6, 0.2, 0.1
	opt.Skip = pointer.SkipOptions{Enabled: true, Scale: 3, LearnedScale: 0.3}
	opt.Relation = pointer.RelationOptions{Scale: new(3.0), Bilinear: "free", GateDim: 3, GateInitial: 2}
	p, err := pointer.New(opt, 8, 1, "cpu")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Free)
	return p
}

func ToyEnv(t *testing.T, val *pointer.Source, rec phases.Recorder, dir string) *phases.Env {
	p := ToyPolicy(t)
	initial := p.Clone()
	t.Cleanup(initial.Free)
	return &phases.Env{Policy: p, Initial: initial, Seed: 4, Rec: rec, Dir: dir, ConfigHash: "hash", Data: phases.Data{
		Val: val, Eval: pointer.NewSource(val.Set()), EvalName: "dev", Shots: 2, Shuffle: true, Advantage: advantage.DefaultOptions(),
		ValLoss:   phases.ValLoss{Temperature: 0.5},
		Normalize: func(r []float64) []float64 { return group.Normalize(r, group.DefaultNormalizeOptions()) }}}
}

// Nosy are the checks of a doctor that speaks of a healthy run too, at steps that its windows decide.
func Nosy() []doctor.Check {
	return Tuned(map[string]doctor.Check{
		"gradient_spike":      {Severity: doctor.Note, Limit: 1.01, Steps: 4},
		"entropy_collapse":    {Severity: doctor.Note, Limit: 1.2, Steps: 4},
		"kl_below_band":       {Severity: doctor.Warning, Limit: 1e3, Steps: 5},
		"ess_uniform":         {Severity: doctor.Note, Limit: 0.1, Steps: 4},
		"validation_diverges": {Severity: doctor.Note, Limit: 1},
	})
}

// Tuned returns the doctor's checks, those of a table with its severities, limits and steps.
func Tuned(as map[string]doctor.Check) []doctor.Check {
	out := doctor.Checks()
	for i := range out {
		if c, ok := as[out[i].Name]; ok {
			out[i].Severity, out[i].Limit, out[i].Steps = c.Severity, c.Limit, c.Steps
		}
	}
	return out
}

// Findings returns the checks that have spoken.
func (m *Memory) Findings() []string {
	var found []string
	for _, row := range m.Rows {
		if _, name, ok := strings.Cut(row, `"event":"`); ok {
			name, _, _ = strings.Cut(name, `"`)
			found = append(found, name)
		}
	}
	return found
}

// ResumesExactly stops a run after every single optimizer step in turn, resumes it with fresh phases and
// a fresh policy, and compares every row, evaluation and checkpoint byte with the undisturbed run.
func ResumesExactly(t *testing.T, plan func() phases.Plan, steps int, newEnv func(rec phases.Recorder, dir string) *phases.Env) {
	t.Helper()
	if found := Resumes(t, plan, steps, newEnv).Findings(); len(found) < 3 {
		t.Fatalf("the doctor found %v: want several, so that its state matters", found)
	}
}

// Resumes stops a plan after its steps, one by one, and returns the rows of the run that was never stopped.
func Resumes(t *testing.T, plan func() phases.Plan, steps int, newEnv func(rec phases.Recorder, dir string) *phases.Env) *Memory {
	whole := &Memory{}
	dir := t.TempDir()
	if _, err := phases.Run(context.Background(), plan(), newEnv(whole, dir), nil); err != nil {
		t.Fatal(err)
	}
	want := Files(t, dir)
	total := 0
	for _, row := range whole.Rows {
		if strings.HasPrefix(row, "step ") {
			total++
		}
	}
	if total != steps {
		t.Fatalf("%d optimizer steps, want %d", total, steps)
	}
	every := 1
	if testing.Short() {
		every = max(3, total/6)
	}
	for stop := 1; stop < total; stop += every {
		dir := t.TempDir()
		ctx, cancel := context.WithCancel(context.Background())
		rec := &Memory{stopAt: stop, Stop: cancel}
		stopped := newEnv(rec, dir)
		_, err := phases.Run(ctx, plan(), stopped, nil)
		cancel()
		last := plan().Phases[len(plan().Phases)-1].Info().Passes
		if stopped.LookAhead {
			last++
		}
		if err == nil && stop > total-last {
			continue // within the passes of the very last batch, or it was under way: the run simply ends
		}
		if !errors.Is(err, phases.ErrInterrupted) {
			t.Fatalf("stopped after step %d: %v, want ErrInterrupted", stop, err)
		}
		saved, err := phases.FindState(dir)
		if err != nil || saved == nil {
			t.Fatalf("stopped after step %d: state %v, %v", stop, saved, err)
		}
		rec.stopAt, rec.Rows, rec.Evals, rec.Kept = 0, rec.Rows[:saved.Rows()], rec.Evals[:saved.Evals()], rec.Kept[:saved.Completions()]
		env := newEnv(rec, dir)
		env.Policy.Params().SetValues(make([]float32, env.Policy.Params().Numel())) // nothing may come from here
		if _, err := phases.Run(context.Background(), plan(), env, saved); err != nil {
			t.Fatalf("resumed after step %d: %v", stop, err)
		}
		for i, row := range whole.Rows {
			if i >= len(rec.Rows) || rec.Rows[i] != row {
				t.Fatalf("resumed after step %d: row %d\n got %s\nwant %s", stop, i, at(rec.Rows, i), row)
			}
		}
		if len(rec.Rows) != len(whole.Rows) || !reflect.DeepEqual(rec.Evals, whole.Evals) {
			t.Fatalf("resumed after step %d: %d rows, want %d; evaluations equal: %v", stop, len(rec.Rows), len(whole.Rows),
				reflect.DeepEqual(rec.Evals, whole.Evals))
		}
		if !slices.Equal(rec.Kept, whole.Kept) {
			t.Fatalf("resumed after step %d: the completions differ", stop)
		}
		got := Files(t, dir)
		for name, content := range want {
			if got[name] != content {
				t.Fatalf("resumed after step %d: %s differs", stop, name)
			}
		}
		if len(got) != len(want) {
			t.Fatalf("resumed after step %d: %d files, want %d", stop, len(got), len(want))
		}
	}
	return whole
}

func at(rows []string, i int) string {
	if i < len(rows) {
		return rows[i]
	}
	return "nothing"
}

// Files reads a run folder's checkpoints: path → content, or link target.
func Files(t *testing.T, dir string) map[string]string {
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

// Ragged is a set as RL files give it: pools of 20 to 64 and 5 to 16 candidates, different for every query.
func Ragged(t *testing.T, queries int) *pointer.Source {
	t.Helper()
	r := rand.New(rand.NewPCG(3, 3))
	const examples, dim = 200, 16
	data := make([]float32, (examples+queries)*dim)
	for i := range data {
		data[i] = float32(r.NormFloat64())
	}
	table := beamdata.NewTable(examples+queries, dim, data)
	score := nearby{table: table}
	qs := make([]beamdata.Query, queries)
	for i := range qs {
		pool := make([]int32, 20+r.IntN(45))
		for j, row := range r.Perm(examples)[:len(pool)] {
			pool[j] = int32(row)
		}
		score.pools, score.rows = append(score.pools, pool), append(score.rows, int64(examples+i))
		qs[i] = beamdata.Query{ID: int64(examples + i), Pool: pool}
		for range 5 + r.IntN(12) {
			p := r.Perm(len(pool))
			positions := []int32{int32(p[0]), int32(p[1])}
			reward, _ := score.Score(i, positions)
			qs[i].Candidates, qs[i].Rewards = append(qs[i].Candidates, positions), append(qs[i].Rewards, reward)
		}
	}
	set, err := beamdata.NewSet("ragged", table, 2, qs, score)
	if err != nil {
		t.Fatal(err)
	}
	return pointer.NewSource(set)
}

// Steps returns the metrics of the step rows of a phase.
func (m *Memory) Steps(t *testing.T, phase string) []map[string]any {
	t.Helper()
	var out []map[string]any
	for _, row := range m.Rows {
		if strings.HasPrefix(row, "step "+phase+" ") {
			f := map[string]any{}
			if err := jsonwords.Unmarshal([]byte(row[strings.Index(row, "{"):]), &f); err != nil {
				t.Fatal(err)
			}
			out = append(out, f)
		}
	}
	return out
}

// Row returns the metrics of a step by their names.
func Row(m phases.Measured, err error) (phases.Metrics, error) {
	if err != nil {
		return nil, err
	}
	return m.Row(), nil
}

// MustStepAt makes step number n of a phase on queries and returns its metrics.
func MustStepAt(t *testing.T, p phases.Phase, n int, queries []int) phases.Metrics {
	t.Helper()
	defer torchx.Scope()()
	m, err := Row(p.Step(context.Background(), phases.At{Epoch: 1, Step: n, Queries: queries}))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// WaitsOnce takes a step on a small and one on a large batch. Each must copy to the host once, and upload equally often, at
// most so many times: on CUDA a read-back waits for all queued work, and every small copy costs as much as a matrix product.
func WaitsOnce(t *testing.T, p phases.Phase, small, large []int, uploads int) {
	t.Helper()
	var crossed [2]torchx.Counts
	for i, queries := range [][]int{small, large} {
		before := torchx.Counted()
		MustStepAt(t, p, i, queries)
		crossed[i] = torchx.Counted().Minus(before)
		if n := crossed[i].ReadBacks; n != 1 {
			t.Errorf("%s: a step on %d queries copies to the host %d times, want once", p.Info().Name, len(queries), n)
		}
		if n := crossed[i].Uploads; n > uploads {
			t.Errorf("%s: a step on %d queries uploads %d times, want at most %d", p.Info().Name, len(queries), n, uploads)
		}
	}
	if a, b := crossed[0].Uploads, crossed[1].Uploads; a != b {
		t.Errorf("%s: a step on %d queries uploads %d times, one on %d queries %d times", p.Info().Name, len(small), a, len(large), b)
	}
	t.Logf("%s: %+v", p.Info().Name, crossed[1])
}

// Summaries are the prompts of a fixture with five scored completions each.
type Summaries struct {
	Texts [][]int64
	Batch *selector.Batch
}

func (s *Summaries) Name() string { return "summaries" }

func (s *Summaries) Len() int { return len(s.Texts) }

func (s *Summaries) ID(i int) int64 { return int64(i) }

func (s *Summaries) Prompt(i int) ([]int64, error) { return s.Texts[i], nil }

func (s *Summaries) Recorded(queries []int) *selector.Batch { return s.Batch.Groups(queries) }
