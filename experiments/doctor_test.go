package experiments_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/reports/record"
)

// A finding of severity stop ends the run with exit code 1; summary.json, run.log and metrics.jsonl say it. Once its
// severity is changed in the run's own configuration, a resume takes the run to its end.
func TestTheDoctorStopsARun(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	rs := records()
	for i := range rs {
		for _, c := range rs[i].Candidates {
			c["vqa_correct"], c["vqa_acc_score"], c["vqa_gt_prob"], c["vqa_rel_score"], c["beam_score"] = 1, 0.6, 0.5, 0.5, 0.5
		}
	}
	got := run(t, small(beams(t, rs), "schedule=[rce]", "rce.epochs=15", "hydra.run.dir="+dir)...)
	if got.Code != 1 || !strings.Contains(got.Stderr, " step 20: stopped by no_signal: ") ||
		!strings.Contains(got.Stderr, "checks.severity.no_signal=warning") {
		t.Fatalf("exit code %d, stderr %s", got.Code, got.Stderr)
	}
	check := func(state, severity string, phases ...string) {
		t.Helper()
		s, err := record.ReadSummary(dir)
		if err != nil {
			t.Fatal(err)
		}
		var found []record.Finding
		for _, f := range s.Findings {
			if f.Check == "no_signal" {
				found = append(found, f)
			}
		}
		if s.State != state || len(found) != len(phases) {
			t.Fatalf("state %s, findings %+v", s.State, s.Findings)
		}
		for i, f := range found {
			if f.Severity != severity || f.Phase != phases[i] || f.Step != 20 || f.Limit != 0.05 || f.Key != "data.reward.mode" {
				t.Errorf("finding %+v", f)
			}
		}
	}
	check("failed", "stop", "rce")
	if log := read(t, filepath.Join(dir, "run.log")); !strings.Contains(log, "[ERROR]") || !strings.Contains(log, "learning signal") {
		t.Errorf("run.log says\n%s", log)
	}
	config := filepath.Join(dir, ".hydra", "config.yaml")
	text := read(t, config)
	changed := strings.Replace(text, "  severity: {}\n", "  severity: {no_signal: warning}\n", 1)
	if changed == text {
		t.Fatal("no severity to change")
	}
	if err := os.WriteFile(config, []byte(changed), 0o644); err != nil {
		t.Fatal(err)
	}
	mustRun(t, "resume", dir)
	check("done", "warning", "rce")
	if rows := read(t, filepath.Join(dir, "metrics.jsonl")); strings.Contains(rows, `"severity":"stop"`) {
		t.Error("the row of the stop is still there")
	}
}

// A healthy run has no finding at all, and one whose doctor is off trains the same weights.
func TestTheDoctorIsSilent(t *testing.T) {
	t.Parallel()
	var weights [2]string
	for i, off := range []string{"[preflight]", "[preflight,doctor]"} {
		dir := folder(t)
		mustRun(t, tiny("checks.off="+off, "report.plots=false", "hydra.run.dir="+dir)...)
		if s, err := record.ReadSummary(dir); err != nil || len(s.Findings) > 0 {
			t.Errorf("off=%s: findings %+v, %v", off, s.Findings, err)
		}
		weights[i] = read(t, filepath.Join(dir, "checkpoints", "grpo_epoch2.safetensors"))
	}
	if weights[0] != weights[1] {
		t.Error("the weights differ")
	}
}

// A bad severity is refused with its place.
func TestDoctorSeverities(t *testing.T) {
	t.Parallel()
	got := run(t, tiny("checks.severity.no_signal=fatal", "hydra.run.dir="+folder(t))...)
	if got.Code != 2 || !strings.Contains(got.Stderr, "checks.severity.no_signal") ||
		!strings.Contains(got.Stderr, "note, warning, stop") {
		t.Errorf("exit code %d, stderr %s", got.Code, got.Stderr)
	}
}
