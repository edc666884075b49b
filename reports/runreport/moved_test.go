package runreport

import (
	"math"
	"strings"
	"testing"

	"fulcrum/reports/record"
	"fulcrum/reports/stats"
)

// KLs of 0.005 and 0.0032 nats bound the moved share by √0.0025 + √0.0016 = 0.05 + 0.04; a KL to the initial policy needs no sum.
func TestHardlyMoved(t *testing.T) {
	row := func(phase string, epoch int, reference string, kl float64) record.Row {
		return record.Row{Phase: phase, Epoch: epoch, Fields: map[string]any{"kl_reference": reference, "val_kl": kl}}
	}
	rce := []record.Row{row("rce", 1, "init", 2), row("rce", 2, "init", 0.005)}
	stage := &record.StageResult{Policy: "best", Phase: "grpo", Epoch: 1, OverInit: &stats.Paired{Verdict: stats.NotSeparable}}
	for name, tc := range map[string]struct {
		epochs []record.Row
		want   float64
		known  bool
	}{
		"phases add up":            {append(rce, row("grpo", 1, "phase_start", 0.0032), row("grpo", 2, "phase_start", 9)), 0.09, true},
		"to the initial policy":    {append(rce, row("grpo", 1, "init", 0.0032)), 0.04, true},
		"another reference":        {append(rce, row("grpo", 1, "synced", 0.0032)), 0, false},
		"far away":                 {append(rce, row("grpo", 1, "phase_start", 18)), 1, true},
		"no KL":                    {[]record.Row{{Phase: "rce", Epoch: 1}}, 0, false},
		"nothing has been trained": {nil, 0, false},
	} {
		run := &record.Run{Epochs: tc.epochs}
		share, ok := movedAtMost(run, stage)
		if ok != tc.known || ok && math.Abs(share-tc.want) > 1e-12 {
			t.Errorf("%s: %g %v, want %g %v", name, share, ok, tc.want, tc.known)
		}
		if said := unmoved(run, stage); (said != "") != (tc.known && tc.want < hardlyMoved) {
			t.Errorf("%s: %q", name, said)
		}
	}
	better := *stage
	better.OverInit = &stats.Paired{Verdict: stats.Better}
	tokens := &record.Run{Epochs: rce, EvalRows: []record.Row{{Fields: map[string]any{"completion_length": 4.0}}}}
	if said := unmoved(tokens, stage); said == "" || strings.Contains(said, "selections") || strings.Contains(said, "embeddings") {
		t.Errorf("of a policy that answers: %s", said)
	}
	if said := unmoved(&record.Run{Epochs: rce}, &better); said != "" {
		t.Errorf("a policy that is better: %q", said)
	}
}

// Findings with one value to type are one, with what the others saw; and a verdict with warnings sends nobody for
// more questions.
func TestFindingsOfOneCause(t *testing.T) {
	found := []record.Finding{
		{Check: "ratio_clipped", Severity: "note", Message: "99 % lie outside: more", Phase: "grpo", Epoch: 2, Step: 11, Key: "grpo.lr",
			Set: "grpo.lr=1e-4"},
		{Check: "ratio_clamped", Severity: "warning", Message: "12 % were cut: far away", Phase: "grpo", Epoch: 1, Step: 10, Key: "grpo.lr",
			Set: "grpo.lr=1e-4"},
		{Check: "ratio_clamped", Severity: "warning", Message: "another phase: x", Phase: "rce", Epoch: 1, Key: "rce.lr", Set: "rce.lr=1e-4"},
		{Check: "all_good_groups", Severity: "note", Message: "no cause: y", Phase: "grpo", Epoch: 1},
		{Check: "all_bad_groups", Severity: "note", Message: "nor here: z", Phase: "grpo", Epoch: 1},
	}
	causes := causesOf(gravestFirst(found))
	if len(causes) != 4 || causes[0].text() != "12 % were cut: far away. Of the same cause: 99 % lie outside (epoch 2)" {
		t.Fatalf("%+v", causes)
	}
	open := &stats.Paired{N: 100, Mean: -0.04, Interval: stats.Interval{Low: -0.1, High: 0.02}, PHolm: 0.2, Changed: 90, Questions: 320,
		Verdict: stats.NotSeparable, Level: 0.95}
	stages := []record.StageResult{{Split: "te", Metric: "reward", Policy: "best", Phase: "grpo", Epoch: 1, OverSimilarity: open}}
	for _, s := range []*record.Summary{{}, {Findings: found}} {
		_, entries := verdictOf(&record.Run{}, s, stages)
		all := strings.Join(entries, "\n")
		warned := s.Findings != nil
		if strings.Contains(all, "to settle") == warned || strings.Contains(entries[0], "try `grpo.lr=1e-4`") != warned {
			t.Errorf("warned %v:\n%s", warned, all)
		}
	}
}

// A report says which policy the KL of a phase is measured against.
func TestReportNamesTheReferenceOfKL(t *testing.T) {
	run := &record.Run{Dir: t.TempDir(), Epochs: []record.Row{{Phase: "grpo", Epoch: 1,
		Fields: map[string]any{"kl": 0.1, "kl_reference": "init"}}}}
	text, err := ReportOf(run)
	if err != nil || !strings.Contains(text, "Its KL is that to the initial policy, in nats per sequence.") {
		t.Errorf("%v in\n%s", err, text)
	}
}
