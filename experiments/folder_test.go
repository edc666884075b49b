package experiments_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Everything that DESIGN 1.4 promises of a run folder is there, and nothing temporary.
func TestRunFolder(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	said := mustRun(t, tiny("checks.off=[]", "hydra.run.dir="+dir)...).Stdout
	first, _, _ := strings.Cut(said, "\n")
	if want := "beams_v3 on synthetic shapes (not real images) → " + dir; first != want {
		t.Errorf("first line\n got %q\nwant %q", first, want)
	}
	lines := strings.Split(strings.TrimSpace(said), "\n")
	if got, want := lines[len(lines)-1], "report: "+filepath.Join(dir, "report.md"); got != want {
		t.Errorf("last line\n got %q\nwant %q", got, want)
	}
	seen := 0
	for _, name := range []string{
		".hydra/config.yaml", ".hydra/hydra.yaml", ".hydra/overrides.yaml", "run.log", "metrics.jsonl", "evals.jsonl", "events.out.tfevents.*",
		"checkpoints/init_epoch0.safetensors", "checkpoints/rce_epoch[12].safetensors", "checkpoints/grpo_epoch[12].safetensors",
		"checkpoints/grpo_epoch[12].state/state.json", "checkpoints/grpo_epoch[12].state/optimizer.safetensors",
		"plots/*.png", "plots/*.svg", "summary.json", "report.md",
	} {
		found, err := filepath.Glob(filepath.Join(dir, name))
		if err != nil || len(found) == 0 || strings.Contains(name, "[12]") && len(found) != 2 {
			t.Errorf("%s: found %v, %v", name, found, err)
		}
		for _, path := range found {
			seen++
			if info, err := os.Stat(path); err != nil || info.Size() == 0 {
				t.Errorf("%s is empty", path)
			}
		}
	}
	if seen < 30 {
		t.Errorf("saw only %d files", seen)
	}
	for link, want := range map[string]string{"last": "grpo_epoch2.safetensors", "best": ""} {
		target, err := os.Readlink(filepath.Join(dir, "checkpoints", link+".safetensors"))
		if err != nil || want != "" && target != want || !exists(filepath.Join(dir, "checkpoints", target)) {
			t.Errorf("%s.safetensors → %q, %v", link, target, err)
		}
	}
	if left := leftovers(t, dir); len(left) > 0 {
		t.Errorf("temporary files: %v", left)
	}
	if got := read(t, filepath.Join(dir, ".hydra/overrides.yaml")); !strings.HasPrefix(got, "- exp=beams_v3\n") ||
		strings.Contains(got, "hydra.run.dir") {
		t.Errorf(".hydra/overrides.yaml is not the task's overrides:\n%s", got)
	}
	report := read(t, filepath.Join(dir, "report.md"))
	for _, want := range []string{"**Synthetic data.**", "similarity", "random", "plots/", "run exp=beams_v3", "grpo", "rce"} {
		if !strings.Contains(report, want) {
			t.Errorf("report.md does not mention %q", want)
		}
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	dir, _ := trained(t)
	var s struct {
		State, Title, Task, Device string
		Error                      *string
		Command                    []string
		Seed                       int
		WallSeconds                float64 `json:"wall_seconds"`
		Resumes                    int
		Versions                   map[string]string
		Data                       struct {
			Name, Notice, Fingerprint string
			Synthetic                 bool
			Counts                    map[string]int
		}
		Phases []struct {
			Name          string
			Epochs, Steps int
			Seconds       float64
			Final         map[string]any
		}
		Best        *struct{ Metric, Checkpoint string }
		Evaluations []map[string]any
	}
	if err := json.Unmarshal([]byte(read(t, filepath.Join(dir, "summary.json"))), &s); err != nil {
		t.Fatal(err)
	}
	if s.State != "done" || s.Error != nil || s.Title != "beams_v3" || s.Task != "train" || s.Device != "cpu" || s.Seed != 3 ||
		s.WallSeconds <= 0 || s.Resumes != 0 {
		t.Errorf("head: %+v", s)
	}
	if s.Command[0] != "run" || s.Command[1] != "exp=beams_v3" {
		t.Errorf("command %v", s.Command)
	}
	for _, key := range []string{"fulcrum", "go", "libtorch", "os", "config"} {
		if s.Versions[key] == "" {
			t.Errorf("versions lacks %s: %v", key, s.Versions)
		}
	}
	if !s.Data.Synthetic || s.Data.Name != "shapes" || s.Data.Notice == "" || len(s.Data.Fingerprint) != 64 ||
		s.Data.Counts["val_queries"] != 16 {
		t.Errorf("data: %+v", s.Data)
	}
	if len(s.Phases) != 2 || s.Phases[0].Name != "rce" || s.Phases[1].Epochs != 2 || s.Phases[1].Steps != 6 ||
		s.Phases[1].Seconds <= 0 || s.Phases[1].Final["val_reward"] == nil {
		t.Errorf("phases: %+v", s.Phases)
	}
	if s.Best == nil || s.Best.Metric != "val_reward" || !exists(filepath.Join(dir, s.Best.Checkpoint)) || len(s.Evaluations) == 0 {
		t.Errorf("best %+v, %d evaluations", s.Best, len(s.Evaluations))
	}
}

// metrics.jsonl has one step row for every optimizer step, one epoch row for every epoch, and the
// fields of DESIGN 1.4 by name.
func TestMetrics(t *testing.T) {
	t.Parallel()
	dir, _ := trained(t)
	common := strings.Fields("kind phase epoch step global_step time")
	step := strings.Fields("loss grad_norm lr items step_seconds")
	ppo := strings.Fields("ppo_loss kl_loss kl kl_beta mean_ratio clip_fraction mean_advantage std_advantage max_advantage entropy top_k")
	val := strings.Fields("val_loss val_kl val_reward checkpoint")
	fields := map[string][]string{
		"step rce": append(step, "temperature"), "step grpo": append(step, ppo...),
		"epoch rce": append(append(step, "temperature"), val...), "epoch grpo": append(append(step, ppo...), val...),
		"eval ": {"split", "policy", "reward"}, "eval init": {"split", "policy", "reward", "loss"},
		"eval rce": {"split", "policy", "reward"}, "eval grpo": {"split", "policy", "reward"},
	}
	count := map[string]int{}
	policies := map[string]bool{}
	global := 0
	for i, line := range strings.Split(strings.TrimSpace(read(t, filepath.Join(dir, "metrics.jsonl"))), "\n") {
		var row map[string]any
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatalf("line %d: %v", i+1, err)
		}
		what := row["kind"].(string) + " " + row["phase"].(string)
		count[what]++
		for _, name := range append(common, fields[what]...) {
			if _, ok := row[name]; !ok {
				t.Errorf("line %d (%s) has no %s", i+1, what, name)
			}
		}
		n := int(row["global_step"].(float64))
		switch row["kind"] {
		case "step":
			global++
			inPhase, perPhase := int(row["step"].(float64)), 6
			if n != global || inPhase != (global-1)%perPhase+1 || int(row["epoch"].(float64)) != (inPhase-1)/3+1 {
				t.Errorf("line %d: step %d of epoch %v, global step %d, after %d steps", i+1, inPhase, row["epoch"], n, global-1)
			}
			if row["phase"] == "grpo" && inPhase == 1 && row["mean_ratio"] != 1.0 {
				t.Errorf("line %d: mean_ratio %v, want exactly 1 at the first step after the refresh", i+1, row["mean_ratio"])
			}
		case "epoch":
			if n != global {
				t.Errorf("line %d: epoch row at global step %d, want %d", i+1, n, global)
			}
		case "eval":
			policies[row["policy"].(string)] = true
		}
	}
	for what, want := range map[string]int{"step rce": 6, "step grpo": 6, "epoch rce": 2, "epoch grpo": 2} {
		if count[what] != want {
			t.Errorf("%d rows of kind %q, want %d", count[what], what, want)
		}
	}
	for _, name := range []string{"random", "similarity", "best_beam", "oracle", "init", "rce", "grpo", "best"} {
		if !policies[name] {
			t.Errorf("no evaluation of %s", name)
		}
	}
}

// Two runs of one configuration agree to the last byte, wherever they lie and whatever they plot.
func TestDeterminism(t *testing.T) {
	t.Parallel()
	dir, _ := trained(t)
	again := undrawn(t)
	outcomeOf(t, dir).Same(t, outcomeOf(t, again), 0)

	strict := folder(t)
	mustRun(t, tiny("hydra.run.dir="+strict, "report.plots=false", "deterministic=true")...) // every operation has a deterministic form
	if a, b := outcomeOf(t, again).Metrics, outcomeOf(t, strict).Metrics; strings.Join(a, "\n") != strings.Join(b, "\n") {
		t.Error("deterministic=true changes the metrics on a CPU")
	}

	other := folder(t)
	mustRun(t, tiny("hydra.run.dir="+other, "report.plots=false", "seed=4")...)
	if a, b := outcomeOf(t, again), outcomeOf(t, other); a.Files["last.safetensors"] == "" ||
		a.Files["rce_epoch1.safetensors"] == b.Files["rce_epoch1.safetensors"] {
		t.Error("another seed gives the same checkpoint: the comparison above sees nothing")
	}
}

// A folder that holds other things but no run: a dry run and a refused run leave it as it is, a run adds
// its own files and takes nothing away.
func TestForeignFolder(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	theirs := []string{".draft.tmp", ".draft.tmp.txt", ".notes.tmp1", ".summary.json.tmp12", "plots/.figure.tmp3", "report.md",
		".lock.tmplink"}
	for _, name := range theirs {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), "theirs")
	}
	unchanged := func(what string, exact bool) {
		t.Helper()
		n := 0
		filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				n++
			}
			return err
		})
		for _, name := range theirs {
			if !exists(filepath.Join(dir, name)) || name != "report.md" && read(t, filepath.Join(dir, name)) != "theirs" {
				t.Errorf("%s: %s is gone", what, name)
			}
		}
		if exact && n != len(theirs) {
			t.Errorf("%s: %d files, want %d", what, n, len(theirs))
		}
	}
	said := mustRun(t, tiny("dry_run=true", "hydra.run.dir="+dir)...)
	if !strings.Contains(said.Stdout, "→ "+dir) || !strings.Contains(said.Stderr, "nothing was trained") {
		t.Errorf("the dry run says neither its folder nor what it is:\n%s%s", said.Stdout, said.Stderr)
	}
	unchanged("a dry run", true)
	refused(t, run(t, tiny("schedule=[sft]", "hydra.run.dir="+dir)...), 2, "sft")
	unchanged("a usage error", true)
	mustRun(t, tiny("schedule=[rce]", "rce.epochs=1", "hydra.run.dir="+dir)...)
	unchanged("a run", false)
}
