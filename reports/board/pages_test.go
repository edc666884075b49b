package board

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/list"
	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/compare"
	"fulcrum/reports/record"
	"fulcrum/reports/runreport"
	"fulcrum/reports/sweepreport"
	"fulcrum/reports/sweeps"
)

// The same runs give the same interval in the sweep's report, in a comparison of them, in one of more runs and on the board, and a run the
// same in its report, beside another and in the list, though each page corrects its verdicts for a family of its own, which it names.
func TestOneQuestionHasOneInterval(t *testing.T) {
	root := t.TempDir()
	var dirs []string
	var jobs []sweeps.Job
	for i := range 9 { // the best setting first, three seeds each
		setting, dir := i%3, filepath.Join(root, fmt.Sprint(i))
		reportstest.SweepRun(t, dir, uint64(i), 0.06-0.02*float64(setting)+0.005*float64(i/3),
			fmt.Sprintf("task: train\nseed: %d\ngrpo: {lr: 1e-%d}\n", i/3, setting+3))
		evals, err := record.ReadEvals(dir)
		reportstest.Must(t, err)
		for k := range evals {
			evals[k].Metric = "accuracy"
		}
		reportstest.Must(t, record.AppendEvals(dir, evals...)) // another table, and another family
		reportstest.Must(t, runreport.WriteReport(dir))
		dirs = append(dirs, dir)
		jobs = append(jobs, sweeps.Job{Number: i, Dir: dir, State: record.StateDone, Objectives: []float64{1 - float64(setting)},
			Overrides: []string{fmt.Sprintf("grpo.lr=1e-%d", setting+3), fmt.Sprintf("seed=%d", i/3)}})
	}
	two := slices.DeleteFunc(jobs, func(j sweeps.Job) bool { return j.Number%3 == 2 })
	six := list.Map(two, func(j sweeps.Job) string { return j.Dir })
	sweep := t.TempDir()
	reportstest.Must(t, sweepreport.WriteReport(sweep, two, sweeps.Options{Objectives: []sweeps.Objective{{Name: "score"}}}))

	families := map[string]bool{}
	family := regexp.MustCompile(`corrected for the (\d+) comparisons?.*, the family of this page`)
	read := func(text string) string {
		found := family.FindStringSubmatch(text)
		if found == nil {
			t.Fatalf("no family is named:\n%s", text)
		}
		families[found[1]] = true
		return text
	}
	document, pairs, err := compare.Compare(six)
	reportstest.Must(t, err)
	want := pairs[0].Text
	b := boardOf(root)
	b.Scan(true)
	var ids []string
	for _, dir := range six {
		ids = append(ids, b.entryAt(t, dir).ID)
	}
	shown, err := b.comparison(strings.Join(ids, ","))
	reportstest.Must(t, err)
	more, others, err := compare.Compare(dirs)
	reportstest.Must(t, err)
	for name, text := range map[string]string{"sweep": read(reportstest.ReadReport(t, sweep)), "comparison": read(document.Text()),
		"of more runs": read(more.Text()), "its pair": others[0].Text, "board": shown.Pairs[0].Text, "board's report": shown.Report} {
		if !strings.Contains(text, want) {
			t.Errorf("%s: no %s in\n%s", name, want, text)
		}
	}
	if len(families) < 3 {
		t.Errorf("the pages have the families %v: the test asks nothing", families)
	}

	want = b.entryAt(t, dirs[0]).Gain.Text
	document, _, err = compare.Compare(dirs[:2])
	reportstest.Must(t, err)
	for name, text := range map[string]string{"report": reportstest.ReadReport(t, dirs[0]), "comparison": document.Text()} {
		if !strings.Contains(text, want) {
			t.Errorf("%s: no %s in\n%s", name, want, text)
		}
	}
}
