//go:build !core

package sweep

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestSparkline(t *testing.T) {
	nan := math.NaN()
	for _, tc := range []struct {
		name   string
		values []float64
		width  int
		want   string
	}{
		{"a line up", []float64{0, 1, 2, 3, 4, 5, 6, 7}, 20, "▁▂▃▄▅▆▇█"},
		{"means of shares", []float64{0, 0, 8, 8, 4, 4}, 3, "▁█▄"},
		{"equal values", []float64{3, 3, 3}, 9, "▁▁▁"},
		{"what is not finite is left out", []float64{nan, 1, math.Inf(1), 2}, 9, "▁█"},
		{"one value is no curve", []float64{1, nan}, 9, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := sparkline(tc.values, tc.width); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// A watcher sees rows that come while it watches, keeps to the width, and leaves a torn line for the next look.
func TestWatcher(t *testing.T) {
	dir := t.TempDir()
	metrics := filepath.Join(dir, "metrics.jsonl")
	write := func(name, text string) {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, ".hydra"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(".hydra/config.yaml", "grpo: {epochs: 4}\n")
	step := `{"kind":"step","phase":"grpo","epoch":2,"step":7,"global_step":7,"time":1,"loss":0.5,"step_seconds":0.25}` + "\n"
	write("metrics.jsonl", strings.Replace(step, `"step":7`, `"step":6`, 1)+step[:40])
	w := newWatcher(dir)
	see := func(wants ...string) {
		t.Helper()
		text, ended, err := w.picture(60)
		if err != nil || !ended { // nobody holds its lock
			t.Fatalf("%v, ended %v", err, ended)
		}
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
		for line := range strings.Lines(text) {
			if utf8.RuneCountInString(line) > 61 && !strings.Contains(line, dir) {
				t.Errorf("a wide line: %s", line)
			}
		}
	}
	see("grpo  epoch 2/4  step 6  0.25 s/step")
	write("metrics.jsonl", step[40:]+`{"kind":"event","phase":"grpo","epoch":2,"step":7,"global_step":7,"time":2,"event":"x","severity":"warning",`+
		`"message":"the KL is high","value":1,"limit":0.5}`+"\n")
	write("system.jsonl", `{"time":1,"phase":"grpo","global_step":7,"memory_bytes":1048576,"memory_peak_bytes":2097152}`+"\n")
	see("step 7", "loss         ▁▁ 0.5000", "memory 1 MiB, peak 2 MiB\n", "warning: the KL is high")
	if err := Watch(dir); err != nil {
		t.Error(err)
	}
	write("metrics.jsonl", "{broken}\n")
	if _, _, err := w.picture(60); err == nil || !strings.Contains(err.Error(), metrics) {
		t.Errorf("a damaged row: %v", err)
	}
}
