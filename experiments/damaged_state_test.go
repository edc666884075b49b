package experiments_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every file of a state that no resume needs is read by resume, verify and checkpoint verify all the same, and nothing that the run
// writes later blesses it.
func TestDamagedEarlierState(t *testing.T) {
	t.Parallel()
	const state = "checkpoints/rce_epoch1.state"
	for _, name := range []string{"optimizer.safetensors", "state.json", "SHA256SUMS"} {
		for what, damage := range map[string]func(t *testing.T, path string){
			"emptied": func(t *testing.T, path string) { write(t, path, "") },
			"flipped": func(t *testing.T, path string) {
				text := []byte(read(t, path))
				text[len(text)/2] ^= 1
				write(t, path, string(text))
			},
			"removed": func(t *testing.T, path string) {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			},
		} {
			if testing.Short() && (what == "flipped") != (name == "state.json") { // all are in phases' TestDamageOfEveryState
				continue
			}
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				finished, dir := copyOf(t, false), copyOf(t, true)
				damage(t, filepath.Join(finished, state, name))
				damage(t, filepath.Join(dir, state, name))
				if r := run(t, "resume", finished); r.Code != 0 || !strings.Contains(r.Stderr, "warning: ") || !strings.Contains(r.Stderr, state) {
					t.Errorf("resume of a finished run: exit code %d: %s", r.Code, r.Stderr)
				}
				refused(t, run(t, "checkpoint", "verify", finished), 1, state)
				if r := run(t, "verify", finished); r.Code != 1 || !strings.Contains(r.Stdout, state) {
					t.Errorf("verify: exit code %d: %s%s", r.Code, r.Stdout, r.Stderr)
				}
				refused(t, run(t, "resume", dir), 1, state, "remove "+filepath.Join(dir, state))
				onDamage(t, dir)
				mustRun(t, "resume", dir)
				if r := run(t, "verify", dir); r.Code != 1 || !strings.Contains(r.Stdout, state) {
					t.Errorf("verify after the resume: exit code %d: %s%s", r.Code, r.Stdout, r.Stderr)
				}
			})
		}
	}
}

// onDamage lets the saved run in dir pass over what is damaged. The key decides nothing that a run computes: it may come later.
func onDamage(t *testing.T, dir string) {
	t.Helper()
	path := filepath.Join(dir, ".hydra/config.yaml")
	text := read(t, path)
	changed := strings.Replace(text, "on_damage: stop", "on_damage: previous", 1)
	if changed == text {
		t.Fatal(".hydra/config.yaml has no checkpoint.on_damage")
	}
	write(t, path, changed)
}

// With checkpoint.on_damage=previous a requeue goes on from the state before a damaged one, ends with the bytes of a run that was
// never stopped, and its report says what was passed over.
func TestResumeBeforeDamage(t *testing.T) {
	t.Parallel()
	whole, dir := outcomeOf(t, allStates(t)), copyOf(t, true)
	damaged := "grpo_epoch2.state/optimizer.safetensors"
	write(t, filepath.Join(dir, "checkpoints", damaged), "")
	refused(t, run(t, "resume", dir), 1, damaged, "damaged", "to resume from the state before it")
	onDamage(t, dir)
	mustRun(t, "resume", dir)
	whole.Same(t, outcomeOf(t, dir), 1)
	mustRun(t, "verify", dir)
	for _, name := range []string{"report.md", "run.log"} {
		if text := read(t, filepath.Join(dir, name)); !strings.Contains(text, "skipping damaged states: "+damaged) {
			t.Errorf("%s does not name %s:\n%s", name, damaged, text)
		}
	}
}

// A checkpoint that changes between two states of a run is not what its manifest says.
func TestManifestOfDamage(t *testing.T) {
	t.Parallel()
	dir := copyOf(t, true)
	name := "checkpoints/rce_epoch1.safetensors"
	if best := realPath(t, filepath.Join(dir, "checkpoints/best.safetensors")); filepath.Base(best) == filepath.Base(name) {
		name = "checkpoints/rce_epoch2.safetensors"
	}
	p := start(t, "resume", dir)
	p.Until(func() bool { return strings.Contains(read(t, filepath.Join(dir, "metrics.jsonl")), `"event":"resume"`) })
	garble(t, filepath.Join(dir, name))
	if r := p.Wait(); r.Code != 0 || !strings.Contains(r.Stderr, "warning: ") || !strings.Contains(r.Stderr, name+": damaged") {
		t.Fatalf("exit code %d: %s", r.Code, r.Stderr)
	}
	if r := run(t, "verify", dir); r.Code != 1 || !strings.Contains(r.Stdout, name+": digest") {
		t.Errorf("verify: exit code %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
}
