package experiments_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A run killed at any moment and resumed ends as one that was never killed.
func TestKilledAnywhere(t *testing.T) {
	want, took := trained(t)
	n := 3
	if !testing.Short() {
		n = 20
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range n {
		fraction, wholeGroup := random.Float64(), i%2 == 0
		t.Run("", func(t *testing.T) {
			var dir string
			var args []string
			for { // until the kill comes before the end
				dir = folder(t)
				args = tiny("hydra.run.dir="+dir, "report.plots=false")
				begin := time.Now()
				p := start(t, args...)
				select {
				case <-p.Ended:
				case <-time.After(time.Duration(fraction * float64(took))):
				}
				if wholeGroup {
					p.SignalGroup(syscall.SIGKILL)
				} else {
					p.Signal(syscall.SIGKILL)
				}
				if p.Wait().Code != 0 {
					break
				}
				took = min(took, time.Since(begin)) // the machine was slower when it was measured
				fraction = random.Float64()
			}
			t.Logf("killed at %.3f of %v, the whole group: %v", fraction, took, wholeGroup)
			resumes := 1
			if exists(filepath.Join(dir, ".hydra/config.yaml")) {
				if exists(filepath.Join(dir, "summary.json")) { // all is done but the report
					resumes = 0
				}
				mustRun(t, "resume", dir)
			} else {
				mustRun(t, args...) // nothing to resume yet: the same command starts over
				resumes = 0
			}
			outcomeOf(t, want).Same(t, outcomeOf(t, dir), resumes)
			if left := leftovers(t, dir); len(left) > 0 {
				t.Errorf("temporary files: %v", left)
			}
		})
	}
}

// The moments that chance seldom meets.
func TestKilledAt(t *testing.T) {
	t.Parallel()
	want, _ := trained(t)
	for _, tc := range []struct {
		name, file, text string // killed as soon as the file holds the text
	}{
		{"start-up, before any checkpoint, starts over in place", ".hydra/config.yaml", ""},
		{"the first epoch", "metrics.jsonl", `"kind":"step","phase":"rce","epoch":1`},
		{"between two phases", "checkpoints/rce_epoch2.state/state.json", ""},
		{"between two epochs", "checkpoints/grpo_epoch1.state/state.json", ""},
		{"after the last epoch, before the report", "checkpoints/grpo_epoch2.state/state.json", ""},
		{"after the summary, before the report", "summary.json", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t)
			p := start(t, tiny("hydra.run.dir="+dir, "report.plots=false")...)
			p.Until(func() bool {
				data, err := os.ReadFile(filepath.Join(dir, tc.file))
				return err == nil && strings.Contains(string(data), tc.text)
			})
			p.SignalGroup(syscall.SIGKILL)
			resumes := 1
			if strings.Contains(p.Wait().Stdout, "report:") {
				t.Log("the run was faster than the kill")
			}
			if exists(filepath.Join(dir, "summary.json")) {
				resumes = 0
			}
			for _, name := range []string{".summary.json.tmp1", "checkpoints/.last.safetensors.tmplink",
				"checkpoints/.rce_epoch1.state.tmp2/state.json"} {
				if resumes > 0 && exists(filepath.Join(dir, "checkpoints")) { // what a kill at another instant leaves
					os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755)
					os.Remove(filepath.Join(dir, name)) // a link that the kill left would lead elsewhere
					write(t, filepath.Join(dir, name), "torn")
				}
			}
			r := mustRun(t, "resume", dir)
			outcomeOf(t, want).Same(t, outcomeOf(t, dir), resumes)
			if left := leftovers(t, dir); resumes > 0 && len(left) > 0 {
				t.Errorf("temporary files: %v", left)
			}
			if s := read(t, filepath.Join(dir, "summary.json")); !strings.Contains(s, fmt.Sprintf(`"resumes": %d,`, resumes)) ||
				!strings.Contains(s, `"state": "done"`) {
				t.Errorf("summary.json does not tell of %d resumes:\n%s", resumes, s)
			}
			if !strings.Contains(r.Stdout, filepath.Join(dir, "report.md")) || !exists(filepath.Join(dir, "report.md")) {
				t.Errorf("no report: %s", r.Stdout)
			}
			again := mustRun(t, "resume", dir)
			if !strings.Contains(again.Stdout, "this run is finished") {
				t.Errorf("a finished run is resumed: %s", again.Stdout)
			}
			outcomeOf(t, want).Same(t, outcomeOf(t, dir), resumes)
		})
	}
}

// States within an epoch: killed, stopped by a signal, resumed more than once.
func TestEverySteps(t *testing.T) {
	t.Parallel()
	args := tiny("report.plots=false", "checkpoint.every_steps=2", "checkpoint.keep=2",
		"data.shapes.train_queries=64",
		// all that has a state
		"schedule=[rce,grpo,grpo_online]", "grpo_online.epochs=1", "selector.dropout=0.1", "grpo.temperature.enabled=true",
		"grpo.num_iterations=2")
	whole := folder(t)
	mustRun(t, append(args, "hydra.run.dir="+whole)...)
	want := outcomeOf(t, whole)
	if _, ok := want.Files["rce_epoch1.state/state.json"]; ok {
		t.Error("checkpoint.keep=2 keeps the first state")
	}

	dir := folder(t)
	p := start(t, append(args, "hydra.run.dir="+dir)...)
	p.Until(func() bool { return exists(filepath.Join(dir, "checkpoints/rce_epoch2_step2.state")) })
	resumes := p.KillRun(dir)
	p = start(t, "resume", dir)
	p.Until(func() bool { return exists(filepath.Join(dir, "checkpoints/grpo_epoch1_step2.state")) })
	resumes += p.KillRun(dir)
	p = start(t, "resume", dir)
	p.Until(func() bool { return exists(filepath.Join(dir, "checkpoints/grpo_online_epoch1_step2.state")) })
	resumes += p.KillRun(dir)
	if r := p.Wait(); strings.Contains(r.Stderr, "rce   epoch 2/2  done") {
		t.Errorf("the resume starts before the last state:\n%s", r.Stderr)
	}
	mustRun(t, "resume", dir)
	want.Same(t, outcomeOf(t, dir), resumes)
}

// SIGINT and SIGTERM save the state in mid-epoch and end with 130 and 143.
func TestSignals(t *testing.T) {
	t.Parallel()
	// Epochs of 160 steps, half a second: none ends before the signal is seen.
	args := tiny("report.plots=false", "data.shapes.train_queries=640", "data.batch_size=4", "rce.epochs=1", "grpo.epochs=1")
	whole := folder(t)
	mustRun(t, append(args, "hydra.run.dir="+whole)...)
	want := outcomeOf(t, whole)
	for _, tc := range []struct {
		signal syscall.Signal
		code   int
		at     string
	}{
		{syscall.SIGINT, 130, `"kind":"step","phase":"rce","epoch":1,"step":1,`},
		{syscall.SIGTERM, 143, `"kind":"step","phase":"grpo","epoch":1,"step":1,`},
	} {
		t.Run(tc.signal.String(), func(t *testing.T) {
			t.Parallel()
			dir := folder(t)
			p := start(t, append(slices.Clone(args), "hydra.run.dir="+dir)...)
			p.Until(func() bool {
				data, _ := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
				return strings.Contains(string(data), tc.at)
			})
			p.Signal(tc.signal)
			p.Signal(tc.signal) // as timeout(1) does
			r := p.Wait()
			if answer, rest, ok := strings.Cut(r.Stderr, ": saving the state"); !ok ||
				strings.Contains(answer, "the state is saved") || !strings.Contains(rest, "the state is saved") {
				t.Errorf("the signal was not answered before the state was saved: %s", r.Stderr)
			}
			if r.Code != tc.code || !strings.Contains(r.Stderr, "run resume "+dir) {
				t.Errorf("exit code %d, want %d, and how to resume: %s", r.Code, tc.code, r.Stderr)
			}
			if s := read(t, filepath.Join(dir, "summary.json")); !strings.Contains(s, `"state": "interrupted"`) {
				t.Errorf("summary.json does not say interrupted: %s", s)
			}
			states, _ := filepath.Glob(filepath.Join(dir, "checkpoints/*_step*.state"))
			if len(states) != 1 {
				t.Errorf("states of the interrupted epoch: %v, want one", states)
			}
			mustRun(t, "resume", dir)
			want.Same(t, outcomeOf(t, dir), 1)
		})
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	p := start(t, "exp=beams_v3", "schedule=[rce]", "threads=1", "data.shapes.train_queries=4000",
		"data.batch_size=4000", "selector.hidden_dim=512", "rce.epochs=100", // a step takes seconds
		"checks.off=[preflight]", "report.plots=false", "hydra.run.dir="+dir)
	p.Until(func() bool {
		rows, _ := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
		return strings.Contains(string(rows), `"kind":"step"`)
	})
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); {
		p.Signal(syscall.SIGINT)
		select {
		case <-p.Ended:
			end = time.Now()
		case <-time.After(500 * time.Millisecond): // sooner, two are the same request
		}
	}
	if r := p.Wait(); r.Code != 130 || !strings.Contains(r.Stderr, "ended at once") {
		t.Errorf("exit code %d: %s", r.Code, r.Stderr)
	}
}

// What cannot be resumed is refused, and stays as it is.
func TestResumeRefusals(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	p := start(t, tiny("hydra.run.dir="+dir, "report.plots=false")...)
	p.Until(func() bool { return exists(filepath.Join(dir, "checkpoints/rce_epoch1.state/state.json")) })
	p.SignalGroup(syscall.SIGSTOP) // it stays at work, however slow the other is
	if exists(filepath.Join(dir, "summary.json")) {
		t.Skip("the run was faster than the test")
	}
	if r := run(t, "resume", dir); r.Code != 2 || !strings.Contains(r.Stderr, "another process is writing this run folder") {
		t.Errorf("a resume beside the run: exit code %d: %s", r.Code, r.Stderr)
	}
	p.KillRun(dir)
	state, err := newest(filepath.Join(dir, "checkpoints/*.state"))
	if err != nil {
		t.Fatal(err)
	}
	weights := strings.TrimSuffix(state, ".state") + ".safetensors"
	config := filepath.Join(dir, ".hydra/config.yaml")
	for _, tc := range []struct {
		name, file string
		damage     func(string) string
		code       int
		want       []string
	}{
		{"a truncated checkpoint", weights, half, 1, []string{weights, "damaged"}},
		{"truncated optimizer moments", filepath.Join(state, "optimizer.safetensors"), half, 1, []string{"optimizer.safetensors"}},
		{"a truncated state.json", filepath.Join(state, "state.json"), half, 1, []string{"state.json"}},
		{"a damaged initial policy", filepath.Join(dir, "checkpoints/init_epoch0.safetensors"), half, 1,
			[]string{"init_epoch0.safetensors"}},
		{"a damaged config", config, half, 2, []string{"config"}},
		{"an edited config", config, func(s string) string { return strings.Replace(s, "seed: 3", "seed: 4", 1) }, 2,
			[]string{"differs from the state's", "--rerun"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := read(t, tc.file)
			write(t, tc.file, tc.damage(text))
			r := run(t, "resume", dir)
			refused(t, r, tc.code, tc.want...)
			write(t, tc.file, text)
		})
	}
	for key, want := range map[string]string{"exp=beams_v3": "chooses a file of the configuration",
		"grpo.lr=1": "a resumed run keeps its configuration", "report.plots=true": "keeps its",
		"dry_run=true": "--rerun", "vl.path=x": "vl.path belongs to policy=qwen2_5_vl", "checks.of=[kl_jump]": "did you mean checks.off?",
		"hydra.run.dir=x": "for sweeps", "parallel.processes=2": "want at most 1, the shards of a step"} {
		refused(t, run(t, "resume", dir, key), 2, want)
	}
	mustRun(t, "resume", dir, "checks.off=[preflight, ess_uniform]", "checkpoint.keep_states=1") // nothing was lost
	if config := read(t, config); !strings.Contains(config, "keep_states: 1") {
		t.Errorf("the configuration of the folder is not the one that the run ended with:\n%s", config)
	}
	want, _ := trained(t)
	got := outcomeOf(t, dir)
	outcomeOf(t, want).Same(t, got, got.Resumes)
}

// newest returns the state that a resume would take: the last phase's last epoch.
func newest(pattern string) (string, error) {
	found, err := filepath.Glob(pattern)
	best := ""
	for _, path := range found { // rce before grpo, epoch 1 before 2
		if best == "" || strings.Contains(path, "grpo") == strings.Contains(best, "grpo") && path > best ||
			strings.Contains(path, "grpo") && !strings.Contains(best, "grpo") {
			best = path
		}
	}
	return best, err
}

// Relative paths mean what they meant when the run was started, wherever it is resumed or repeated.
func TestResumeElsewhere(t *testing.T) {
	t.Parallel()
	data := beams(t, records())
	home := filepath.Dir(strings.TrimPrefix(data[1], "data.beams="))
	here, elsewhere := filepath.Join(home, "here"), filepath.Join(home, "elsewhere")
	for _, dir := range []string{here, elsewhere} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	args := small([]string{"data=beams", "data.beams=../beams.json", "data.embeddings=../emb.npy"}, "rce.epochs=200",
		"hydra.run.dir=../run")
	p := startWith(t, here, nil, args...)
	p.Until(func() bool { return exists(filepath.Join(home, "run/checkpoints/rce_epoch2.state")) })
	p.Signal(syscall.SIGINT)
	if r := p.Wait(); r.Code != 130 {
		t.Fatalf("exit code %d, want 130: %s", r.Code, r.Stderr)
	}
	write(t, filepath.Join(home, "run/.hydra/config.yaml"), strings.Replace(read(t, filepath.Join(home, "run/.hydra/config.yaml")),
		"epochs: 200", "epochs: 3", 1))
	if r := startWith(t, elsewhere, nil, "--rerun", "../run", "hydra.run.dir=again").Wait(); r.Code != 0 ||
		!exists(filepath.Join(elsewhere, "again/report.md")) {
		t.Errorf("--rerun from another folder: exit code %d: %s", r.Code, r.Stderr)
	}
	write(t, filepath.Join(home, "run/.hydra/config.yaml"), strings.Replace(read(t, filepath.Join(home, "run/.hydra/config.yaml")),
		"epochs: 3", "epochs: 200", 1))
	if err := os.Rename(here, here+"2"); err != nil {
		t.Fatal(err)
	}
	refused(t, startWith(t, elsewhere, nil, "resume", "../run").Wait(), 2, "was started in "+here)
	if err := os.Rename(here+"2", here); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(home, "beams.json")
	text := read(t, file)
	write(t, file, strings.Replace(text, `"vqa_acc_score":0.6`, `"vqa_acc_score":0.7`, 1))
	refused(t, startWith(t, elsewhere, nil, "resume", "../run").Wait(), 2, "the data are not those", "--rerun")
	write(t, file, "\n"+text) // the same content
	r := startWith(t, elsewhere, nil, "resume", "../run")
	r.Until(func() bool { return strings.Contains(r.Stderr.String(), "rce   epoch ") })
	if text := r.Stderr.String(); strings.Contains(text, "run: ") {
		t.Errorf("resume from another folder: %s", text)
	}
}
