package record

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"fulcrum/internal/testkit/golden"
)

// testClock starts at a fixed time and moves by its step at each look.
type testClock struct {
	at   time.Time
	step time.Duration
}

func newTestClock(step time.Duration) *testClock {
	return &testClock{time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC), step}
}

func (c *testClock) Now() time.Time {
	c.at = c.at.Add(c.step)
	return c.at
}

func OpenTestLog(t *testing.T, dir string, stderr *bytes.Buffer, restored *Position) *Log {
	t.Helper()
	logging := DefaultLoggingOptions()
	logging.StallMinutes = 0 // whose watch looks at the clock
	log, err := OpenLog(dir, LogOptions{LoggingOptions: logging, Restored: restored, Stderr: stderr, Now: newTestClock(time.Second).Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	return log
}

func Record(t *testing.T, log *Log, kind, phase string, epoch, step, global int, fields map[string]any) {
	t.Helper()
	if err := log.Record(kind, phase, epoch, step, global, fields); err != nil {
		t.Fatal(err)
	}
}

func lines(t *testing.T, path string) []string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}

func TestRowsAreWrittenInOrderAndReadBack(t *testing.T) {
	dir := t.TempDir()
	log := OpenTestLog(t, dir, &bytes.Buffer{}, nil)
	Record(t, log, KindStep, "grpo", 1, 2, 12, map[string]any{
		"zeta": 1.0, "alpha": true, "kl": math.NaN(), "loss": 0.1, "lr": 1e-7, "top_k": 3, "grad_norm": math.Inf(1),
		"adv_hist": []float64{1, 2.5, math.Inf(-1)},
	})
	Record(t, log, KindEvent, "grpo", 1, 2, 12, map[string]any{"message": "β > 1", "event": "beta_at_bound", "severity": "warning"})
	want := []string{
		`{"kind":"step","phase":"grpo","epoch":1,"step":2,"global_step":12,"time":1740830402.000,"loss":0.1,"grad_norm":"inf","lr":1e-07,"kl":"nan","top_k":3,"adv_hist":[1,2.5,"-inf"],"alpha":true,"zeta":1}`,
		`{"kind":"event","phase":"grpo","epoch":1,"step":2,"global_step":12,"time":1740830404.000,"event":"beta_at_bound","severity":"warning","message":"β > 1"}`,
	}
	got := lines(t, filepath.Join(dir, MetricsFile))
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("line %d\n got %s\nwant %s", i+1, got[i], want[i])
		}
	}
	run, err := ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	steps := run.StepsOf("grpo")
	golden.Close(t, steps.Column("loss"), []float64{0.1}, 0)
	golden.Close(t, steps.Column("kl"), []float64{math.NaN()}, 0)
	golden.Close(t, steps.Column("grad_norm"), []float64{math.Inf(1)}, 0)
	golden.Close(t, steps.Lists["adv_hist"][0], []float64{1, 2.5, math.Inf(-1)}, 0)
	if len(run.Events) != 1 || run.Events[0].Text("message") != "β > 1" {
		t.Errorf("events %v", run.Events)
	}
}

func TestColumnsStayAlignedWhenFieldsComeAndGo(t *testing.T) {
	dir := t.TempDir()
	log := OpenTestLog(t, dir, &bytes.Buffer{}, nil)
	for i, fields := range []map[string]any{{"a": 1.0}, {"b": 2.0}, {"a": 3.0, "h": []float64{1}}} {
		Record(t, log, KindStep, "rce", 1, i+1, i+1, fields)
	}
	run, err := ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	nan := math.NaN()
	golden.Close(t, run.Steps[0].Column("a"), []float64{1, nan, 3}, 0)
	golden.Close(t, run.Steps[0].Column("b"), []float64{nan, 2, nan}, 0)
	if h := run.Steps[0].Lists["h"]; len(h) != 3 || h[0] != nil || h[1] != nil || h[2] == nil {
		t.Errorf("list column %v", h)
	}
}

func TestRecordRefusesWhatRowsCannotHold(t *testing.T) {
	log := OpenTestLog(t, t.TempDir(), &bytes.Buffer{}, nil)
	for _, tc := range []struct {
		name   string
		fields map[string]any
		want   string
	}{
		{"a field that every row has", map[string]any{"epoch": 1}, "metrics.jsonl: field epoch: every row has it already"},
		{"an unknown type", map[string]any{"loss": float32(1)},
			"metrics.jsonl: field loss: type float32: want float64, int, string, bool or []float64"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := log.Record(KindStep, "rce", 1, 1, 1, tc.fields); err == nil || err.Error() != tc.want {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

func TestLogEverySteps(t *testing.T) {
	dir := t.TempDir()
	opt := LogOptions{LoggingOptions: LoggingOptions{LogEverySteps: 3}, Stderr: &bytes.Buffer{}}
	log, err := OpenLog(dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= 7; i++ {
		Record(t, log, KindStep, "rce", 1, i, i, map[string]any{"loss": 1.0})
	}
	Record(t, log, KindEpoch, "rce", 1, 7, 7, map[string]any{"loss": 1.0})
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	run, err := ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := run.Steps[0].Step; len(got) != 2 || got[0] != 3 || got[1] != 6 || len(run.Epochs) != 1 {
		t.Errorf("steps %v and %d epochs; want steps 3, 6 and 1 epoch", got, len(run.Epochs))
	}
	if old, _ := filepath.Glob(filepath.Join(dir, "events.*")); len(old) != 0 {
		t.Errorf("tensorboard=false wrote %v", old)
	}
}

func TestRunLogHasHydrasFormat(t *testing.T) {
	dir := t.TempDir()
	log := OpenTestLog(t, dir, &bytes.Buffer{}, nil)
	if err := log.Infof("run %s", "exp=okvqa_v3"); err != nil {
		t.Fatal(err)
	}
	Record(t, log, KindEvent, "grpo", 1, 2, 12, map[string]any{"severity": "warning", "message": "beta on its bound"})
	got := lines(t, filepath.Join(dir, RunLogFile))
	want := []string{"[2025-03-01 12:00:02,000][run][INFO] - run exp=okvqa_v3",
		"[2025-03-01 12:00:03,000][grpo][WARNING] - warning: beta on its bound"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("run.log\n got %q\nwant %q", got, want)
	}
}

func StepFields() map[string]any {
	return map[string]any{"loss": 0.18734, "kl": 0.0412, "kl_beta": 0.1, "clip_fraction": 0.062, "std_advantage": 1.02,
		"step_seconds": 0.31}
}

func TestPlainProgress(t *testing.T) {
	dir := t.TempDir()
	var stderr bytes.Buffer
	log := OpenTestLog(t, dir, &stderr, nil) // the clock moves 1 s a row
	log.Plan([]PhasePlan{{"rce", 1, 40}, {"grpo", 2, 20}})
	for i := 1; i <= 20; i++ {
		Record(t, log, KindStep, "grpo", 1, i, 40+i, StepFields())
	}
	fields := StepFields()
	fields["val_reward"], fields["checkpoint"] = 0.0934, "checkpoints/grpo_epoch1.safetensors"
	Record(t, log, KindEpoch, "grpo", 1, 20, 60, fields)
	Record(t, log, KindEvent, "grpo", 1, 20, 60, map[string]any{"severity": "warning", "message": "kl_beta sits on its bound 1"})
	golden.File(t, "testdata/progress_plain.txt", stderr.Bytes())
}

// screenOf60 is a terminal of 60 columns.
type screenOf60 struct{ *bytes.Buffer }

func (s screenOf60) Control(text string) { s.WriteString(text) }
func (s screenOf60) Size() (int, int)    { return 60, 24 }

func TestTerminalProgressRewritesOneLine(t *testing.T) {
	var out bytes.Buffer
	t.Setenv("NO_COLOR", "1")
	p := newProgress(screenOf60{&out}, newTestClock(time.Second).Now)
	for i := 1; i <= 3; i++ {
		p.step(Row{Kind: KindStep, Phase: "grpo", Epoch: 1, Step: i, Fields: StepFields()})
	}
	p.print("a message", LevelWarning)
	got := out.String()
	if n := strings.Count(got, "\n"); n != 1 {
		t.Errorf("%d line ends, want 1 (the message's): %q", n, got)
	}
	for _, piece := range regexp.MustCompile("\r\x1b\\[K").Split(got, -1) {
		if strings.Contains(piece, "grpo") && len([]rune(piece)) != 59 {
			t.Errorf("line of %d columns on a terminal of 60: %q", len([]rune(piece)), piece)
		}
	}
	if !strings.HasSuffix(got, "\r\x1b[Ka message\n") {
		t.Errorf("the message does not wipe the line: %q", got)
	}
	out.Reset()
	p.colour = true
	if p.print("a\x1b[2Jb\u202e", LevelWarning); out.String() != "\x1b[33ma\\x1b[2Jb\\u202e\x1b[0m\n" { // ours act, the data's are shown
		t.Errorf("a message with controls: %q", out.String())
	}
}

func TestNoProgressStillWarns(t *testing.T) {
	var stderr bytes.Buffer
	log, err := OpenLog(t.TempDir(), LogOptions{Stderr: &stderr})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	Record(t, log, KindStep, "rce", 1, 1, 1, StepFields())
	Record(t, log, KindEpoch, "rce", 1, 1, 1, StepFields())
	if stderr.Len() != 0 {
		t.Errorf("progress=false wrote %q", stderr.String())
	}
	log.Warnf("disk nearly full")
	if got := stderr.String(); got != "warning: disk nearly full\n" {
		t.Errorf("got %q", got)
	}
}

func TestAFullDiskIsAnError(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("no /dev/full: %v", err)
	}
	log := OpenTestLog(t, t.TempDir(), &bytes.Buffer{}, nil)
	log.metrics.Close()
	log.metrics = full
	err = log.Record(KindStep, "rce", 1, 1, 1, nil)
	if err == nil || !strings.Contains(err.Error(), "cannot write metrics.jsonl") {
		t.Errorf("got %v", err)
	}
}

// A terminal shows what samples earn and how long they are.
func TestProgressOfAnswers(t *testing.T) {
	fields := StepFields()
	fields["mean_reward"], fields["completion_length"] = 0.412, 3.25
	p := newProgress(&bytes.Buffer{}, newTestClock(time.Second).Now)
	got := p.stepLine(Row{Kind: KindStep, Phase: "grpo", Epoch: 1, Step: 3, Fields: fields}, "  eta 2 s")
	if want := "grpo  epoch 1  step 3  eta 2 s  reward 0.412   kl 0.0412   beta 0.10    clip 6.2%   len 3.25"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// Lines say which policy a KL is measured against, and show what rounding leaves of 0 as 0.
func TestLinesSayWhichKL(t *testing.T) {
	p := &Progress{}
	for _, tc := range []struct {
		row  Row
		want string
	}{
		{Row{Kind: KindEpoch, Phase: "rce", Epoch: 1, Fields: map[string]any{"loss": 2.0, "val_kl": 3.912, "kl_reference": "init"}},
			"rce  epoch 1  done  val_kl 3.912 to the initial policy  loss 2.000"},
		{Row{Kind: KindEpoch, Phase: "grpo", Epoch: 1, Fields: map[string]any{"kl": -1.7e-8, "val_kl": 0.06, "kl_reference": "phase_start",
			"val_reward": 0.5}}, "grpo  epoch 1  done  val_reward 0.5000   kl 0        val_kl 0.06000 to the phase's start"},
		{Row{Kind: KindEval, Fields: map[string]any{"split": "val", "policy": "best", "kl": 4.9, "kl_reference": "init"}},
			"eval  val  best  kl 4.900 to the initial policy"},
		{Row{Kind: KindEval, Fields: map[string]any{"split": "val", "policy": "init", "kl": -1.7e-8}}, "eval  val  init  kl 0"},
		{Row{Kind: KindEval, Fields: map[string]any{"split": "cider", "policy": "results", "cider": 4.105}}, "eval  cider  results  cider 4.105"},
	} {
		if _, _, got := p.LogLine(tc.row); got != tc.want {
			t.Errorf("\n got %s\nwant %s", got, tc.want)
		}
	}
}

// A summary names the epoch that another measure would have made the best, if it is another.
func TestOtherBest(t *testing.T) {
	epoch := func(phase string, n int, loss, recorded, kl float64) Row {
		return Row{Kind: KindEpoch, Phase: phase, Epoch: n,
			Fields: map[string]any{"val_loss": loss, "val_recorded_reward": recorded, "val_kl": kl}}
	}
	run := &Run{EvalRows: []Row{{Fields: map[string]any{"split": "val", "policy": "init", "loss": 3.0, "recorded_reward": 0.3}}},
		Epochs: []Row{epoch("rce", 1, 2.5, 0.40, 3), epoch("rce", 2, 2.4, 0.45, 4), epoch("grpo", 1, 2.6, 0.50, 0.1)}}
	for _, tc := range []struct {
		name  string
		best  BestSummary
		klMax any
		want  string
	}{
		{"the reward chose another", BestSummary{Metric: "val_loss", Phase: "rce", Epoch: 2}, nil,
			"by checkpoint.best.metric=val_recorded_reward grpo epoch 1 is ahead: 0.5000 against 0.4500"},
		{"the loss chose another", BestSummary{Metric: "val_recorded_reward", Phase: "grpo", Epoch: 1}, nil,
			"by checkpoint.best.metric=val_loss rce epoch 2 is ahead: 2.400 against 2.600"},
		{"the same", BestSummary{Metric: "val_loss", Phase: "grpo", Epoch: 1}, nil, ""},
		{"within kl_max", BestSummary{Metric: "val_loss", Phase: "init"}, 1.0,
			"by checkpoint.best.metric=val_recorded_reward grpo epoch 1 is ahead: 0.5000 against 0.3000"},
		{"nothing within kl_max", BestSummary{Metric: "val_loss", Phase: "init"}, 0.01, ""},
	} {
		run.Tree = map[string]any{"checkpoint": map[string]any{"best": map[string]any{"kl_max": tc.klMax}}}
		if got := run.otherBest(&tc.best); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}
