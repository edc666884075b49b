package reports

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/golden"
)

func TestReport(t *testing.T) {
	dir := fakeRun(t, 1)
	must(t, os.MkdirAll(filepath.Join(dir, plotsFolder), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, plotsFolder, "kl.png"), nil, 0o644)) // only what is there is embedded
	summary := fakeSummary()
	must(t, WriteSummary(dir, summary)) // with the results of every stage
	must(t, WriteReport(dir))
	got, err := os.ReadFile(ReportPath(dir))
	must(t, err)
	golden.File(t, "testdata/report.md", got)

	must(t, WriteReport(dir))
	again, err := os.ReadFile(ReportPath(dir))
	must(t, err)
	if !bytes.Equal(got, again) {
		t.Error("the same records gave two reports")
	}

	run, err := ReadRun(dir)
	must(t, err)
	var table bytes.Buffer
	stages, err := stagesOf(run)
	must(t, err)
	must(t, PrintResults(&table, stages))
	golden.File(t, "testdata/table.txt", table.Bytes())
}

// Reports of runs that did not end well, or have little to show.
func TestReportHeadlines(t *testing.T) {
	better := &Paired{N: 100, Mean: 0.02, Interval: Interval{0.01, 0.03}, P: 0.0001, PHolm: 0.0001, Level: 0.95, Changed: 50, Verdict: Better}
	same := &Paired{N: 100, Level: 0.95, Verdict: NotSeparable}
	val := StageResult{Split: "val", Metric: "reward", Policy: "best", Phase: "rce", Epoch: 1, Mean: 0.5, OverSimilarity: better}
	for _, tc := range []struct {
		name    string
		summary *Summary
		stages  []StageResult
		want    []string
	}{
		{"still running", nil, nil, []string{"**This run has not ended.**"}},
		{"failed says why", &Summary{State: StateFailed, Error: "grpo epoch 1 step 3: loss is nan"}, nil, []string{"**This run failed:** grpo epoch 1 step 3: loss is nan"}},
		{"interrupted says how to go on", &Summary{State: StateInterrupted}, nil, []string{"`run resume FOLDER`"}},
		{"synthetic data is said first", &Summary{State: StateDone, Data: DataSummary{Synthetic: true, Notice: "Drawn scenes."}}, nil, []string{"**Synthetic data.** Drawn scenes."}},
		{"the held-out split decides", &Summary{State: StateDone}, []StageResult{val,
			{Split: "dev", Metric: "reward", Policy: "grpo", Phase: "grpo", Epoch: 2, OverSimilarity: same},
			{Split: "dev", Metric: "reward", Policy: "best", Phase: "grpo", Epoch: 1, OverSimilarity: better},
			{Split: "dev", Metric: "accuracy", Policy: "best", Phase: "grpo", Epoch: 1, OverSimilarity: same}},
			[]string{"**Verdict.** On dev: The best policy (grpo epoch 1) is better than similarity: +0.0200 reward"}},
		{"val where there is no other", &Summary{State: StateDone}, []StageResult{val}, []string{"On val: The best policy (rce epoch 1) is better"}},
		{"references that score alike are one", &Summary{State: StateDone}, []StageResult{
			{Split: "val", Metric: "reward", Policy: "init", OverSimilarity: same}, {Split: "val", Metric: "reward", Policy: "best", Phase: "rce", Epoch: 1, OverSimilarity: better, OverInit: better}},
			[]string{"is better than similarity (and the initial policy, which scores the same): +0.0200"}},
		{"nothing to compare with", &Summary{State: StateDone}, []StageResult{{Split: "val", Metric: "reward", Policy: "rce", Phase: "rce", Epoch: 1, Mean: 0.5}},
			[]string{"On val, the policy after rce (epoch 1) has a mean reward of 0.5000; there is no baseline"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			run := &Run{Dir: "DIR", Summary: tc.summary}
			s := tc.summary
			if s == nil {
				s = &Summary{}
			}
			got := strings.Join(headlines(run, s, tc.stages), "\n")
			for _, want := range tc.want {
				if !strings.Contains(got, want) {
					t.Errorf("got %q, want it to contain %q", got, want)
				}
			}
			if _, err := reportOf(run); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestReportOfAnEmptyFolder(t *testing.T) {
	dir := t.TempDir()
	must(t, RebuildReport(dir))
	data, err := os.ReadFile(ReportPath(dir))
	must(t, err)
	if !strings.Contains(string(data), "has not ended") || strings.Contains(string(data), "NaN") {
		t.Errorf("got %s", data)
	}
}

func TestForeignTextIsPlain(t *testing.T) {
	got := plain("a|b *c* _d_ <e>\n`f` [g] #h \\")
	want := "a\\|b \\*c\\* \\_d\\_ &lt;e> \\`f\\` \\[g] \\#h \\\\"
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := shellCommand([]string{"bin/run", "a=[1, 2]", "b='x'", ""}), `bin/run 'a=[1, 2]' 'b='\''x'\''' ''`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestSummaryKeepsItsNumbers(t *testing.T) {
	dir := t.TempDir()
	want := Summary{State: StateDone, Phases: []PhaseSummary{{Name: "rce", Final: map[string]Number{"loss": 0.1, "kl": Number(math.NaN()), "x": Number(math.Inf(-1))}}}}
	must(t, WriteSummary(dir, want))
	got, err := ReadSummary(dir)
	must(t, err)
	f := got.Phases[0].Final
	if got.State != StateDone || f["loss"] != 0.1 || !math.IsNaN(float64(f["kl"])) || !math.IsInf(float64(f["x"]), -1) {
		t.Errorf("got %+v", got)
	}
	if none, err := ReadSummary(t.TempDir()); none != nil || err != nil {
		t.Errorf("no summary: got %v, %v", none, err)
	}
}

func TestFormats(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{sig(0.18734, 4), "0.1873"}, {sig(12.345, 4), "12.35"}, {sig(1.2e-5, 2), "1.2e-05"}, {sig(0, 4), "0"}, {sig(math.NaN(), 3), "nan"}, {sig(math.Inf(-1), 3), "-Inf"},
		{sig(99999, 3), "99999"}, {sig(-0.5, 2), "-0.50"},
		{fixed(0.01913, 4), "+0.0191"}, {fixed(-0.00001, 4), "+0.0000"}, {fixed(-0.5, 2), "−0.50"},
		{duration(0.0042), "4.2 ms"}, {duration(0.31), "0.31 s"}, {duration(125), "2m05s"}, {duration(3725), "1h02m"}, {duration(59.9), "60 s"},
		{plural(1, "query"), "1 query"}, {plural(12345, "query"), "12,345 queries"}, {plural(2, "epoch"), "2 epochs"}, {thousands(-1234), "-1,234"}, {percent(0.0624), "6.2%"},
		{fmtRound(12345), "13000"}, {fmtRound(99), "99"},
	} {
		if tc.got != tc.want {
			t.Errorf("got %q, want %q", tc.got, tc.want)
		}
	}
}

func fmtRound(n int) string { return sig(float64(roundUp(n)), 1) }
