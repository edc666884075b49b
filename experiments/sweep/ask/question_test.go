package ask

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep/launcher"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/internal/testkit/golden"
	"fulcrum/reports/arms"
	"fulcrum/reports/record"
	"fulcrum/reports/stats"
	"fulcrum/reports/sweepreport"
	"fulcrum/reports/sweeps"
)

// questionOf is a question of two arms after so many seeds, whose difference has this mean in standard errors of 0.01 over questions and no
// spread of seeds.
func questionOf(t *testing.T, seeds int, mean float64, rule sweeps.Ask) *question {
	t.Helper()
	const n, se = 400, 0.01
	one := arms.Arm{Name: "B", Metric: "reward"}
	scores := make([]float64, n)
	for i := range scores { // standard deviation over n − 1 of ±x: x √(n/(n − 1))
		one.QueryIDs = append(one.QueryIDs, int64(i))
		scores[i] = mean*se + se*19.975*float64(1-2*(i%2))
	}
	zero := arms.Arm{Name: "A", Metric: "reward", QueryIDs: one.QueryIDs}
	q := &question{dir: t.TempDir(), rule: rule, study: &sweeps.Study{Arms: []sweeps.StudyArm{{Name: "A"}, {Name: "B"}},
		Questions: []sweeps.StudyQuestion{{Ask: "Is B better than A", Arm: "B", Against: "A"}}}}
	for s := range int64(seeds) {
		one.Seeds, one.Scores = append(one.Seeds, s), append(one.Scores, scores)
		zero.Seeds, zero.Scores = append(zero.Seeds, s), append(zero.Scores, make([]float64, n))
		for _, arm := range []string{"A", "B"} {
			j := ledger.Job{Num: len(q.jobs), Arm: arm, Dir: fmt.Sprint(len(q.jobs)), State: launcher.Done, Seconds: 60}
			summarize(t, q, j, "the same")
			q.jobs = append(q.jobs, j)
		}
	}
	c, err := one.Against(zero, stats.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	_, c.Stage = stats.StageAt(seeds, rule.MaxSeeds)
	arms.HolmArms([]*arms.ArmComparison{&c})
	q.answers = []sweepreport.Answer{{Question: "Is B better than A?", Sentence: "It is.", ArmComparison: &c}}
	return q
}

// summarize writes what a job says of its data.
func summarize(t *testing.T, q *question, j ledger.Job, data string) {
	t.Helper()
	dir := filepath.Join(q.dir, j.Dir)
	text := fmt.Sprintf(`{"data": {"fingerprint": %q}}`, data)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, record.SummaryFile), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Each way to stand has its sentence, and says whether the question has ended for good.
func TestStandingSaysWhatItMeans(t *testing.T) {
	for _, tc := range []struct {
		seeds int
		mean  float64 // in standard errors of 0.01
		rule  sweeps.Ask
		want  standing
	}{
		{3, 1, sweeps.Ask{Effect: 0.02, MaxSeeds: 10}, standing{"Given up after 3 seeds of each arm: by the scores so far 10 seeds would " +
			"settle a difference of 0.02 with a chance below 10 %: more seeds are unlikely to move it; more held-out questions could.", 0, true}},
		{2, 1, sweeps.Ask{Effect: 0.02, MaxSeeds: 10}, standing{"Open after 2 seeds of each arm.", 3, false}},
		{3, 0, sweeps.Ask{Effect: 0.03, MaxSeeds: 10}, standing{"Open after 3 seeds of each arm.", 5, false}},
		{2, 1, sweeps.Ask{Effect: 0.02, MaxSeeds: 10, Budget: 5 * time.Minute}, standing{"Open after 2 seeds of each arm. The budget ends it: " +
			"of 5m00s of job time 4m00s are spent, and 3 seeds take 2m00s more.", 0, false}},
		{3, 9, sweeps.Ask{Effect: 0.02, MaxSeeds: 10}, standing{"Settled after 3 seeds of each arm.", 0, true}},
		{3, 1, sweeps.Ask{Effect: 0.02, MaxSeeds: 3}, standing{"Not settled after 3 seeds of each arm, the most that were to be trained.", 0,
			true}},
	} {
		if got, err := questionOf(t, tc.seeds, tc.mean, tc.rule).judge(); err != nil || got != tc.want {
			t.Errorf("%d seeds, mean %g: %+v, %v\nwant %+v", tc.seeds, tc.mean, got, err, tc.want)
		}
	}
}

// Seeds of one arm on different data are no sample of one recipe.
func TestChangedDataAreRefused(t *testing.T) {
	q := questionOf(t, 3, 9, sweeps.Ask{Effect: 0.02, MaxSeeds: 10})
	for _, j := range q.jobs {
		if j.Arm == "A" {
			summarize(t, q, j, "other data of this arm")
		}
	}
	if _, err := q.judge(); err != nil {
		t.Errorf("arms of other data: %v", err)
	}
	summarize(t, q, q.jobs[5], "changed")
	if now, err := q.judge(); err == nil || !strings.Contains(err.Error(), "the data changed between the seeds of arm B (jobs 1 and 5 ") {
		t.Errorf("%+v, %v", now, err)
	}
}

// A plan from two seeds is a rough guide and says so, and calls what is held out held out.
func TestPlanOfTwoSeeds(t *testing.T) {
	q := questionOf(t, 2, 1, sweeps.Ask{Effect: 0.02, MaxSeeds: 10})
	want := "Standard error from the held-out questions 0.010, from the seeds 0. By the spread of two seeds, a rough guide, a difference of " +
		"0.02 takes about 820 held-out questions with 10 seeds to settle: there are 400."
	if text := q.plan(3); !strings.HasPrefix(text, want) {
		t.Errorf("the plan does not say %q:\n%s", want, text)
	}
}

// The first stage says what it costs by earlier runs of its jobs, or that nobody knows, and keeps an answer that stands.
func TestFirstStage(t *testing.T) {
	q := questionOf(t, 2, 1, sweeps.Ask{Effect: 0.02, MaxSeeds: 10, Budget: time.Hour})
	if got := q.first(); got != "" {
		t.Errorf("after the first stage: %q", got)
	}
	q.dir = filepath.Join(t.TempDir(), "question")
	golden.Write(t, q.dir, map[string]string{"sweep.yaml": ""})
	for i := range q.jobs {
		q.jobs[i].State, q.jobs[i].Fingerprint = launcher.Queued, fmt.Sprint("configuration ", i)
	}
	for _, tc := range []struct{ state, configuration, want string }{
		{"", "", "What they cost is not known before the first job of each arm has ended: no earlier run has their settings. The cost of " +
			"further seeds is said before they are trained."},
		{record.StateFailed, "configuration 1", "What they cost is not known"},
		{record.StateDone, "configuration 9", "What they cost is not known"},
		{record.StateDone, "configuration 1", "By 1 earlier run with these settings and seeds they take 2m00s of job time, all at most 10m00s."},
	} {
		dir := filepath.Join(filepath.Dir(q.dir), "earlier")
		golden.Write(t, dir, map[string]string{runfolder.Marker: "{}", record.SummaryFile: fmt.Sprintf(
			`{"state": %q, "wall_seconds": 30, "versions": {"config": %q}}`, tc.state, tc.configuration)})
		got := q.first()
		if !strings.HasPrefix(got, "The first two seeds are 4 jobs, all 10 are 20. "+tc.want) ||
			!strings.HasSuffix(got, " The budget, 1h00m, limits what comes after them; they count towards it.\n") {
			t.Errorf("%s %s: %q, want %q", tc.state, tc.configuration, got, tc.want)
		}
	}
	q.answers = nil
	path := filepath.Join(q.dir, sweeps.AnswerFile)
	for _, kept := range []string{"No answer yet.", "the answer of the stage before"} {
		if err := q.unanswered(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil || !slices.Contains(strings.Split(string(text), "\n"), kept) {
			t.Errorf("%v: %s\nwant %s", err, text, kept)
		}
		if err := os.WriteFile(path, []byte("the answer of the stage before"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
