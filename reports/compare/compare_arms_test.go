package compare

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/sweeps"
)

// Six runs of two settings, three seeds each: two arms, with seed spread and question spread apart.
func TestCompareGroupsSeeds(t *testing.T) {
	dir := t.TempDir()
	var dirs []string
	for i := range 6 {
		lr, gain := "1.0e-5", 0.01
		if i%2 == 1 {
			lr, gain = "1.0e-4", 0.05
		}
		dirs = append(dirs, filepath.Join(dir, fmt.Sprint(i)))
		reportstest.SweepRun(t, dirs[i], uint64(i), gain+0.005*float64(i/2),
			fmt.Sprintf("seed: %d\ngrpo: {lr: %s}\nhydra: {run: {dir: %d}}\n", i/2, lr, i))
	}
	got, err := compareText(dirs)
	reportstest.Must(t, err)
	golden.File(t, "testdata/compare_arms.md", []byte(strings.ReplaceAll(got, page.Plain(dir), "DIR")))

	got, err = compareText([]string{dirs[0], dirs[2], dirs[4]}) // one arm has its baselines only
	reportstest.Must(t, err)
	if !strings.Contains(got, "All runs are one arm") || !strings.Contains(got, "| arm 1 | 3 |") || strings.Contains(got, "minus arm 1") {
		t.Errorf("one arm:\n%s", got)
	}
}

// Arms of a question have its answer and no verdict beside it; an answer that somebody else has written is none.
func TestCompareTellsTheAnswerToAQuestion(t *testing.T) {
	study := t.TempDir()
	var dirs []string
	for i := range 4 { // two seeds each, far apart
		dirs = append(dirs, filepath.Join(study, fmt.Sprint(i)))
		reportstest.SweepRun(t, dirs[i], uint64(i), 0.2*float64(i%2), fmt.Sprintf("seed: %d\ngrpo: {lr: %d.0e-5}\n", i/2, i%2+1))
	}
	for _, tc := range []struct{ answer, report, want, not string }{
		{"# Notes\n", "", "Arm 2 is better than arm 1: ", "A question"},
		{"# Question\n", "", "**A question** has runs A, B, C and D (`run ask`). Its own rule decides, by the policies that its runs " +
			"ended with: No answer yet.", "better than arm 1"},
		{"# Question\n", "# S\n\n## Answers\n\n- **1. Is B better?** `lr=2` is not separable from `lr=1`: +0.2.\n",
			"ended with: `lr=2` is not separable from `lr=1`: +0.2.", "better than arm 1"},
	} {
		golden.Write(t, study, map[string]string{sweeps.AnswerFile: tc.answer, page.ReportFile: tc.report})
		d, pairs, err := Compare(dirs)
		reportstest.Must(t, err)
		if text := d.Text(); strings.Contains(tc.answer, "Question") && strings.Index(text, "**A question**") > strings.Index(text, "| run |") {
			t.Errorf("the answer is not told first:\n%s", text)
		}
		asked := strings.Contains(tc.answer, "Question")
		if text := d.Text(); !strings.Contains(text, tc.want) || strings.Contains(text, tc.not) ||
			asked != strings.Contains(text, "see the question") || asked != (len(pairs) == 0) {
			t.Errorf("%q: %d pairs, want %q and no %q in\n%s", tc.answer, len(pairs), tc.want, tc.not, text)
		}
	}
	text, err := compareText(dirs[:2]) // of two runs no question is asked
	if err != nil || !strings.Contains(text, "B is better than A (of these two runs; other seeds may differ)") ||
		!strings.Contains(text, "**A question**") {
		t.Errorf("%v\n%s", err, text)
	}
}

// Runs that differ in control alone are arms, one run each will do, and split the gain; without one of them the report says what is
// missing.
func TestCompareSplitsGains(t *testing.T) {
	dir := t.TempDir()
	var dirs []string
	for i, control := range []string{"none", "placebo", "majority"} {
		dirs = append(dirs, filepath.Join(dir, control))
		reportstest.SweepRun(t, dirs[i], 1, []float64{0.1, 0.01, 0.03}[i], "seed: 1\ncontrol: "+control+"\n")
	}
	got, err := compareText(dirs)
	reportstest.Must(t, err)
	if !strings.Contains(got, "The gain is not split in null, elicitation and reward") {
		t.Errorf("nothing says that no initial policy was scored:\n%s", got)
	}
	for _, run := range dirs {
		path := filepath.Join(run, record.EvalsFile)
		evals, err := os.ReadFile(path)
		reportstest.Must(t, err)
		reportstest.Must(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(evals), `"similarity"`, `"init"`)), 0o644))
	}
	got, err = compareText(dirs)
	reportstest.Must(t, err)
	for _, want := range []string{"| elicitation: agreeing with itself | arm 3 minus arm 2 | ",
		"Null + elicitation + reward is the gain of arm 1"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	got, err = compareText(dirs[:2])
	reportstest.Must(t, err)
	if !strings.Contains(got, "and have none, a placebo and majority; here are none and placebo.") {
		t.Errorf("nothing says which control is missing:\n%s", got)
	}
}

// A section that some runs lack is one line, but for the keys in which the others differ.
func TestCompareFoldsSections(t *testing.T) {
	dir := t.TempDir()
	for i, grpo := range []string{"", "grpo: {lr: 1, kl: {beta: 2}, clip: 3}\n", "grpo: {lr: 4, kl: {beta: 2}, clip: 3}\nsft: {lr: 5}\n"} {
		reportstest.SweepRun(t, filepath.Join(dir, fmt.Sprint(i)), 1, 0.1, "seed: 1\n"+grpo)
	}
	got, err := compareText([]string{filepath.Join(dir, "0"), filepath.Join(dir, "1"), filepath.Join(dir, "2")})
	reportstest.Must(t, err)
	_, got, _ = strings.Cut(got, "## Settings that differ")
	for _, want := range []string{"| `grpo.*` | (absent) | 2 keys | 2 keys |", "| `grpo.lr` | (absent) | 1 | 4 |",
		"| `sft.lr` | (absent) | (absent) | 5 |"} {
		if got = strings.ReplaceAll(got, "  ", " "); strings.Count(got, want) != 1 {
			t.Errorf("want %q once in\n%s", want, got)
		}
	}
}
