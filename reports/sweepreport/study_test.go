package sweepreport

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/arms"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/runreport"
	"fulcrum/reports/stats"
	"fulcrum/reports/sweeps"
)

// armMaker writes the run folders of a study: arms whose gains over the start are known.
type armMaker struct {
	t   *testing.T
	dir string
	n   int // questions of each split
	// easier is what every policy scores more, with four shots and not two
	easier  float64
	variant string // of the selector
}

// run writes one run of an arm. gain is what its last policy gains on average, start what the policy gained that it
// starts with.
func (m armMaker) run(num int, phase string, seed int64, start, gain float64) sweeps.Job {
	t := m.t
	t.Helper()
	dir := filepath.Join(m.dir, fmt.Sprint(num))
	reportstest.Must(t, os.MkdirAll(filepath.Join(dir, ".hydra"), 0o755))
	config := fmt.Sprintf("seed: %d\nselector: {variant: %s}\ngrpo: {kl: {beta: 0.1, controller: band, target_min: 0.01, target_max: 0.1}}\n",
		seed, m.variant)
	shots := 2
	if m.easier > 0 {
		shots = 4
	}
	reportstest.Must(t, os.WriteFile(filepath.Join(dir, ".hydra/config.yaml"), []byte(config), 0o644))
	clock := reportstest.NewClock(time.Second)
	log, err := record.OpenLog(dir, record.LogOptions{LoggingOptions: record.DefaultLoggingOptions(), Stderr: &bytes.Buffer{},
		Now: clock})
	reportstest.Must(t, err)
	for _, e := range []struct {
		policy string
		epoch  int
		gain   float64
	}{{"random", 0, -0.2}, {"similarity", 0, 0.01}, {"init", 0, start}, {"best_beam", 0, 0.5}, {"oracle", 0, 0.55},
		{phase, 3, start + gain}, {"best", 2, start + 0.8*gain}} {
		if e.policy == "" { // schedule=[]
			continue
		}
		for _, split := range []string{"val", "dev"} {
			ids, scores := m.scores(split, e.policy, seed, e.gain+m.easier)
			accuracy := make([]float64, m.n)
			for i := range accuracy {
				accuracy[i] = math.Round(scores[i])
			}
			reportstest.Must(t, log.Scores(record.Evaluation{Split: split, Policy: e.policy, Phase: phase, Epoch: e.epoch,
				Metric: "reward", Shots: shots, QueryIDs: ids, Scores: scores}))
			reportstest.Must(t, log.Scores(record.Evaluation{Split: split, Policy: e.policy, Phase: phase, Epoch: e.epoch,
				Metric: "accuracy", Shots: shots, QueryIDs: ids, Scores: accuracy}))
		}
	}
	rng := rand.New(rand.NewPCG(uint64(seed), uint64(num)))
	for epoch := 1; epoch <= 3 && phase != ""; epoch++ {
		for step := 4*epoch - 3; step <= 4*epoch; step++ {
			reportstest.Must(t, log.Record(record.KindStep, phase, epoch, step, step, map[string]any{"loss": 1.0, "step_seconds": 0.5}))
		}
		f := map[string]any{"val_reward": 0.4 + start + gain*float64(epoch)/3 + 0.01*rng.Float64(), "val_kl": 0.02 * float64(epoch),
			"step_seconds": 0.5}
		if phase == "grpo" {
			f["kl_beta_next"], f["kl_beta_at_bound"] = 0.1/float64(epoch), epoch == 3
		}
		reportstest.Must(t, log.Record(record.KindEpoch, phase, epoch, 4*epoch, 4*epoch, f))
	}
	if phase == "grpo" && seed == 1 {
		reportstest.Must(t, log.Record(record.KindEvent, phase, 3, 12, 12, map[string]any{"event": "kl_beta_at_bound",
			"severity": "warning", "message": "the KL coefficient sits on its bound 0.03", "value": 0.03}))
	}
	reportstest.Must(t, log.Close())
	summary := record.Summary{
		State: record.StateDone, Task: "train", Seed: seed, Device: "cpu", Threads: 1, Start: "2025-03-01T12:00:00Z", WallSeconds: 30,
		Versions: map[string]string{"fulcrum": "0.1.0", "go": "go1.26", "config": fmt.Sprint(num)},
		Data: record.DataSummary{Name: "invented", Fingerprint: "abc123", Counts: map[string]int{"val_queries": m.n,
			"dev_queries": m.n}, Shots: 2, EvalName: "dev"},
		Evaluations: []record.StageResult{}, Warnings: []string{},
	}
	rows, err := record.ReadRun(dir)
	reportstest.Must(t, err)
	summary.AddRecorded(rows)
	reportstest.Must(t, results.WriteSummary(dir, summary))
	return sweeps.Job{Number: num, Dir: dir, State: record.StateDone, Objectives: []float64{0.4 + start + gain}, Epochs: 3, Seconds: 30,
		Attempts: 1}
}

// scores are between 0 and 1, easy or hard by question, and a little by seed and policy.
func (m armMaker) scores(split, policy string, seed int64, gain float64) (ids []int64, scores []float64) {
	shared := rand.New(rand.NewPCG(5, uint64(len(split))))
	if slices.Contains(sweeps.StudyBaselines(), policy) && policy != "init" {
		seed = 0
	}
	own := rand.New(rand.NewPCG(uint64(seed), uint64(1e6*(gain+1))))
	for i := range m.n {
		ids = append(ids, int64(i))
		scores = append(scores, math.Round(1e4*min(max(0.2+0.4*shared.Float64()+gain+0.1*own.NormFloat64(), 0), 1))/1e4)
	}
	return
}

// aStudy is a study of four arms and three seeds, in which RCE is worth 0.1, GRPO after it nothing, GRPO alone -0.05;
// one run failed, and one that would have started from it was skipped.
func aStudy(t *testing.T, dir string) ([]sweeps.Job, sweeps.Options) {
	m := armMaker{t, dir, 80, 0, "v0"}
	study := &sweeps.Study{
		Arms: []sweeps.StudyArm{
			{Name: "rce", Label: "RCE", Overrides: []string{"schedule=[rce]"}},
			{Name: "rce_grpo", Label: "RCE, then GRPO", From: "rce", Checkpoint: "last", Overrides: []string{"schedule=[grpo]"}},
			{Name: "grpo", Label: "GRPO alone", Overrides: []string{"schedule=[grpo]", "grpo.lr=1e-3"}},
			{Name: "never", Label: "never run", From: "grpo", Checkpoint: "best"},
		},
		Questions: []sweeps.StudyQuestion{
			{Ask: "What is RCE worth", Arm: "rce", Against: "init"},
			{Ask: "What does GRPO add to it?", Arm: "rce_grpo", Against: "rce", Metric: "reward"},
			{Ask: "Does GRPO alone lose?", Arm: "grpo", Against: "init", Metric: "accuracy"},
			{Ask: "How far is the oracle?", Arm: "rce_grpo", Against: "oracle", Split: "val", Metric: "reward"},
			{Ask: "What is it worth?", Arm: "never", Against: "rce", Metric: "reward"},
		},
	}
	var jobs []sweeps.Job
	for seed := range int64(3) {
		luck := 0.004 * float64(seed)
		for _, arm := range study.Arms {
			num := len(jobs)
			var j sweeps.Job
			switch arm.Name {
			case "rce":
				j = m.run(num, "rce", seed, 0, 0.1+luck)
			case "rce_grpo":
				j = m.run(num, "grpo", seed, 0.1+luck, 0)
			case "grpo":
				j = m.run(num, "grpo", seed, 0, -0.05+luck)
			}
			if arm.Name == "grpo" && seed == 2 {
				j.State, j.Cause, j.ExitCode = record.StateFailed, "the loss is NaN", 1
			}
			if arm.Name == "never" {
				j = sweeps.Job{Number: num, Dir: filepath.Join(dir, fmt.Sprint(num)), State: sweeps.StateSkipped,
					Cause: "it starts from another job, which failed"}
			}
			j.Overrides = []string{"arm=" + arm.Name, fmt.Sprintf("seed=%d", seed), "exp=invented"}
			j.Params = map[string]string{sweeps.ArmKey: arm.Name, "seed": fmt.Sprint(seed)}
			jobs = append(jobs, j)
		}
	}
	return jobs, sweeps.Options{
		Title: "Study of 4 arms", Objectives: []sweeps.Objective{{Name: "val_reward"}}, Sweeper: "study", Launcher: "local", Study: study,
		Dimensions: []sweeps.Dimension{{Key: sweeps.ArmKey, Values: []string{"rce", "rce_grpo", "grpo", "never"}},
			{Key: "seed", Values: []string{"0", "1", "2"}}},
		Command: []string{"run", "-m", "exp=invented"},
	}
}

// TestQuestionsOfRecordedRewards: where nothing scores selections, a question that names no metric is about the recorded reward.
func TestQuestionsOfRecordedRewards(t *testing.T) {
	for metrics, want := range map[string]string{"reward accuracy": "reward", "loss recorded_reward": "recorded_reward", "loss": "reward"} {
		run := &record.Run{}
		for _, metric := range strings.Fields(metrics) {
			run.Evaluations = append(run.Evaluations, record.Evaluation{Split: "val", Metric: metric})
		}
		v := &View{settings: []*setting{{runs: []*record.Run{run}}}}
		if got := v.score(); got != want {
			t.Errorf("evaluations by %s: the question is about %s, want %s", metrics, got, want)
		}
	}
}

// LOOK=/some/folder leaves the study there: look at its plots after changing a figure.
func TestStudyReport(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "study")
	if out := os.Getenv("LOOK"); out != "" {
		dir = filepath.Join(out, "study")
	}
	jobs, opt := aStudy(t, dir)
	reportstest.Must(t, WriteReport(dir, jobs, opt))
	text := reportstest.ReadReport(t, dir)
	golden.File(t, "testdata/studies/small.md", []byte(strings.ReplaceAll(text, dir, "DIR")))
	for _, name := range []string{"answers", "curves"} {
		svg, err := os.ReadFile(filepath.Join(dir, runreport.PlotsFolder, name+".svg"))
		reportstest.Must(t, err)
		golden.File(t, "testdata/studies/small_"+name+".txt", []byte(reportstest.SvgText(svg)))
	}
	told, without := PageOf(dir, jobs, opt).Arms() // for the table of a paper
	names := list.Map(told, func(a arms.ComparedArm) string { return fmt.Sprintf("%s of %d", a.Name, len(a.Runs)) })
	const want = "RCE of 3; RCE, then GRPO of 3; GRPO alone of 2; 10; 3; 7; 11"
	if got := strings.Join(append(names, without...), "; "); got != want {
		t.Errorf("arms and jobs in none: %s, want %s", got, want)
	}
	rows, _ := arms.ToldOf(told, "dev", "reward") // a table and a figure have the answer's numbers
	if got, want := rows[1].Difference, PageOf(dir, jobs, opt).answers[1].c; got.Gain() != want.Gain() || got.PHolm != want.PHolm {
		t.Errorf("a paper has %s, p %g, the answer %s, p %g", got.Gain(), got.PHolm, want.Gain(), want.PHolm)
	}
	slices.Reverse(jobs)
	reportstest.Must(t, WriteReport(dir, jobs, opt))
	if reportstest.ReadReport(t, dir) != text {
		t.Error("the same jobs in another order give another report")
	}
}

// The answers are those of the comparison by hand: the right runs, policies and seeds on both sides.
func TestStudyAnswers(t *testing.T) {
	dir := t.TempDir()
	jobs, opt := aStudy(t, dir)
	v := PageOf(t.TempDir(), jobs, opt)
	reportstest.Must(t, WriteReport(dir, jobs, opt))
	if got, want := sweeps.ToldAnswers(dir), list.Map(v.Answers(), func(a Answer) string { return a.Sentence }); !slices.Equal(got, want) {
		t.Errorf("the report tells the answers %q, want %q", got, want)
	}
	mean := func(seed int64, policy, split, metric string, num int) float64 {
		run, err := record.ReadRun(jobs[num].Dir)
		reportstest.Must(t, err)
		e, err := results.EvaluationOf(run, split, metric, policy)
		reportstest.Must(t, err)
		return e.Mean()
	}
	want := make([]float64, 4)
	for s := range int64(3) {
		at := int(4 * s)
		want[0] += (mean(s, "rce", "dev", "reward", at) - mean(s, "init", "dev", "reward", at)) / 3
		want[1] += (mean(s, "grpo", "dev", "reward", at+1) - mean(s, "rce", "dev", "reward", at)) / 3
		want[3] += (mean(s, "grpo", "val", "reward", at+1) - mean(s, "oracle", "val", "reward", at)) / 3
		if s < 2 { // the third run failed: the seeds that both sides have count
			want[2] += (mean(s, "grpo", "dev", "accuracy", at+2) - mean(s, "init", "dev", "accuracy", at+2)) / 2
		}
	}
	for i, w := range want {
		if a := v.answers[i]; a.c == nil || math.Abs(a.c.Mean-w) > 1e-12 {
			t.Errorf("answer %d: %+v (%s), want a mean of %g", i+1, a.c, a.refused, w)
		}
	}
	if a := v.answers[4]; a.c != nil || a.refused != "no run of never run is done" {
		t.Errorf("an arm without runs is answered: %+v, %s", a.c, a.refused)
	}
	if got := v.answers[2].c.Seeds; got != 2 {
		t.Errorf("%d seeds where one of three runs failed", got)
	}
	for i, verdict := range []stats.Verdict{stats.Better, stats.NotSeparable, "", stats.Worse} {
		if got := v.answers[i].c.Verdict; verdict != "" && got != verdict {
			t.Errorf("answer %d is %s, want %s", i+1, got, verdict)
		}
	}
	// Holm over the four that could be made, not over five, and not over other measures.
	family := []float64{}
	for _, a := range v.answers[:4] {
		family = append(family, a.c.P)
	}
	for i, p := range stats.Holm(family) {
		if v.answers[i].c.PHolm != p {
			t.Errorf("answer %d: p %g, want %g", i+1, v.answers[i].c.PHolm, p)
		}
	}
}

// Whatever else is swept splits a study into settings: each question is answered in each, and the correction is for
// all of them.
func TestStudySettings(t *testing.T) {
	dir := t.TempDir()
	m := armMaker{t, dir, 40, 0, "v0"}
	study := &sweeps.Study{Arms: []sweeps.StudyArm{{Name: "rce", Label: "RCE"}},
		Questions: []sweeps.StudyQuestion{{Ask: "Worth?", Arm: "rce", Against: "init", Metric: "reward"}}}
	var jobs []sweeps.Job
	for _, lr := range []string{"1e-3", "1e-4"} {
		for seed := range int64(2) {
			j := m.run(len(jobs), "rce", seed, 0, 0.1)
			j.Overrides = []string{"arm=rce", fmt.Sprintf("seed=%d", seed), "rce.lr=" + lr}
			j.Params = map[string]string{sweeps.ArmKey: "rce", "seed": fmt.Sprint(seed), "rce.lr": lr}
			jobs = append(jobs, j)
		}
	}
	for _, j := range jobs[2:] { // a file or ++init.checkpoint set it: no override of the sweep's own says so
		path := filepath.Join(j.Dir, ".hydra/config.yaml")
		config, err := os.ReadFile(path)
		reportstest.Must(t, err)
		reportstest.Must(t, os.WriteFile(path, append(config, "init: {checkpoint: runs/base}\n"...), 0o644))
	}
	opt := sweeps.Options{Study: study, Dimensions: []sweeps.Dimension{{Key: sweeps.ArmKey}, {Key: "seed"}, {Key: "rce.lr"}}}
	reportstest.Must(t, WriteReport(dir, jobs, opt))
	text := reportstest.ReadReport(t, dir)
	for _, want := range []string{"4 jobs in 2 settings: 4 done", "Worth? (`rce.lr=1e-3`)", "Worth? (`rce.lr=1e-4`)",
		"Arms and baselines with `rce.lr=1e-4`", "corrected for the 2 questions", "| RCE | fresh weights from seed |",
		"| RCE | `runs/base` |"} {
		if !strings.Contains(text, want) {
			t.Errorf("report.md does not say %q:\n%s", want, text)
		}
	}
}

// An arm that leaves the shots of the one that it starts from is compared with the untrained policy at its own shots, and the table has
// the baselines of both.
func TestStudyOfTwoShots(t *testing.T) {
	dir := t.TempDir()
	two, four := armMaker{t, dir, 80, 0, "v0"}, armMaker{t, dir, 80, 0.1, "v0"}
	study := &sweeps.Study{
		Arms: []sweeps.StudyArm{{Name: "two", Label: "Two"}, {Name: "four", Label: "Four"},
			{Name: "top", Label: "Two’s top four", From: "two", Checkpoint: "last"}},
		Questions: []sweeps.StudyQuestion{{Ask: "Worth?", Arm: "top", Against: "init", Metric: "reward"},
			{Ask: "Ahead?", Arm: "four", Against: "top", Metric: "reward"}}}
	var jobs []sweeps.Job
	for seed := range int64(2) {
		for i, j := range []sweeps.Job{two.run(len(jobs), "rce", seed, 0, 0.05), four.run(len(jobs)+1, "rce", seed, 0, 0.05),
			four.run(len(jobs)+2, "", seed, 0.03, 0)} {
			j.Params = map[string]string{sweeps.ArmKey: study.Arms[i].Name, "seed": fmt.Sprint(seed)}
			j.Overrides = []string{"arm=" + study.Arms[i].Name, fmt.Sprintf("seed=%d", seed)}
			jobs = append(jobs, j)
		}
	}
	opt := sweeps.Options{Study: study, Dimensions: []sweeps.Dimension{{Key: sweeps.ArmKey}, {Key: "seed"}}}
	v := PageOf(dir, jobs, opt)
	for i, want := range []float64{0.03, 0.02} {
		if a := v.answers[i]; a.c == nil || math.Abs(a.c.Mean-want) > 0.02 {
			t.Errorf("answer %d: %+v (%s), want about %g", i+1, a.c, a.refused, want)
		}
	}
	start, arm := v.conditions[0].arm("two"), v.conditions[0].arm("top")
	start.runs[0].Summary.Phases = []record.PhaseSummary{{Calls: 1000}, {Calls: 500}}
	arm.runs[0].Summary.Phases = []record.PhaseSummary{{Calls: 20}}
	if got := arm.callsCell(); got != "1,520" {
		t.Errorf("%s reader calls, want those of the arm and of its start", got)
	}
	top := arm.runs[0].Tree.(map[string]any)["selector"].(map[string]any)
	top["variant"] = "v3"
	if a, why := v.compare(v.conditions[0], "top", "init", "dev", "reward", false); a != nil {
		t.Errorf("the untrained policy of another selector is none of this arm's: %+v, %s", a, why)
	}
	top["variant"] = "v0"
	reportstest.Must(t, WriteReport(dir, jobs, opt))
	text := reportstest.ReadReport(t, dir)
	for _, want := range []string{"*similarity*, as for Two |", "*similarity*, as for Four |", "*initial policy*, as for Four |",
		"| Two’s top four | Two (last) |"} {
		if !strings.Contains(text, want) {
			t.Errorf("report.md does not say %q:\n%s", want, text)
		}
	}
}

// Where more than the arm is swept, the table of a paper takes the first row off each of the others, under any setting.
func TestPaperOfConditions(t *testing.T) {
	m := armMaker{t, t.TempDir(), 80, 0, "v0"}
	study := &sweeps.Study{Arms: []sweeps.StudyArm{{Name: "a"}, {Name: "b"}},
		Questions: []sweeps.StudyQuestion{{Ask: "Worth?", Arm: "b", Against: "a", Metric: "reward"}}}
	var jobs []sweeps.Job
	for at, lr := range []string{"1e-3", "1e-4"} {
		for i, arm := range study.Arms {
			for seed := range int64(3) {
				j := m.run(len(jobs), "rce", seed, 0, 0.1*float64(at)+0.02*float64(i))
				j.Params = map[string]string{sweeps.ArmKey: arm.Name, "seed": fmt.Sprint(seed), "rce.lr": lr}
				j.Overrides = []string{"arm=" + arm.Name, fmt.Sprintf("seed=%d", seed), "rce.lr=" + lr}
				jobs = append(jobs, j)
			}
		}
	}
	opt := sweeps.Options{Study: study, Dimensions: []sweeps.Dimension{{Key: sweeps.ArmKey}, {Key: "seed"}, {Key: "rce.lr"}}}
	told, _ := PageOf(t.TempDir(), jobs, opt).Arms()
	rows, over := arms.ToldOf(told, "dev", "reward")
	for _, r := range rows[1:4] {
		if want := stat.Mean(r.QueryScores()) - stat.Mean(rows[0].QueryScores()); math.Abs(r.Difference.Mean-want) > 1e-9 {
			t.Errorf("%s is %g over %s, want %g", r.Name, r.Difference.Mean, over, want)
		}
	}
}

// A study that grows says of p and of grey intervals that they are corrected for its stage.
func TestStudyOfStages(t *testing.T) {
	dir := t.TempDir()
	jobs, opt := aStudy(t, dir)
	opt.Ask = &sweeps.Ask{Effect: 0.5, MaxSeeds: 10}
	for _, tc := range []struct {
		questions int
		want      string
	}{{5, "fails the correction for its stage and for the number of arms."}, {1, "fails the correction for its stage."}} {
		opt.Study.Questions = opt.Study.Questions[:tc.questions]
		if note := PageOf(dir, jobs, opt).answersFigure().Figure.Note; !strings.HasSuffix(note, tc.want) {
			t.Errorf("%d questions: %q, want %q", tc.questions, note, tc.want)
		}
	}
	reportstest.Must(t, WriteReport(dir, jobs, opt))
	text := reportstest.ReadReport(t, dir)
	for _, want := range []string{"| p (Holm, stage) |", "corrected for the 1 question asked here (Holm) and for the stage",
		"less than the 0.5 worth having", "| smaller than 0.5 "} {
		if !strings.Contains(text, want) {
			t.Errorf("report.md does not say %q:\n%s", want, text)
		}
	}
}

// A study that nothing has been done of has a report all the same.
func TestStudyWithoutRuns(t *testing.T) {
	dir := t.TempDir()
	study := &sweeps.Study{Arms: []sweeps.StudyArm{{Name: "rce", Label: "RCE"}},
		Questions: []sweeps.StudyQuestion{{Ask: "Worth?", Arm: "rce", Against: "init", Metric: "reward"}}}
	jobs := []sweeps.Job{{Number: 0, Dir: filepath.Join(dir, "0"), State: sweeps.StateQueued, Overrides: []string{"arm=rce", "seed=0"},
		Params: map[string]string{sweeps.ArmKey: "rce"}}}
	reportstest.Must(t, WriteReport(dir, jobs, sweeps.Options{Study: study}))
	if text := reportstest.ReadReport(t, dir); !strings.Contains(text, "has not ended") ||
		!strings.Contains(text, "No answer: no run of RCE is done.") || strings.Contains(text, "NaN") {
		t.Errorf("report.md:\n%s", text)
	}
	reportstest.Must(t, WriteReport(dir, nil, sweeps.Options{Study: study}))
}
