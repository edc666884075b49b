package runreport

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/chart"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

func TestReportOfAnswers(t *testing.T) {
	dir := fakeAnswers(t, 1)
	reportstest.Must(t, RebuildReport(dir))
	report := reportstest.ReadReport(t, dir)
	golden.File(t, "testdata/answers/report.md", []byte(report))
	for _, word := range []string{"selector", "shot", "selection", "beam", "candidate", "similarity", "chose", "pool"} {
		text := strings.NewReplacer("The val split chose the best", "", "any selection", "").Replace(report)
		if m := regexp.MustCompile(`(?i)[^\n]*\b` + word + `s?\b[^\n]*`).FindString(text); m != "" {
			t.Errorf("the report of a policy that writes says %q: %s", word, m)
		}
	}
	run, err := record.ReadRun(dir)
	reportstest.Must(t, err)
	var table bytes.Buffer
	reportstest.Must(t, PrintResults(&table, run.Summary.Evaluations, 0))
	golden.File(t, "testdata/answers/table.txt", table.Bytes())
}

// The report of a seq2seq policy, whose data ask nothing, speaks of texts; the records' own words stay.
func TestReportOfTexts(t *testing.T) {
	dir := fakeAnswers(t, 1)
	config := filepath.Join(dir, ".hydra", "config.yaml")
	text, err := os.ReadFile(config)
	reportstest.Must(t, err)
	reportstest.Must(t, os.WriteFile(config, regexp.MustCompile(`(?m)^policy: .*`).ReplaceAll(text, []byte("policy: seq2seq")), 0o644))
	reportstest.Must(t, RebuildReport(dir))
	report := reportstest.ReadReport(t, dir)
	if m := regexp.MustCompile(`(?i)[^\n|]*\b(questions?|answers)\b[^\n|]*`).FindAllString(
		regexp.MustCompile(`[^.]*Synthetic data.[^\n]*|Answers: [^\n]*`).ReplaceAllString(report, ""), -1); m != nil {
		t.Errorf("of texts:\n%s", strings.Join(m, "\n"))
	}
	for _, want := range []string{"On the held-out texts (dev)", "outputs of up to 16 tokens", "| text | target |"} {
		if !strings.Contains(report, want) {
			t.Errorf("no %q in\n%s", want, report)
		}
	}
}

// LOOK=/some/folder go test -run TestPlotsOfAnswers leaves a whole run folder there.
func TestPlotsOfAnswers(t *testing.T) {
	dir := fakeAnswers(t, 1)
	run, err := record.ReadRun(dir)
	reportstest.Must(t, err)
	reportstest.Must(t, DrawPlots(run))
	names := drawnNames(dir)
	if len(names) != len(Figures())-2 || slices.Contains(names, "points") || slices.Contains(names, "recorded_reward") { // neither is recorded
		t.Fatalf("drawn %v, want all of the %d figures but points and recorded_reward", names, len(Figures()))
	}
	for _, name := range names {
		svg, err := os.ReadFile(filepath.Join(dir, PlotsFolder, name+".svg"))
		reportstest.Must(t, err)
		reportstest.CheckTextInside(t, svg)
		golden.File(t, filepath.Join("testdata", "answers", name+".txt"), []byte(reportstest.SvgText(svg)+seriesText(run, name)))
	}
	if out := os.Getenv("LOOK"); out != "" {
		reportstest.Must(t, WriteReport(dir))
		reportstest.Must(t, os.CopyFS(out, os.DirFS(dir)))
	}
}

// Where the reward has no other term than the accuracy, one table and one figure say both.
func TestRewardThatIsAccuracy(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"reward", "accuracy"} {
		reportstest.Must(t, record.AppendEvals(dir, record.Evaluation{Split: "dev", Policy: "majority", Metric: name, Shots: 4,
			QueryIDs: []int64{1, 2, 3}, Scores: []float64{0, 0, 1}, Range: &[2]float64{0, 1}},
			record.Evaluation{Split: "dev", Policy: "best", Phase: "grpo", Epoch: 1, Metric: name, Shots: 4, QueryIDs: []int64{1, 2, 3},
				Scores: []float64{0, 1, 1}, Range: &[2]float64{0, 1}}))
	}
	log, err := record.OpenLog(dir, record.LogOptions{Stderr: &bytes.Buffer{}})
	reportstest.Must(t, err)
	reportstest.Record(t, log, record.KindStep, "grpo", 1, 1, 1,
		map[string]any{"completion_length": 2.0, "mean_reward": 0.5, "reward_vqa": 0.5, "reward_std": 0.1})
	reportstest.Record(t, log, record.KindEpoch, "grpo", 1, 1, 1, map[string]any{"val_reward": 0.6, "val_accuracy": 0.6})
	reportstest.Record(t, log, record.KindEpoch, "grpo", 2, 2, 2, map[string]any{"val_reward": 0.7, "val_accuracy": 0.7})
	reportstest.Must(t, log.Close())
	reportstest.Must(t, RebuildReport(dir))
	report := reportstest.ReadReport(t, dir)
	if !strings.Contains(report, "### Reward and accuracy on dev, held out (3 questions, answers of up to 4 tokens)") ||
		strings.Contains(report, "### Accuracy") {
		t.Errorf("two tables:\n%s", report)
	}
	if got := strings.Join(drawnNames(dir), " "); got != "reward sampled_reward completions" {
		t.Errorf("drawn %s", got)
	}
	run, err := record.ReadRun(dir)
	reportstest.Must(t, err)
	if terms := rewardTerms(run); terms != nil {
		t.Errorf("terms %v of a reward that is one term", terms)
	}
}

func TestCompletionsOfNoRun(t *testing.T) {
	dir := reportstest.FakeRun(t, 1)
	reportstest.Must(t, WriteReport(dir))
	if strings.Contains(reportstest.ReadReport(t, dir), "Sampled completions") {
		t.Error("a run without completions has a section of them")
	}
	reportstest.Must(t, os.WriteFile(filepath.Join(dir, record.CompletionsFile), []byte("{\"phase\":\n"), 0o644))
	if err := WriteReport(dir); err == nil || !strings.Contains(err.Error(), "completions.jsonl:1") {
		t.Errorf("damaged completions: %v", err)
	}
}

// Whatever a model writes, its cell is one line of printable UTF-8 in one cell, and what is not escaped
// comes back.
func FuzzTextCell(f *testing.F) {
	for _, s := range []string{"", "red", " red\n", "a|b", `\|`, "`", "``a`", "\x00\x1b[0m", "\xff", "a  b", "\u202eright", "|", `\\|`,
		strings.Repeat("long ", 40)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		cell := page.TextCell(s, completionWidth)
		if !utf8.ValidString(cell) || strings.ContainsFunc(cell,
			func(r rune) bool { return r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x202e }) {
			t.Fatalf("%q: cell %q does not print", s, cell)
		}
		var d page.Document
		d.Table([]string{"a", "b", "c"}, [][]string{{"x", cell, "y"}})
		lines := strings.Split(strings.TrimRight(d.B.String(), "\n"), "\n")
		if len(lines) != 3 {
			t.Fatalf("%q: %d lines of table, want 3", s, len(lines))
		}
		cells := splitRow(lines[2])
		if len(cells) != 3 || cells[0] != "x" || cells[2] != "y" {
			t.Fatalf("%q: cells %q", s, cells)
		}
		if s == "" {
			return
		}
		code := strings.TrimSuffix(cells[1], "…")
		fence := code[:len(code)-len(strings.TrimLeft(code, "`"))]
		inside, closed := strings.CutSuffix(strings.TrimPrefix(code, fence), fence)
		if fence == "" || !closed || strings.Contains(inside, fence) {
			t.Fatalf("%q: %q is no code", s, code)
		}
		if utf8.RuneCountInString(s) > completionWidth || strings.Contains(s, page.VisibleSpace) {
			return
		}
		want := string([]rune(s)) // each byte that is no UTF-8 is U+FFFD
		if got := readCode(t, inside); got != want {
			t.Fatalf("%q: %q reads back as %q", s, inside, got)
		}
	})
}

// splitRow reads a table row as a renderer does: cells end at bars, an escaped bar is a bar.
func splitRow(line string) []string {
	line = strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|")
	var cells []string
	var b strings.Builder
	for i := 0; i < len(line); i++ {
		switch {
		case line[i] == '\\' && i+1 < len(line) && line[i+1] == '|':
			b.WriteByte('|')
			i++
		case line[i] == '|':
			cells = append(cells, strings.TrimSpace(b.String()))
			b.Reset()
		default:
			b.WriteByte(line[i])
		}
	}
	return append(cells, strings.TrimSpace(b.String()))
}

// readCode undoes textCode inside its fence.
func readCode(t *testing.T, code string) string {
	t.Helper()
	if strings.HasPrefix(code, " ") {
		code = code[1 : len(code)-1]
	}
	text, err := strconv.Unquote(`"` + strings.ReplaceAll(strings.ReplaceAll(code, page.VisibleSpace, " "), `"`, `\"`) + `"`)
	reportstest.Must(t, err)
	return text
}

// Where completions name negative points, a figure shows how many, and how many lie in the confusion region and on the object.
func TestPointsFigure(t *testing.T) {
	dir := t.TempDir()
	log, err := record.OpenLog(dir, record.LogOptions{Stderr: &bytes.Buffer{}})
	reportstest.Must(t, err)
	for step := 1; step <= 20; step++ {
		x := float64(step) / 20
		reportstest.Record(t, log, record.KindStep, "grpo", 1+step/11, step, step,
			map[string]any{"completion_length": 12.0, "mean_reward": x, "reward_std": 0.1, "reward_points": x, "reward_points_std": 0.1,
				"reward_points_named": 2 + x, "reward_points_in_confusion": x * 2, "reward_points_on_object": 1 - x, "reward_points_named_std": 0.0})
	}
	reportstest.Record(t, log, record.KindEpoch, "grpo", 1, 10, 10,
		map[string]any{"val_reward": 0.6, "val_reward_points_named": 2.5, "val_reward_points_in_confusion": 1.5})
	reportstest.Must(t, log.Close())
	reportstest.Must(t, RebuildReport(dir))
	if got := strings.Join(drawnNames(dir), " "); got != "sampled_reward points completions" {
		t.Errorf("drawn %s", got)
	}
	run, err := record.ReadRun(dir)
	reportstest.Must(t, err)
	if terms := rewardTerms(run); terms != nil { // the only term is the reward: what it counts is none
		t.Errorf("terms %v", terms)
	}
	f := pointsFigure(run)
	if f == nil || len(f.Rows) != 2 {
		t.Fatalf("figure %+v: want two panels", f)
	}
	share := f.Rows[1][0].Layers[0].(chart.Curve)
	if last := len(share.Y) - 1; math.Abs(share.Y[last]-2./3) > 1e-12 || math.Abs(share.Y[0]-0.1/2.05) > 1e-12 {
		t.Errorf("shares in the confusion region %v: want 0.1/2.05 to 2/3", share.Y)
	}
	if out := os.Getenv("LOOK"); out != "" {
		reportstest.Must(t, os.CopyFS(out, os.DirFS(dir)))
	}
}
