package reportstest

import (
	"embed"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/stats"
)

// folders are what the runs begin with, by name: their configuration, and the parts of their ends that no rows tell.
//
//go:embed all:testdata
var folders embed.FS

// Recorder writes the rows of a run.
type Recorder struct {
	testing.TB
	Dir    string
	RunLog *record.Log
	Global int // steps so far
	epochs int // so far, of all phases
}

// Begin copies a folder of testdata to dir and opens the log of a run there.
func Begin(t testing.TB, folder, dir string, logging record.LoggingOptions) *Recorder {
	t.Helper()
	from, err := fs.Sub(folders, "testdata/"+folder)
	Must(t, err)
	Must(t, os.CopyFS(dir, from))
	log, err := record.OpenLog(dir, record.LogOptions{LoggingOptions: logging, Stderr: io.Discard, Now: NewClock(500 * time.Millisecond)})
	Must(t, err)
	return &Recorder{TB: t, Dir: dir, RunLog: log}
}

// Record adds a row.
func (r *Recorder) Record(kind, phase string, epoch, step int, fields map[string]any) {
	r.Helper()
	r.epochs += stats.BoolInt(kind == record.KindEpoch)
	Must(r, r.RunLog.Record(kind, phase, epoch, step, r.Global, fields))
}

// Evaluate records what a policy earns on a split, and its scores by each metric: reward, then accuracy.
func (r *Recorder) Evaluate(e record.Evaluation, step int, fields map[string]any, scores ...[]float64) {
	r.Helper()
	fields["split"], fields["policy"] = e.Split, e.Policy
	r.Record(record.KindEval, e.Phase, e.Epoch, step, fields)
	if e.Policy == "best" && e.Split == "val" {
		e.ChosenFrom = r.epochs + 1
	}
	for i, metric := range []string{"reward", "accuracy"}[:len(scores)] {
		e.Metric, e.Scores = metric, scores[i]
		Must(r, r.RunLog.Scores(e))
	}
}

// End closes the log and reads the summary that the run began with.
func (r *Recorder) End() record.Summary {
	r.Helper()
	Must(r, r.RunLog.Close())
	summary, err := record.ReadSummary(r.Dir)
	Must(r, err)
	return *summary
}

// FakeRun writes the folder of a plausible run: RCE, GRPO on recorded beams, GRPO on sampled groups,
// on 400 validation and 1,000 held-out queries. It is the same to the last bit every time.
func FakeRun(t testing.TB, seed uint64) string {
	t.Helper()
	g := &generator{Recorder: Begin(t, "okvqa", filepath.Join(t.TempDir(), "run"), record.DefaultLoggingOptions()),
		rng: rand.New(rand.NewPCG(seed, 99))}
	for _, policy := range []string{"random", "similarity", "oracle", "init"} {
		g.evaluate(policy, "", 0, 0)
	}
	g.phase("rce", 3, 40, 0.006)
	g.phase("grpo", 4, 30, 0.008)
	g.Record(record.KindEvent, "grpo", 4, 120, map[string]any{"event": "kl_beta_at_bound", "severity": "warning",
		"message": "the KL coefficient sits on its bound 1: widen grpo.kl.beta_min or beta_max, or the KL band"})
	g.phase("grpo_online", 6, 60, 0.022)
	g.evaluate("best", "grpo_online", 5, 360)
	summary := g.End()
	summary.Evaluations = []record.StageResult{} // left to the report: they cost a second
	Must(t, results.WriteSummary(g.Dir, summary))
	return g.Dir
}

func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type generator struct {
	*Recorder
	rng  *rand.Rand
	gain float64
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

func (g *generator) evaluate(policy, phase string, epoch, step int) {
	base := map[string]float64{"random": 0.0231, "similarity": 0.0841, "init": 0.0841, "oracle": 0.2296}
	mean, ok := base[policy]
	if !ok {
		mean = 0.0841 + g.gain
	}
	noise := uint64(len(policy) + 31*epoch)
	if policy == "init" {
		noise = uint64(len("similarity"))
	}
	for i, split := range []string{"val", "dev"} {
		n := []int{400, 1000}[i]
		ids, scores := g.scores(split, n, mean, noise)
		var sum float64
		accuracy := make([]float64, len(scores))
		for i, s := range scores {
			sum += s
			if s > 0.3 {
				accuracy[i] = 1
			}
		}
		g.Recorder.Evaluate(record.Evaluation{Split: split, Policy: policy, Phase: phase, Epoch: epoch, Shots: 2, QueryIDs: ids}, step,
			map[string]any{"reward": sum / float64(n)}, scores, accuracy)
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
			g.Global++
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
			g.evaluate(name, name, epoch, epoch*perEpoch)
		}
	}
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

// NewClock returns a clock that starts at a fixed time and moves by step at each look.
func NewClock(step time.Duration) func() time.Time {
	at := time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)
	return func() time.Time {
		at = at.Add(step)
		return at
	}
}

// OpenTestLog opens the log of a run folder whose clock moves one second a row.
func OpenTestLog(t testing.TB, dir string, stderr io.Writer) *record.Log {
	t.Helper()
	logging := record.DefaultLoggingOptions()
	logging.StallMinutes = 0 // whose watch looks at the clock
	log, err := record.OpenLog(dir, record.LogOptions{LoggingOptions: logging, Stderr: stderr, Now: NewClock(time.Second)})
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
		x, _ := strconv.ParseFloat(string(m[1]), 64)
		size, _ := strconv.ParseFloat(string(m[3]), 64)
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
