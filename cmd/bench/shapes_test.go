package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/experiments/bench"
)

// TestBenchPublishedShapes runs every case of every published shape at toy sizes on the CPU: the code that measures a GPU.
func TestBenchPublishedShapes(t *testing.T) {
	args := []string{"workloads", "--repeats", "1", "--format", "json", "--sizes", "layers=2,hidden=64,mlp=96,heads=4,kv_heads=2,vocab=640," +
		"sequences=3,prompts=3,group=4,micro=2,prompt=12,new=6,vision_depth=2,vision_hidden=48,vision_mlp=96,vision_heads=3,image=112"}
	for _, w := range bench.ShapeWorkloads() {
		args = append(args, w.Name)
	}
	r := run(t, args...)
	if r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	type shapes struct{ Shapes []bench.ShapeMeasurement }
	var report shapes
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		t.Fatalf("%v:\n%s", err, r.stdout)
	}
	if want := len(bench.ShapeWorkloads()) * len(bench.ShapeCases()); len(report.Shapes) != want {
		t.Errorf("%d rows, want %d", len(report.Shapes), want)
	}
	for _, m := range report.Shapes {
		tokens := map[string]int{"decode": 3 * 6, "step": 3 * 4 * 6, "update": 2 * 4 * 6}[m.Case]
		if m.Tokens != tokens || m.Seconds <= 0 || m.PerSecond <= 0 || m.Who != "fulcrum" ||
			!slices.Contains([]string{"bfloat16", "float32"}, m.DType) || m.Device != "cpu" {
			t.Errorf("odd row %+v, want %d tokens", m, tokens)
		}
		shares := m.Generation + m.LogProbs + m.Update
		if m.Case == "step" != (shares > 0.9 && shares <= 1.001 && m.LogProbs > 0) {
			t.Errorf("%s %s: shares %.3f %.3f %.3f", m.Workload, m.Case, m.Generation, m.LogProbs, m.Update)
		}
		if m.Case == "update" != (m.TFLOP > 0) {
			t.Errorf("%s %s: %g TFLOP", m.Workload, m.Case, m.TFLOP)
		}
	}
	for _, whole := range []string{"float32", "bfloat16", "offload"} {
		r := run(t, append(slices.Clone(args[:7]), "qwen2_5_vl_3b", "--phases", "shape-step,shape-update", "--whole", whole)...)
		var report shapes
		if err := json.Unmarshal([]byte(r.stdout), &report); err != nil || r.code != 0 || len(report.Shapes) != 2 {
			t.Fatalf("%+v, %v", r, err)
		}
		for _, m := range report.Shapes {
			if m.Workload != "qwen2_5_vl_3b_"+whole || m.Whole != whole || m.Trained < 200_000 {
				t.Errorf("odd row of a model that is trained whole: %+v", m)
			}
		}
	}
	file := filepath.Join(t.TempDir(), "report.json")
	if err := os.WriteFile(file, []byte(r.stdout), 0o644); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(t.TempDir(), "empty.json")
	if err := os.WriteFile(empty, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	again := run(t, "workloads", "--from", file, "--format", "markdown")
	if again.code != 0 || strings.Count(again.stdout, "| fulcrum |") != len(report.Shapes) {
		t.Errorf("--from: exit code %d, %s\n%s", again.code, again.stderr, again.stdout)
	}
	for want, args := range map[string][]string{
		"unknown size":          {"workloads", "qwen2_5_1_5b", "--sizes", "layer=2"},
		"--whole=half: want":    {"workloads", "qwen2_5_1_5b", "--whole", "half"},
		"and no --shape-peer":   {"workloads", "qwen2_5_1_5b", "--whole", "float32", "--shape-peer", "peer.py"},
		"layers=0, want":        {"workloads", "qwen2_5_1_5b", "--sizes", "layers=0"},
		"--from=/nowhere: open": {"workloads", "--from", "/nowhere"},
		"no rows: want what":    {"workloads", "--from", empty},
	} {
		if r := run(t, args...); r.code == 0 || !strings.Contains(r.stderr, want) {
			t.Errorf("%v: exit code %d, %q, want %q in it", args, r.code, r.stderr, want)
		}
	}
}
