package runreport

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/stats"
)

func TestReport(t *testing.T) {
	dir := reportstest.FakeRun(t, 1)
	reportstest.Must(t, os.MkdirAll(filepath.Join(dir, PlotsFolder), 0o755))
	reportstest.Must(t, os.WriteFile(filepath.Join(dir, PlotsFolder, "kl.png"), nil, 0o644)) // only what is there is embedded
	summary, err := record.ReadSummary(dir)
	reportstest.Must(t, err)
	summary.Evaluations = nil
	reportstest.Must(t, results.WriteSummary(dir, *summary)) // with the results of every stage
	reportstest.Must(t, WriteReport(dir))
	got, err := os.ReadFile(page.ReportPath(dir))
	reportstest.Must(t, err)
	golden.File(t, "testdata/report.md", got)

	reportstest.Must(t, WriteReport(dir))
	again, err := os.ReadFile(page.ReportPath(dir))
	reportstest.Must(t, err)
	if !bytes.Equal(got, again) {
		t.Error("the same records gave two reports")
	}

	run, err := record.ReadRun(dir)
	reportstest.Must(t, err)
	var table bytes.Buffer
	stages, err := results.StagesOf(run)
	reportstest.Must(t, err)
	reportstest.Must(t, PrintResults(&table, stages, 0))
	golden.File(t, "testdata/table.txt", table.Bytes())

	// The end on the console keeps to a small terminal.
	var end bytes.Buffer
	reportstest.Must(t, PrintEnd(&end, run, []string{"report: run/report.md"}))
	golden.File(t, "testdata/end.txt", end.Bytes())
	lines := strings.Split(strings.TrimSpace(end.String()), "\n")
	for _, line := range lines {
		if n := utf8.RuneCountInString(line); n > endWidth {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if len(lines) > endLines {
		t.Errorf("%d lines:\n%s", len(lines), end.String())
	}

	// Many measures leave no line to spare: the verdict and the next commands stay whole.
	whole, many := *run, *run.Summary
	for i := range 30 {
		more := *PlannedResult(stages)
		more.Metric = fmt.Sprintf("measure_%d", i)
		many.Evaluations = append(many.Evaluations, more)
	}
	whole.Summary = &many
	end.Reset()
	reportstest.Must(t, PrintEnd(&end, &whole, []string{"one", "two", "three"}))
	if text := end.String(); strings.Count(text, "\n") > endLines || !strings.Contains(text, "at\n  random.\none\ntwo\nthree\n") ||
		!strings.Contains(text, " best: ") {
		t.Errorf("many measures:\n%s", text)
	}
}

// A look is said in the verdict and spends its part of the level; so is that nobody counted.
func TestVerdictsSayTheirLook(t *testing.T) {
	for _, tc := range []struct {
		name, looks string
		want        []string
	}{
		{"look 3", `"look": 3, "level": 0.0034`, []string{"held-out questions (dev, look 3) the best", "; corrected for look 3",
			"This was look 3 at these questions (evidence.ledger): all looks share a level of 0.05, and this one has 0.0034 of it."}},
		{"no ledger", `"look": 0, "level": 0, "missing": "looks.jsonl: permission denied"`, []string{"held-out questions (dev, look not counted) the best",
			"is not known, and the level is not corrected for it: there is no ledger of looks (looks.jsonl: permission denied)"}},
	} {
		dir := reportstest.FakeRun(t, 1)
		reportstest.Must(t, os.WriteFile(filepath.Join(dir, record.LooksFile),
			[]byte(`{"id": "a", "looks": [{"split": "dev", "metric": "reward", `+tc.looks+`}]}`), 0o644))
		summary, err := record.ReadSummary(dir)
		reportstest.Must(t, err)
		summary.Evaluations = nil
		reportstest.Must(t, results.WriteSummary(dir, *summary))
		run, err := record.ReadRun(dir)
		reportstest.Must(t, err)
		got, err := ReportOf(run)
		reportstest.Must(t, err)
		for _, want := range tc.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: the report lacks %q:\n%s", tc.name, want, got)
			}
		}
	}
}

// A last phase that ended below the best policy is said to, one that ended with it is not.
func TestTheLastPhaseBehindTheBest(t *testing.T) {
	eval := func(policy, phase string, epoch int, score float64) record.Evaluation {
		e := record.Evaluation{Split: "dev", Metric: "reward", Policy: policy, Phase: phase, Epoch: epoch}
		for i := range 60 {
			e.QueryIDs, e.Scores = append(e.QueryIDs, int64(i)), append(e.Scores, score+0.01*float64(i%7)*score)
		}
		return e
	}
	for _, tc := range []struct {
		last float64
		want bool
	}{{0.5, true}, {0.77, false}, {0.9, false}} {
		run := &record.Run{Evaluations: []record.Evaluation{eval("rce", "rce", 3, 0.43), eval("grpo", "grpo", 4, tc.last),
			eval("best", "rce", 1, 0.77)}}
		stages, err := results.Stages(run.Evaluations, stats.DefaultOptions())
		reportstest.Must(t, err)
		answer, entries := verdictOf(run, &record.Summary{}, stages)
		got := answer + strings.Join(entries, "\n")
		if strings.Contains(got, "The policy after grpo (epoch 4) is worse than the best policy (rce epoch 1): −0.27") != tc.want ||
			!strings.Contains(got, "after grpo (epoch 4) over the policy after rce (epoch 3): better, +") {
			t.Errorf("grpo ends at %g: %s", tc.last, got)
		}
	}
}

// Reports of runs that did not end well, or have little to show.
func TestReportHeadlines(t *testing.T) {
	better := &stats.Paired{N: 100, Mean: 0.02, Interval: stats.Interval{Low: 0.01, High: 0.03}, P: 0.0001, PHolm: 0.0001, Level: 0.95,
		Changed: 50, Verdict: stats.Better}
	below := &stats.Paired{N: 100, Mean: -0.194, Changed: 50, Level: 0.95, Verdict: stats.Worse}
	same := &stats.Paired{N: 100, Level: 0.95, Verdict: stats.NotSeparable}
	unclear := &stats.Paired{N: 100, Mean: 0.002, Changed: 50, Level: 0.95, Verdict: stats.NotSeparable}
	val := record.StageResult{Split: "val", Metric: "reward", Policy: "best", Phase: "rce", Epoch: 1, Mean: 0.5, OverSimilarity: better}
	for _, tc := range []struct {
		name    string
		summary *record.Summary
		stages  []record.StageResult
		want    []string
	}{
		{"still running", nil, nil, []string{"**This run has not ended.**"}},
		{"failed says why", &record.Summary{State: record.StateFailed, Error: "grpo epoch 1 step 3: loss is nan"}, nil,
			[]string{"**This run failed:** grpo epoch 1 step 3: loss is nan"}},
		{"interrupted says how to go on", &record.Summary{State: record.StateInterrupted}, nil, []string{"`run resume FOLDER`"}},
		{"synthetic data is said first", &record.Summary{State: record.StateDone,
			Data: record.DataSummary{Synthetic: true, Notice: "Drawn scenes."}}, nil, []string{"**Synthetic data.** Drawn scenes."}},
		{"the held-out split decides", &record.Summary{State: record.StateDone}, []record.StageResult{val,
			{Split: "dev", Metric: "reward", Policy: "grpo", Phase: "grpo", Epoch: 2, OverSimilarity: same},
			{Split: "dev", Metric: "reward", Policy: "best", Phase: "grpo", Epoch: 1, OverSimilarity: better},
			{Split: "dev", Metric: "accuracy", Policy: "best", Phase: "grpo", Epoch: 1, Mean: 0.4, OverSimilarity: better}},
			[]string{"- By accuracy the best policy (grpo epoch 1) scores 0.4000 and is better than similarity (over the first +0.020, 95% " +
				"interval +0.010 to +0.030).",
				"**Verdict.** On the held-out questions (dev) the best policy (grpo epoch 1) is better than similarity.\n" +
					"- Over similarity: better, +0.020 reward"}},
		{"val where there is no other", &record.Summary{State: record.StateDone}, []record.StageResult{val},
			[]string{"On val the best policy (rce epoch 1) is better"}},
		{"a pretrained policy's first baseline is its start", &record.Summary{State: record.StateDone}, []record.StageResult{
			{Split: "val", Metric: "reward", Policy: "majority"}, {Split: "val", Metric: "reward", Policy: "init"},
			{Split: "val", Metric: "reward", Policy: "best", Phase: "grpo", Epoch: 1, OverMajority: better, OverInit: unclear}},
			[]string{"is not separable from the initial policy; it is better than the majority answer.\n- Over the initial policy: not"}},
		{"references that score alike are one", &record.Summary{State: record.StateDone}, []record.StageResult{
			{Split: "val", Metric: "reward", Policy: "init", OverSimilarity: same},
			{Split: "val", Metric: "reward", Policy: "best", Phase: "rce", Epoch: 1, OverSimilarity: better, OverInit: better}},
			[]string{"is better than similarity (and the initial policy, which scores the same).\n",
				"- Over similarity (and the initial policy, which scores the same): better, +0.020"}},
		{"a baseline below random, and the last phase", &record.Summary{State: record.StateDone}, []record.StageResult{
			{Split: "val", Metric: "reward", Policy: "random", Mean: 0.49},
			{Split: "val", Metric: "reward", Policy: "similarity", Mean: 0.297, OverRandom: below},
			{Split: "val", Metric: "reward", Policy: "rce", Phase: "rce", Epoch: 2, OverSimilarity: better, OverRandom: better},
			{Split: "val", Metric: "reward", Policy: "grpo", Phase: "grpo", Epoch: 3, OverSimilarity: better, OverRandom: better,
				OverPrevious: same},
			{Split: "val", Metric: "reward", Policy: "best", Phase: "rce", Epoch: 1, Mean: 0.6, OverSimilarity: better, OverRandom: better}},
			[]string{"On val the best policy (rce epoch 1) is better than drawing at random.\n- Over drawing at random: better, +0.020",
				"the policy after grpo (epoch 3) over the policy after rce (epoch 2): the same score on every one of 100 questions",
				"Similarity is worse than drawing at random here: 0.2970 against 0.4910. A gain over it says little."}},
		{"the best is untrained, and the table calls a phase better", &record.Summary{State: record.StateDone, Best: &record.BestSummary{
			Metric: "val_loss", Phase: "init", Other: "with checkpoint.best.metric=val_recorded_reward it would be grpo epoch 3: 0.8 against 0.2"}},
			[]record.StageResult{
				{Split: "val", Metric: "reward", Policy: "init", Phase: "init", OverRandom: below},
				{Split: "val", Metric: "reward", Policy: "grpo", Phase: "grpo", Epoch: 3, OverInit: better, OverRandom: better},
				{Split: "val", Metric: "reward", Policy: "best", Phase: "init", OverInit: same, OverRandom: below}},
			[]string{`By val_loss, which chooses the best checkpoint (checkpoint.best.metric), no epoch is better than the initial policy.` +
				"\n- With checkpoint.best.metric=val_recorded_reward it would be grpo epoch 3: 0.8 against 0.2.\n- " +
				"On val the policy after grpo (epoch 3) is better than the initial policy: +0.020 reward",
				"- Over drawing at random, the initial policy: worse, −0.1940"}},
		{"the best of a pretrained policy is untrained", &record.Summary{State: record.StateDone, Best: &record.BestSummary{
			Metric: "val_reward", Phase: "init"}},
			[]record.StageResult{
				{Split: "val", Metric: "reward", Policy: "majority"},
				{Split: "val", Metric: "reward", Policy: "init", Phase: "init", OverMajority: better},
				{Split: "val", Metric: "reward", Policy: "rce", Phase: "rce", Epoch: 3, OverInit: below, OverMajority: unclear},
				{Split: "val", Metric: "reward", Policy: "grpo", Phase: "grpo", Epoch: 2, OverInit: unclear, OverMajority: unclear},
				{Split: "val", Metric: "reward", Policy: "best", Phase: "init", OverInit: same, OverMajority: better}},
			[]string{"no epoch is better than the initial policy.\n- Over the initial policy, the policy after grpo (epoch 2): not separable, " +
				"+0.0020", "\n- Over the majority answer, the initial policy: better, +0.020"}},
		{"nothing to compare with", &record.Summary{State: record.StateDone},
			[]record.StageResult{{Split: "val", Metric: "reward", Policy: "rce", Phase: "rce", Epoch: 1, Mean: 0.5}},
			[]string{"On val there is no baseline to compare the policy after rce (epoch 1) with."}},
		{"verdicts that differ, and an order that is an oracle's", &record.Summary{State: record.StateDone, Best: &record.BestSummary{
			Metric: "val_loss", Phase: "rce", Other: "with checkpoint.best.metric=val_recorded_reward it would be grpo epoch 2: 0.5 against 0.4"}},
			[]record.StageResult{
				{Split: "val", Metric: "recorded_reward", Policy: "recorded_order", Mean: 0.7},
				{Split: "val", Metric: "recorded_reward", Policy: "init", Phase: "init"},
				{Split: "val", Metric: "recorded_reward", Policy: "best", Phase: "rce", Epoch: 1, Mean: 0.4, OverSimilarity: better,
					OverRecorded: below, OverInit: unclear, OverRandom: better},
				{Split: "val", Metric: "top1_accuracy", Policy: "recorded_order", Mean: 1}},
			[]string{"is better than similarity and drawing at random; it is not separable from the initial policy.\n- Over similarity: ",
				"Over the initial policy: not separable, +0.0020"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			run := &record.Run{Dir: "DIR", Summary: tc.summary}
			s := tc.summary
			if s == nil {
				s = &record.Summary{}
			}
			got := strings.Join(headlines(run, s, tc.stages), "\n")
			if strings.Contains(got, "Over the recorded order") {
				t.Errorf("an oracle is a baseline: %q", got)
			}
			for _, want := range tc.want {
				if !strings.Contains(got, want) {
					t.Errorf("got %q, want it to contain %q", got, want)
				}
			}
			if _, err := ReportOf(run); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestReportOfAnEmptyFolder(t *testing.T) {
	dir := t.TempDir()
	reportstest.Must(t, RebuildReport(dir))
	data, err := os.ReadFile(page.ReportPath(dir))
	reportstest.Must(t, err)
	if !strings.Contains(string(data), "has not ended") || strings.Contains(string(data), "NaN") {
		t.Errorf("got %s", data)
	}
}

func TestForeignTextIsPlain(t *testing.T) {
	got := page.Plain("a|b *c* _d_ <e>\n`f` [g] [i](j) #h \\ val_reward p < 0.001 a _ b")
	want := "a\\|b \\*c\\* \\_d_ \\<e> \\`f\\` [g] \\[i](j) \\#h \\\\ val_reward p < 0.001 a _ b"
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := page.ShellCommand([]string{"bin/run", "a=[1, 2]", "b='x'", ""}), `bin/run 'a=[1, 2]' 'b='\''x'\''' ''`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestSummaryKeepsItsNumbers(t *testing.T) {
	dir := t.TempDir()
	want := record.Summary{State: record.StateDone, Phases: []record.PhaseSummary{{Name: "rce",
		Final: map[string]record.Number{"loss": 0.1, "kl": record.Number(math.NaN()), "x": record.Number(math.Inf(-1))}}}}
	reportstest.Must(t, results.WriteSummary(dir, want))
	got, err := record.ReadSummary(dir)
	reportstest.Must(t, err)
	f := got.Phases[0].Final
	if got.State != record.StateDone || f["loss"] != 0.1 || !math.IsNaN(float64(f["kl"])) || !math.IsInf(float64(f["x"]), -1) {
		t.Errorf("got %+v", got)
	}
	if none, err := record.ReadSummary(t.TempDir()); none != nil || err != nil {
		t.Errorf("no summary: got %v, %v", none, err)
	}
}

func TestFormats(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{page.Sig(0.18734, 4), "0.1873"}, {page.Sig(12.345, 4), "12.35"}, {page.Sig(1.2e-5, 2), "1.2e-05"}, {page.Sig(0, 4), "0"},
		{page.Sig(math.NaN(), 3), "nan"}, {page.Sig(math.Inf(-1), 3), "-Inf"},
		{page.Sig(99999, 3), "99999"}, {page.Sig(-0.5, 2), "-0.50"},
		{page.Nats(-1.7e-8, 4), "0"}, {page.Nats(9e-7, 4), "0"}, {page.Nats(-2e-6, 2), "-2.0e-06"}, {page.Nats(4.9123, 3), "4.91"},
		{page.Fixed(0.01913, 4), "+0.0191"}, {page.Fixed(-0.00001, 4), "+0.0000"}, {page.Fixed(-0.5, 2), "−0.50"},
		{page.Duration(0.0042), "4.2 ms"}, {page.Duration(0.31), "0.31 s"}, {page.Duration(125), "2m05s"}, {page.Duration(3725), "1h02m"},
		{page.Duration(59.9), "60 s"},
		{page.Plural(1, "query"), "1 query"}, {page.Plural(12345, "query"), "12,345 queries"}, {page.Plural(2, "epoch"), "2 epochs"},
		{page.Thousands(-1234), "-1,234"}, {page.Percent(0.0624), "6.2%"},
		{fmtRound(12345), "13000"}, {fmtRound(99), "99"},
	} {
		if tc.got != tc.want {
			t.Errorf("got %q, want %q", tc.got, tc.want)
		}
	}
}

func fmtRound(n int) string { return page.Sig(float64(stats.RoundUp(n)), 1) }

// Of many epochs the table has some, the best among them, and says where all are; of forty it has all.
func TestATableOfManyEpochs(t *testing.T) {
	for epochs, want := range map[int]int{40: 40, 100: 22} {
		dir := t.TempDir()
		log := reportstest.OpenTestLog(t, dir, io.Discard)
		for e := 1; e <= epochs; e++ {
			fields := map[string]any{"loss": 1 / float64(e), "val_loss": math.Abs(float64(e - 33)), "val_reward": -math.Abs(float64(e - 66))}
			reportstest.Record(t, log, record.KindEpoch, "rce", e, e, e, fields)
		}
		reportstest.Must(t, log.Close())
		run, err := record.ReadRun(dir)
		reportstest.Must(t, err)
		table, of := epochTable(run, "rce")
		if len(table.Rows) != want || of != epochs {
			t.Fatalf("%d rows of %d, want %d of %d", len(table.Rows), of, want, epochs)
		}
		shown := map[string]bool{}
		for _, row := range table.Rows {
			shown[row[0]] = true
		}
		if !shown["1"] || !shown["33"] || epochs > 40 && !shown["66"] || !shown[fmt.Sprint(epochs)] {
			t.Errorf("of %d epochs the first, the last or the best is missing: %v", epochs, table.Rows)
		}
		report, err := ReportOf(run)
		reportstest.Must(t, err)
		if said := strings.Contains(report, "These are 22 of 100 epochs"); said != (epochs > 40) {
			t.Errorf("%d epochs: said %v", epochs, said)
		}
	}
}
