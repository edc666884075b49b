package reportstest

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"fulcrum/internal/stat"
	"fulcrum/internal/tensorfile"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/stats"
)

// FakeRun writes the folder of a plausible run: RCE, GRPO on recorded beams, GRPO on sampled groups,
// on 400 validation and 1,000 held-out queries. It is the same to the last bit every time.
func FakeRun(t testing.TB, seed uint64) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	Must(t, os.MkdirAll(filepath.Join(dir, ".hydra"), 0o755))
	Must(t, os.WriteFile(filepath.Join(dir, ".hydra", "config.yaml"), []byte(fakeConfig), 0o644))
	Must(t, os.WriteFile(filepath.Join(dir, ".hydra", "overrides.yaml"), []byte("- exp=okvqa_online\n- data=okvqa\n- seed=1\n"), 0o644))
	clock := NewClock(500 * time.Millisecond)
	log, err := record.OpenLog(dir, record.LogOptions{LoggingOptions: record.DefaultLoggingOptions(), Stderr: &bytes.Buffer{}, Now: clock.Now})
	Must(t, err)
	g := &generator{t: t, log: log, rng: rand.New(rand.NewPCG(seed, 99))}
	g.baselines()
	g.phase("rce", 3, 40, 0.006)
	g.phase("grpo", 4, 30, 0.008)
	g.event("warning", "kl_beta_at_bound", "the KL coefficient sits on its bound 1: widen grpo.kl.beta_min or beta_max, or the KL band")
	g.phase("grpo_online", 6, 60, 0.022)
	g.evaluate("best", "grpo_online", 5)
	Must(t, log.Close())
	Must(t, os.WriteFile(filepath.Join(dir, "examples.json"), []byte(fakeExamples), 0o644))
	summary := FakeSummary()
	summary.Evaluations = []record.StageResult{} // left to the report: they cost a second
	Must(t, results.WriteSummary(dir, summary))
	return dir
}

func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type generator struct {
	t      testing.TB
	log    *record.Log
	rng    *rand.Rand
	global int
	last   record.Row
	gain   float64
	epochs int // of all phases
}

func (g *generator) Record(kind, phase string, epoch, step int, fields map[string]any) {
	g.t.Helper()
	g.epochs += stats.BoolInt(kind == record.KindEpoch)
	g.last = record.Row{Phase: phase, Epoch: epoch, Step: step}
	Must(g.t, g.log.Record(kind, phase, epoch, step, g.global, fields))
}

func (g *generator) event(severity, name, message string) {
	g.Record(record.KindEvent, g.last.Phase, g.last.Epoch, g.last.Step,
		map[string]any{"event": name, "severity": severity, "message": message})
}

// scores are zero-inflated with the given mean; the same question is hard or easy for every policy.
func (g *generator) scores(split string, n int, mean float64, noise uint64) (ids []int64, scores []float64) {
	shared := rand.New(rand.NewPCG(7, uint64(len(split)+n)))
	own := rand.New(rand.NewPCG(7, noise))
	for i := range n {
		ids = append(ids, int64(9009+i))
		hard, luck, other := shared.Float64(), own.Float64(), own.Float64()
		if luck < 0.08 { // this policy chose something else
			hard = other
		}
		score := 0.0
		if right := 3.2 * mean; hard < right {
			score = 0.6 * hard / right
		}
		scores = append(scores, math.Round(score*1e5)/1e5)
	}
	return
}

func (g *generator) evaluate(policy, phase string, epoch int) {
	base := map[string]float64{"random": 0.0231, "similarity": 0.0841, "init": 0.0841, "oracle": 0.2296}
	mean, ok := base[policy]
	if !ok {
		mean = 0.0841 + g.gain
	}
	for _, split := range []struct {
		name string
		n    int
	}{{"val", 400}, {"dev", 1000}} {
		noise := uint64(len(policy) + 31*epoch)
		if policy == "init" {
			noise = uint64(len("similarity"))
		}
		ids, scores := g.scores(split.name, split.n, mean, noise)
		var sum float64
		accuracy := make([]float64, len(scores))
		for i, s := range scores {
			sum += s
			if s > 0.3 {
				accuracy[i] = 1
			}
		}
		g.Record(record.KindEval, phase, epoch, g.last.Step,
			map[string]any{"split": split.name, "policy": policy, "reward": sum / float64(split.n)})
		Must(g.t, g.log.Scores(record.Evaluation{Split: split.name, Policy: policy, Phase: phase, Epoch: epoch, Metric: "reward", Shots: 2,
			QueryIDs: ids, Scores: scores, ChosenFrom: chosenFrom(policy, split.name, g.epochs)}))
		Must(g.t, g.log.Scores(record.Evaluation{Split: split.name, Policy: policy, Phase: phase, Epoch: epoch, Metric: "accuracy", Shots: 2,
			QueryIDs: ids, Scores: accuracy, ChosenFrom: chosenFrom(policy, split.name, g.epochs)}))
	}
}

// chosenFrom is how many checkpoints a policy was chosen from on a split.
func chosenFrom(policy, split string, epochs int) int {
	if policy == "best" && split == "val" {
		return epochs + 1
	}
	return 0
}

func (g *generator) baselines() {
	for _, policy := range []string{"random", "similarity", "oracle", "init"} {
		g.evaluate(policy, "", 0)
	}
}

// phase records epochs of steps whose metrics move as real ones do.
func (g *generator) phase(name string, epochs, perEpoch int, gain float64) {
	total := float64(epochs * perEpoch)
	start := g.gain
	kl, beta := 0.0, 0.1
	for epoch := 1; epoch <= epochs; epoch++ {
		var klSum float64
		for i := range perEpoch {
			step := (epoch-1)*perEpoch + i + 1
			g.global++
			at := float64(step) / total
			n := g.rng.NormFloat64
			warm := math.Min(1, at/0.1)
			f := map[string]any{"grad_norm": math.Exp(0.35*n()-at) * 1.2, "lr": warm * 0.5 * (1 + math.Cos(math.Pi*at)) * 1e-3, "items": 320,
				"step_seconds": 0.031 + 0.002*math.Abs(n())}
			if name == "rce" {
				f["loss"] = 7.9 - 0.5*(1-math.Exp(-4*at)) + 0.12*n()
				f["temperature"] = 2 - 1.5*at
				f["effective_sample_size"] = 4.9 - 0.9*at + 0.03*n()
			} else {
				kl = math.Max(0, kl+0.004*(1-2*beta*kl)+0.003*n())
				klSum += kl
				ppo := -0.01 - 0.02*at + 0.01*n()
				adv := make([]float64, 20)
				for range 300 {
					adv[min(19, max(0, int(10+2*(n()+0.2)*(1.4-0.5*at))))]++
				}
				f["lr"] = f["lr"].(float64) * 0.2
				f["ppo_loss"], f["kl"], f["kl_loss"], f["kl_beta"], f["loss"] = ppo, kl, beta*kl, beta, ppo+beta*kl
				f["mean_ratio"], f["clip_fraction"], f["clamp_fraction"] = 1+0.02*at*n(), math.Max(0, 0.15*at+0.02*n()), 0.0
				f["mean_advantage"], f["std_advantage"], f["max_advantage"] = 0.1*n()+0.3*(1-at), 1+0.05*n(), math.Min(5, 3.5+0.5*math.Abs(n()))
				f["advantage_clipped"], f["entropy"], f["top_k"] = 0.01, 7.8-0.6*at+0.03*n(), 8
				f["signal_share"], f["signal_share_top_k"] = math.Min(1, 0.81+0.03*n()), math.Min(1, 0.74+0.03*n())
				f["mean_reward"] = 0.06 + start + gain*at + 0.008*n()
				f["adv_hist"] = adv
			}
			g.Record(record.KindStep, name, epoch, step, f)
		}
		at := float64(epoch) / float64(epochs)
		g.gain = start + gain*(1-math.Exp(-3*at)) + 0.0012*g.rng.NormFloat64()
		f := map[string]any{"loss": 7.5 - at*0.1, "grad_norm": 0.9, "lr": 1e-4, "val_loss": 7.62 - 0.2*at - 0.3*g.gain, "val_reward": 0.0841 +
			g.gain,
			"val_accuracy": 0.1386 + 1.3*g.gain, "items": 320.0, "step_seconds": 0.032, "checkpoint": "checkpoints/" + name + "_epoch" +
				string(rune('0'+epoch)) + ".safetensors"}
		if name == "rce" {
			f["effective_sample_size"], f["temperature"] = 4.6-0.5*at, 2-1.5*at
		} else {
			f["loss"], f["kl"], f["kl_beta"], f["clip_fraction"], f["mean_ratio"] = -0.02*at, klSum/float64(perEpoch), beta, 0.08*at, 1.001
			f["val_kl"], f["signal_share"], f["signal_share_top_k"], f["max_advantage"] = kl*1.05, 0.81, 0.74, 3.9
			switch mean := klSum / float64(perEpoch); {
			case mean > 0.1:
				beta *= 1.5
			case mean < 0.01:
				beta /= 1.5
			}
		}
		g.Record(record.KindEpoch, name, epoch, epoch*perEpoch, f)
		if epoch == epochs {
			g.evaluate(name, name, epoch)
		}
	}
}

func FakeSummary() record.Summary {
	return record.Summary{
		State: record.StateDone, Title: "okvqa_online", Task: "train",
		Command:   []string{"bin/run", "exp=okvqa_online", "data=okvqa", "data.root=../my data", "seed=1"},
		Overrides: []string{"exp=okvqa_online", "data=okvqa", "data.root=../my data", "seed=1"}, Seed: 1, Device: "cpu", Threads: 2,
		Start: "2025-03-01T12:00:00Z", WallSeconds: 187.4, Resumes: 1,
		Versions: map[string]string{"fulcrum": "0.1.0 (91116f8)", "go": "go1.26.8", "libtorch": "1.13.1", "config": "5f1c9a3e"},
		Data: record.DataSummary{Name: "okvqa", Notice: "Real OK-VQA questions; rewards come from a small copy reader, not from a " +
			"vision-language model.", Fingerprint: "8c1f0b7d2a",
			Counts:  map[string]int{"train_queries": 4323, "val_queries": 400, "dev_queries": 1000, "pool_size": 64},
			Skipped: map[string]int{"query without beams": 2197}, Shots: 2, EvalName: "dev"},
		Phases: []record.PhaseSummary{{Name: "rce", Epochs: 3, Steps: 120, Seconds: 9.8}, {Name: "grpo", Epochs: 4, Steps: 120, Seconds: 21.3},
			{Name: "grpo_online", Epochs: 6, Steps: 360, Seconds: 120.9}},
		Best: &record.BestSummary{Metric: "val_reward", Mode: "max", Value: 0.1187, Phase: "grpo_online", Epoch: 5,
			Checkpoint: "checkpoints/grpo_online_epoch5.safetensors"},
	}
}

const fakeConfig = `seed: 1
rce: {epochs: 3}
grpo:
  rollout: offline
  clip: {epsilon: 0.2, epsilon_high: null}
  kl: {target_min: 0.01, target_max: 0.1, controller: adaptive}
  curriculum: {early_epochs: 1, early_top_k: 3, late_top_k: null}
grpo_online:
  rollout: online
  clip: {epsilon: 0.2, epsilon_high: 0.28}
  kl: {target_min: 0.05, target_max: 0.5, controller: adaptive}
optim: {grad_clip_norm: 1.0}
`

const fakeExamples = `[{"question": "what | is this?", "answer": "a kite", "before": [{"question": "which toy?", "answer": "doll"}],
 "after": [{"question": "what flies?", "answer": "kite"}, {"question": "what is on the string?", "answer": "kite"}], "reward_before": 0.01, "reward_after": 0.62}]`

// Edit replaces a text in a file of the run.
func Edit(t *testing.T, path, old, text string) {
	t.Helper()
	data, err := os.ReadFile(path)
	Must(t, err)
	found := regexp.MustCompile(old).FindIndex(data)
	if found == nil {
		t.Fatalf("%s does not hold %s", path, old)
	}
	Must(t, os.WriteFile(path, append(append(append([]byte{}, data[:found[0]]...), text...), data[found[1]:]...), 0o644))
}

const honestConfig = `task: train
seed: 1
schedule: [rce, grpo]
rce: {epochs: 2}
grpo: {epochs: 2, clip: {epsilon: 0.2}, kl: {target_min: 0.01, target_max: 0.1, controller: adaptive}}
logging: {log_every_steps: 1, tensorboard: true}
checkpoint: {best: {kl_max: null}}
`

// honestStep returns what the i-th step of an epoch records; at is its number in the phase.
func honestStep(phase string, i int, at float64) map[string]any {
	f := map[string]any{"loss": 3 - 0.1*at, "grad_norm": 1 + 0.3/at, "lr": 1e-3, "step_seconds": 0.01 * at}
	if phase == "grpo" {
		counts := make([]float64, 10)
		counts[i], counts[9-i] = 3, 4
		f["kl"], f["kl_beta"], f["mean_ratio"], f["clip_fraction"], f["adv_hist"] = 0.013*at, 0.1, 1.01, 0.05, counts
		f["mean_advantage"], f["std_advantage"], f["max_advantage"] = 0.01, 0.9, 2.0
	}
	return f
}

// honestScores returns the scores of 40 questions under a policy.
func honestScores(gain float64) (ids []int64, scores []float64) {
	ids, scores = make([]int64, 40), make([]float64, 40)
	for i := range scores {
		ids[i], scores[i] = int64(i), float64((i*7)%11)/11+gain*float64(i%3)
	}
	return ids, scores
}

// evaluator records what a policy scores on both splits and returns its validation reward.
func evaluator(
	t testing.TB, log *record.Log, global *int,
) func(policy, phase string, epoch int, gain float64, more map[string]any) float64 {
	return func(policy, phase string, epoch int, gain float64, more map[string]any) (reward float64) {
		for _, split := range []string{"val", "dev"} {
			ids, scores := honestScores(gain)
			mean, _ := stat.MeanSE(scores)
			fields := map[string]any{"split": split, "policy": policy, "reward": mean}
			for name, x := range more {
				fields[name] = x
			}
			Must(t, log.Record(record.KindEval, phase, epoch, 0, *global, fields))
			Must(t, log.Scores(record.Evaluation{Split: split, Policy: policy, Phase: phase, Epoch: epoch, Metric: "reward", Shots: 2, QueryIDs: ids,
				Scores: scores, ChosenFrom: chosenFrom(policy, split, 4)}))
			if split == "val" {
				reward = mean
			}
		}
		return reward
	}
}

// HonestRun writes the folder of a small run whose records agree: epochs are means of their steps, evaluations means
// of their scores. It is the same to the last bit every time.
func HonestRun(t testing.TB, rebuild func(dir string) error) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	Must(t, os.MkdirAll(filepath.Join(dir, ".hydra"), 0o755))
	Must(t, os.MkdirAll(filepath.Join(dir, "checkpoints"), 0o755))
	weights := tensorfile.Tensor{Name: "a", DType: tensorfile.U8, Shape: []int{7}, Data: []byte("weights")}
	Must(t, tensorfile.WriteSafetensors(filepath.Join(dir, "checkpoints", "grpo_epoch2.safetensors"), []tensorfile.Tensor{weights}, nil))
	Must(t, os.WriteFile(filepath.Join(dir, ".hydra", "config.yaml"), []byte(honestConfig), 0o644))
	Must(t, os.WriteFile(filepath.Join(dir, ".hydra", "overrides.yaml"), []byte("- seed=1\n"), 0o644))
	clock := NewClock(500 * time.Millisecond)
	log, err := record.OpenLog(dir, record.LogOptions{LoggingOptions: record.DefaultLoggingOptions(), Stderr: &bytes.Buffer{}, Now: clock.Now})
	Must(t, err)
	log.Plan([]record.PhasePlan{{Name: "rce", Epochs: 2, StepsPerEpoch: 5}, {Name: "grpo", Epochs: 2, StepsPerEpoch: 5}})
	Must(t, log.Infof("pointer: 12 parameters on cpu, 1 threads"))
	global := 0
	evaluate := evaluator(t, log, &global)
	evaluate("random", "", 0, -0.2, nil)
	evaluate("similarity", "", 0, 0, nil)
	evaluate("init", "init", 0, 0, map[string]any{"kl": 0.0})
	var best float64
	for p, phase := range []string{"rce", "grpo"} {
		for epoch := 1; epoch <= 2; epoch++ {
			sums := map[string]float64{}
			hist := make([]float64, 10)
			for i := range 5 {
				global++
				step := (epoch-1)*5 + i + 1
				at := float64(step)
				f := honestStep(phase, i, at)
				if counts, ok := f["adv_hist"].([]float64); ok {
					for k, c := range counts {
						hist[k] += c
					}
				}
				for name, x := range f {
					if x, ok := x.(float64); ok {
						sums[name] += x
					}
				}
				Must(t, log.Record(record.KindStep, phase, epoch, step, global, f))
			}
			gain := 0.01 * float64(2*p+epoch)
			f := map[string]any{"checkpoint": fmt.Sprintf("checkpoints/%s_epoch%d.safetensors", phase, epoch), "val_loss": 3 - gain, "val_kl": 0.05 +
				gain}
			if phase == "grpo" {
				f["adv_hist"] = hist
			}
			for name, sum := range sums {
				f[name] = sum / 5
			}
			_, scores := honestScores(gain)
			f["val_reward"], _ = stat.MeanSE(scores)
			Must(t, log.Record(record.KindEpoch, phase, epoch, 5*epoch, global, f))
			if epoch == 2 {
				best = evaluate(phase, phase, epoch, gain, map[string]any{"loss": 3 - gain, "kl": 0.05 + gain})
			}
		}
	}
	Must(t, log.Record(record.KindEvent, "grpo", 2, 10, global, map[string]any{"event": "kl_beta_at_bound", "severity": "warning",
		"message": "the KL coefficient sits on its bound 1: widen grpo.kl.beta_max"}))
	evaluate("best", "grpo", 2, 0.04, map[string]any{"kl": 0.09})
	Must(t, log.Close())
	s := record.Summary{State: record.StateDone, Title: "honest", Task: "train", Command: []string{"run", "seed=1"},
		Overrides: []string{"seed=1"}, Seed: 1, Device: "cpu", Threads: 1, Phases: []record.PhaseSummary{}, Warnings: []string{},
		Best: &record.BestSummary{Metric: "val_reward", Mode: "max", Value: record.Number(best), Phase: "grpo", Epoch: 2,
			Checkpoint: "checkpoints/grpo_epoch2.safetensors"}}
	run, err := record.ReadRun(dir)
	Must(t, err)
	s.AddRecorded(run)
	Must(t, results.WriteSummary(dir, s))
	Must(t, record.WriteManifest(dir, "test"))
	Must(t, rebuild(dir))
	return dir
}

func ReadReport(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(page.ReportPath(dir))
	Must(t, err)
	return string(text)
}

// SweepRun writes the folder of a small run whose best policy gains about gain over similarity.
func SweepRun(t *testing.T, dir string, seed uint64, gain float64, config string) {
	t.Helper()
	Must(t, os.MkdirAll(filepath.Join(dir, ".hydra"), 0o755))
	Must(t, os.WriteFile(filepath.Join(dir, ".hydra", "config.yaml"), []byte(config), 0o644))
	rng := rand.New(rand.NewPCG(seed, 1))
	similarity, best := record.Evaluation{Split: "dev", Policy: "similarity", Metric: "reward", Shots: 2},
		record.Evaluation{Split: "dev", Policy: "best", Phase: "grpo", Epoch: 2, Metric: "reward", Shots: 2}
	shared := rand.New(rand.NewPCG(42, 1))
	for i := range 200 {
		s := shared.Float64()
		similarity.QueryIDs, best.QueryIDs = append(similarity.QueryIDs, int64(i)), append(best.QueryIDs, int64(i))
		similarity.Scores, best.Scores = append(similarity.Scores, s), append(best.Scores, s+gain+0.2*(rng.Float64()-0.5))
	}
	Must(t, record.AppendEvals(dir, similarity, best))
	Must(t, results.WriteSummary(dir, record.Summary{State: record.StateDone, Command: []string{"bin/run", "seed=1"}}))
}

// clock starts at a fixed time and moves by its step at each look.
type clock struct {
	at   time.Time
	step time.Duration
}

func NewClock(step time.Duration) *clock {
	return &clock{time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC), step}
}

func (c *clock) Now() time.Time {
	c.at = c.at.Add(c.step)
	return c.at
}

// OpenTestLog opens the log of a run folder whose clock moves one second a row.
func OpenTestLog(t testing.TB, dir string, stderr io.Writer) *record.Log {
	t.Helper()
	logging := record.DefaultLoggingOptions()
	logging.StallMinutes = 0 // whose watch looks at the clock
	log, err := record.OpenLog(dir, record.LogOptions{LoggingOptions: logging, Stderr: stderr, Now: NewClock(time.Second).Now})
	Must(t, err)
	t.Cleanup(func() { log.Close() })
	return log
}

// Record adds a row to log.
func Record(t testing.TB, log *record.Log, kind, phase string, epoch, step, global int, fields map[string]any) {
	t.Helper()
	Must(t, log.Record(kind, phase, epoch, step, global, fields))
}

// SvgText returns the texts of an SVG, one a line.
func SvgText(svg []byte) string {
	var b strings.Builder
	for _, m := range regexp.MustCompile(`>([^<>]+)</text>`).FindAllSubmatch(svg, -1) {
		b.Write(m[1])
		b.WriteByte('\n')
	}
	return b.String()
}

// CheckTextInside finds labels that leave the picture: every unrotated text must start and, at half an em
// a letter, end inside.
func CheckTextInside(t *testing.T, svg []byte) {
	t.Helper()
	found := 0
	for _, m := range regexp.MustCompile(`(?s)<text (?:textLength="[^"]*" lengthAdjust="[^"]*" )?x="([-0-9.e]+)" y="([-0-9.e]+)"[^>]*font-size:([0-9.]+)px[^>]*>([^<]+)<`).FindAllSubmatch(svg, -1) {
		found++
		x, size := ParseFloat(t, m[1]), ParseFloat(t, m[3])
		width := size * 0.47 * float64(len([]rune(string(m[4]))))
		if x < -300 { // rotated: its coordinates are another system's
			continue
		}
		if x+width > 648 {
			t.Errorf("%q reaches from %.0f to about %.0f, the picture ends at 648", m[4], x, x+width)
		}
	}
	if found < 10 {
		t.Errorf("only %d texts found", found)
	}
}

// ParseFloat reads a number of an SVG.
func ParseFloat(t *testing.T, b []byte) float64 {
	t.Helper()
	var n record.Number
	Must(t, n.UnmarshalJSON(b))
	return float64(n)
}
