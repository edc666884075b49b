//go:build !core

package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fulcrum/internal/tensorfile"
)

func TestVerbs(t *testing.T) {
	t.Parallel()
	dir, _ := trained(t)
	data := beams(t, records())
	beamFile, emb := strings.TrimPrefix(data[1], "data.beams="), strings.TrimPrefix(data[2], "data.embeddings=")
	positions := filepath.Join(t.TempDir(), "clip.safetensors")
	if err := tensorfile.WriteSafetensors(positions, []tensorfile.Tensor{{Name: "position_ids", DType: tensorfile.I64, Shape: []int{1},
		Data: make([]byte, 8)}}, nil); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		args []string
		want []string
	}{
		{"checkpoint inspect integers", []string{"checkpoint", "inspect", positions}, []string{"0 parameters", "position_ids", "I64 [1]"}},
		{"checkpoint inspect a file", []string{"checkpoint", "inspect", filepath.Join(dir, "checkpoints/rce_epoch1.safetensors")},
			[]string{"phase = rce", "epoch = 1", "selector.hidden_dim = 32", "config_hash", "F32 [32"}},
		{"checkpoint inspect a run", []string{"checkpoint", "inspect", dir}, []string{"best.safetensors", "finite"}},
		{"checkpoint verify a run", []string{"checkpoint", "verify", dir},
			[]string{"init_epoch0.safetensors", "grpo_epoch2.safetensors", "grpo_epoch2.state: a resume can start here"}},
		{"data inspect beams", []string{"data", "inspect", beamFile}, []string{"24", "rl"}},
		{"data inspect embeddings", []string{"data", "inspect", emb}, []string{"60", "24"}},
		{"status of a run", []string{"status", dir}, []string{"done"}},
		{"doctor", []string{"doctor"}, []string{"libtorch", "threads", "cuda", "disk", "512×512"}},
		{"judge a published table", []string{"report", "../../reports/published/testdata/published/metrics.json"},
			[]string{"# What these published numbers allow to conclude", "19 variants against Baseline (V2), 95 comparisons"}},
		{"compare a run with itself", []string{"report", dir, dir}, []string{"Reward on val", "same scores"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := mustRun(t, tc.args...)
			for _, want := range tc.want {
				if !strings.Contains(r.Stdout, want) {
					t.Errorf("stdout lacks %q:\n%s", want, r.Stdout)
				}
			}
		})
	}
}

// The report is rebuilt from what the folder records, with the same text.
func TestReportVerb(t *testing.T) {
	t.Parallel()
	data := beams(t, records())
	dir := folder(t)
	mustRun(t, small(data, "hydra.run.dir="+dir, "report.plots=true")...)
	path := filepath.Join(dir, "report.md")
	before := read(t, path)
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	mustRun(t, "report", dir)
	if after := read(t, path); after != before {
		t.Errorf("the rebuilt report differs:\n%s\nbefore:\n%s", after, before)
	}
}

// --rerun repeats a run's configuration in a folder of its own, with further overrides.
func TestRerun(t *testing.T) {
	t.Parallel()
	dir, _ := trained(t)
	again := folder(t)
	r := mustRun(t, "--rerun", dir, "hydra.run.dir="+again, "report.plots=false")
	if !strings.HasPrefix(r.Stdout, "beams_v3 on synthetic shapes") {
		t.Errorf("first line of %q", r.Stdout)
	}
	outcomeOf(t, dir).Same(t, outcomeOf(t, again), 0)

	// The default folder is named by the time, below the start folder.
	start0 := filepath.Dir(folder(t))
	p := startWith(t, start0, nil, "--rerun", dir, "grpo.epochs=0", "report.plots=false")
	if r := p.Wait(); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	found, _ := filepath.Glob(filepath.Join(start0, "outputs", time.Now().Format("2006")+"-*", "*", "report.md"))
	if len(found) != 1 || exists(filepath.Join(filepath.Dir(found[0]), "checkpoints/grpo_epoch1.safetensors")) {
		t.Errorf("reports in the default folder: %v, want one of a run without grpo", found)
	}
}

// What needs no tensor does not load libtorch: config, help, reports, a sweep's controller, resume of
// a finished run. The dynamic linker writes down what every process loads.
func TestNoLibtorch(t *testing.T) {
	t.Parallel()
	dir, _ := trained(t)
	data := beams(t, records())
	sweep := folder(t)
	for _, tc := range []struct {
		name  string
		args  []string
		loads bool
	}{
		{"doctor loads it: the test can fail", []string{"doctor"}, true},
		{"--cfg job", []string{"exp=okvqa_v3", "--cfg", "job"}, false},
		{"--help", []string{"--help"}, false},
		{"--version", []string{"--version"}, false},
		{"--cfg sweep", []string{"-m", "seed=1,2", "--cfg", "sweep"}, false},
		{"a config error", tiny("rce.lr=-1"), false},
		{"report", []string{"report", dir}, false},
		{"status", []string{"status", dir}, false},
		{"resume of a finished run", []string{"resume", dir}, false},
		{"checkpoint inspect", []string{"checkpoint", "inspect", dir}, false},
		{"data inspect", []string{"data", "inspect", strings.TrimPrefix(data[1], "data.beams=")}, false},
		{"a sweep's controller", append([]string{"-m", "seed=1", "hydra.sweep.dir=" + sweep}, small(data, "grpo.epochs=0")...), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			logs := filepath.Join(t.TempDir(), "ld")
			p := startWith(t, "", []string{"LD_DEBUG=files", "LD_DEBUG_OUTPUT=" + logs}, tc.args...)
			r := p.Wait()
			files, err := filepath.Glob(logs + ".*")
			if err != nil || len(files) == 0 {
				t.Skipf("the dynamic linker wrote no log: %v", err)
			}
			own := false
			for _, file := range files {
				text := read(t, file)
				mine := strings.HasSuffix(file, "."+itoa(r.Pid))
				own = own || mine
				if mine && strings.Contains(text, "libtorch_cpu") != tc.loads {
					t.Errorf("loads libtorch: %v, want %v (exit code %d)", !tc.loads, tc.loads, r.Code)
				}
			}
			if !own {
				t.Errorf("no log of process %d among %v", r.Pid, files)
			}
		})
	}
}

// Figures for a paper are drawn of a run and of a comparison; flags that would do nothing beside others are refused.
func TestPaperFlags(t *testing.T) {
	t.Parallel()
	dir, _ := trained(t)
	out := t.TempDir()
	mustRun(t, "report", dir, "--figure", "reward,kl", "--figure-width", "85", "--no-title", "--figure-dir", out)
	mustRun(t, "report", dir, dir, "--figure", "settings", "--figure-dir", out)
	for _, name := range []string{"reward.pdf", "reward.svg", "kl.pdf", "settings.pdf"} {
		if _, err := os.Stat(filepath.Join(out, name)); err != nil {
			t.Error(err)
		}
	}
	if text := mustRun(t, "export", dir, "--what", "table", "--format", "latex").Stdout; !strings.Contains(text, "\\bottomrule") {
		t.Errorf("no table:\n%s", text)
	}
	for want, args := range map[string][]string{
		`unknown figure "rewrad" (did you mean reward?): want one of reward, `: {"report", dir, "--figure", "rewrad"},
		"want no --json or --html":                  {"report", dir, "--json", "--figure-width", "85"},
		"--formulas keep: only CSV":                 {"export", dir, "--format", "json", "--formulas", "keep"},
		"--digits is of the table for a paper":      {"export", dir, "--digits", "2"},
		"want no --port":                            {"board", dir, "--export", out, "--port", "80"},
		"want no --multirun or --detach":            {"--rerun", dir, "-m", "seed=1,2"},
		"--dtype is for hf, --base for hf and peft": {"checkpoint", "export", dir, "--format", "pt", "--dtype", "float16", "--out", out + "/x"},
		"gone/x: no such file or directory (there is no folder " + out + "/gone)": {"checkpoint", "export", dir, "--format", "pt",
			"--out", out + "/gone/x"},
		"nope: no such folder": {"report", "nope", "--no-title"},
		"--figure: want names": {"report", dir, "--figure", ""},
	} {
		if r := run(t, args...); r.Code != 2 || !strings.Contains(r.Stderr, want) {
			t.Errorf("%v: exit code %d, want 2 and %q: %s", args, r.Code, want, r.Stderr)
		}
	}
}
