package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/beamdata"
)

// TestWorkloadsAreWhatTheyAreCalled generates every workload, small, and reads it as a run does.
func TestWorkloadsAreWhatTheyAreCalled(t *testing.T) {
	for _, w := range Workloads() {
		t.Run(w.Name, func(t *testing.T) {
			d := w.Data.cut(70)
			files, err := d.Generate(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			opt := beamdata.DefaultOptions()
			opt.Name, opt.Beams, opt.Embeddings, opt.TrainRatio, opt.MaxSamples = "beams", &files.Beams, &files.Embeddings, 1, &d.Queries
			b, err := beamdata.Load(opt)
			if err != nil {
				t.Fatal(err)
			}
			if b.RCE.Len() != 70 || b.RCE.Table.Dim != 768 || b.Shots != 2 || b.Val != nil {
				t.Errorf("%d queries of width %d with %d shots, want 70, 768 and 2, none for validation", b.RCE.Len(),
					b.RCE.Table.Dim, b.Shots)
			}
			least, most := math.MaxInt, 0
			for q := range b.RCE.Len() {
				if k := len(b.RCE.Pool(q)); k != w.Data.Pool {
					t.Fatalf("query %d: a pool of %d, want %d", q, k, w.Data.Pool)
				}
				if slices.Contains(b.RCE.Pool(q), b.RCE.Row(q)) {
					t.Fatalf("query %d is its own candidate", q)
				}
				n := b.RCE.NumCandidates(q)
				least, most = min(least, n), max(most, n)
			}
			if least != w.Data.Min || most != w.Data.Max {
				t.Errorf("%d to %d candidates, want %d to %d", least, most, w.Data.Min, w.Data.Max)
			}
			if row := b.RCE.Table.Row(3); math.Abs(norm(row)-1) > 1e-6 {
				t.Errorf("a row of norm %g, want 1", norm(row))
			}
		})
	}
}

func norm(row []float32) float64 {
	sum := 0.0
	for _, x := range row {
		sum += float64(x) * float64(x)
	}
	return math.Sqrt(sum)
}

func TestDataIsTheSameEveryTime(t *testing.T) {
	d := Workloads()[2].Data.cut(40)
	var beams [2][]byte
	for i := range beams {
		files, err := d.Generate(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if beams[i], err = os.ReadFile(files.Beams); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(beams[0], beams[1]) || !json.Valid(beams[0]) {
		t.Error("two generations differ, or are not JSON")
	}
}

// fake writes a program of shell.
func fake(t *testing.T, name, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestTableAndRatios measures with programs that print fixed numbers: 800 queries in 2 and 2.5 CPU
// seconds (k3 and exact), beside a peer of 200 queries per CPU second.
func TestTableAndRatios(t *testing.T) {
	ours := fake(t, "ours", `case "$1" in *estimator=exact*) cpu=2.5;; *) cpu=2;; esac
echo '{"libtorch":"1.2.3","device":"cpu","threads":1,"batch":1,"pool":64,"queries":800,"steps":800,"wall":[4],"cpu":['$cpu'],"step_ms":5,"losses":[2,1]}'`)
	peer := fake(t, "torch_floor.py", `case "$*" in *"--threads 1 --dropout 0 --repeat 1 --scenarios rl_k64_b1 --phases "*" --rl_batch 1"*) ;; *) echo "odd arguments: $*" >&2; exit 1;; esac
echo '{"results": [{"median_queries_per_s": 210, "median_queries_per_cpu_s": 200, "peak_rss_mb": 300}]}'`)
	opt := Options{Workloads: []string{"rl_k64_b1"}, Queries: 70, Device: "cpu", Threads: 1, Repeats: 2, Passes: 1,
		Program: []string{ours}, Peer: peer, Python: "/bin/sh", Progress: &bytes.Buffer{}}
	var out bytes.Buffer
	for _, format := range []struct{ name, want string }{
		{"table", "rl_k64_b1 grpo-exact 1 64 200 320 5.00 0.00 0.0 0 200 1.60 (1.60–1.60) 1.25"},
		{"markdown", "| rl_k64_b1 | rce | 1 | 64 | 200 | 400 | 5.00 | 0.00 | 0.0 | 0 | (58) | 200 | 2.00 (2.00–2.00) |  |"},
		{"json", `"ratio": 2,`},
	} {
		out.Reset()
		opt.Format = format.name
		if err := Run(context.Background(), opt, &out); err != nil {
			t.Fatal(err)
		}
		if got := squeeze(out.String()); !strings.Contains(got, squeeze(format.want)) {
			t.Errorf("%s: %q is not in\n%s", format.name, format.want, out.String())
		}
	}
	opt.Peer = ""
	opt.Format, opt.Workloads = "table", []string{"legacy_k64_b32"}
	out.Reset()
	if err := Run(context.Background(), opt, &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "(3477)") {
		t.Errorf("without a peer the published figure stands in brackets:\n%s", out.String())
	}
}

func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }

// TestWhatWasMeasuredIsKept: a measurement that fails, or is stopped, takes none of those before it away.
func TestWhatWasMeasuredIsKept(t *testing.T) {
	ours := fake(t, "ours", `case "$1" in *'"case":"step"'*) echo "bench: CUDA out of memory" >&2; exit 1;; esac
echo '{"workload":"qwen2_5_1_5b","case":"decode","seconds":2,"tokens_per_second":40000}'`)
	var out bytes.Buffer
	err := Run(context.Background(), Options{Workloads: []string{"qwen2_5_1_5b"}, Device: "cuda", Threads: 1, Repeats: 1, Passes: 1,
		Format: "json", ShapeProgram: []string{ours}, Progress: &bytes.Buffer{}}, &out)
	if err == nil || !strings.Contains(err.Error(), "qwen2_5_1_5b: step: CUDA out of memory") {
		t.Errorf("got %v, want the fault of step", err)
	}
	var r table
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || len(r.Shapes) != 2 {
		t.Errorf("%v: %d shapes, want decode and update\n%s", err, len(r.Shapes), out.String())
	}
}

func TestFaultsAreNamed(t *testing.T) {
	failing := fake(t, "ours", `echo "bench: device=cuda: no such thing" >&2; exit 2`)
	good := Options{Queries: 70, Device: "cpu", Threads: 1, Repeats: 1, Passes: 1, Format: "table", Program: []string{failing},
		Progress: &bytes.Buffer{}}
	for _, tc := range []struct {
		name   string
		change func(*Options)
		want   string
	}{
		{"the measuring process's own error", func(*Options) {}, "legacy_k64_b32: rce: device=cuda: no such thing"},
		{"unknown workload names the nearest", func(o *Options) { o.Workloads = []string{"legacy_k64_b3"} }, "legacy_k64_b32"},
		{"unknown phase", func(o *Options) { o.Phases = []string{"grppo"} }, "--phases"},
		{"no JSON", func(o *Options) { o.Program = []string{"/bin/echo"} }, "the measuring process printed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			opt := good
			tc.change(&opt)
			if err := Run(context.Background(), opt, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q in it", err, tc.want)
			}
		})
	}
}
