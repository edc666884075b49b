package runreport

import (
	"bytes"
	"strings"
	"testing"

	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

// The formula of the reward stands in console, verdict and results, with a row for each term, a program of the user's among them.
func TestTheRewardsFormula(t *testing.T) {
	dir := fakeAnswers(t, 1)
	run, err := record.ReadRun(dir)
	reportstest.Must(t, err)
	run.Tree.(map[string]any)["rewards"] = map[string]any{"scale": 2.0, "clip_max": 1.5, "rouge": map[string]any{"weight": 0.0},
		"format": map[string]any{"weight": -0.1}, "vqa": map[string]any{"weight": 1},
		"external": map[string]any{"weight": 0.5, "command": []any{"python3", "score.py"}}}
	for i, row := range run.EvalRows {
		if row.Text("policy") != record.PolicyMajority && row.Text("policy") != record.PolicyReference {
			run.EvalRows[i].Fields["reward_external"] = 0.25
		}
	}
	text, err := ReportOf(run)
	reportstest.Must(t, err)
	var end bytes.Buffer
	reportstest.Must(t, PrintEnd(&end, run, []string{"report: run/report.md"}))
	if lines := strings.Count(end.String(), "\n"); lines > endLines {
		t.Errorf("%d lines", lines)
	}
	const formula = "Reward = 2 · (vqa + 0.5 · external − 0.1 · format), at most 1.5"
	for name, of := range map[string]struct{ text, want string }{
		"results":       {text, formula + ". Its terms, before their weights:\n\n| term | weight | initial policy | after sft (epoch 2) | "},
		"a term":        {text, "\n| vqa | 1 | 0 | 0.328 | 0.485 | 0.485 |\n"},
		"a user's term": {text, "\n| external (`python3 score.py`) | 0.5 | 0.250 |"},
		"console": {strings.ReplaceAll(end.String(), "\n  ", " "),
			formula + ": vqa 0 → 0.485, external 0.250 → 0.250, format 0 → 1.000.\n"},
	} {
		if !strings.Contains(of.text, of.want) {
			t.Errorf("%s: no %q in\n%s", name, of.want, of.text)
		}
	}
	delete(run.Tree.(map[string]any), "rewards") // of a selector, whose reward is no sum of terms
	text, err = ReportOf(run)
	reportstest.Must(t, err)
	if strings.Contains(text, "Reward =") || strings.Contains(page.Plain(text), "| term |") {
		t.Errorf("a formula of nothing:\n%s", text)
	}
}
