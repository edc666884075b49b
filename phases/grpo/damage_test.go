package grpo

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"fulcrum/internal/testkit/phasetest"
	"fulcrum/phases"
	"fulcrum/rewardutil/schedule"
)

// TestDamagedCheckpointIsNamed: a state is refused when one of its files is not what was saved, by name.
func TestDamagedCheckpointIsNamed(t *testing.T) {
	train, val := phasetest.Toy(t)
	dir := t.TempDir()
	grpo := DefaultOptions()
	grpo.Epochs = 1
	plan := phases.Plan{Checkpoint: phases.DefaultCheckpointOptions(),
		Phases: []phases.Phase{New("grpo", grpo, phases.DefaultOptimOptions(), schedule.DefaultLROptions(), train, 16)}}
	if _, err := phases.Run(context.Background(), plan, phasetest.ToyEnv(t, val, &phasetest.Memory{}, dir), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := phases.FindState(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"grpo_epoch1.safetensors", "init_epoch0.safetensors", "grpo_epoch1.state/state.json",
		"grpo_epoch1.state/optimizer.safetensors", "grpo_epoch1.state/frozen.safetensors", "grpo_epoch1.state/SHA256SUMS"} {
		path := filepath.Join(dir, "checkpoints", name)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		flipped := bytes.Clone(whole)
		flipped[len(flipped)-3] ^= 1
		for what, damaged := range map[string][]byte{"cut short": whole[:len(whole)/2], "one bit flipped": flipped, "empty": {}} {
			if err := os.WriteFile(path, damaged, 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := phases.FindState(dir); err == nil || !strings.Contains(err.Error(), filepath.Dir(path)) ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("%s %s: error %v, want one line that names it", name, what, err)
			} else if name != "grpo_epoch1.state/SHA256SUMS" && !strings.Contains(err.Error(), path) {
				t.Errorf("%s %s: the error names another file: %v", name, what, err)
			}
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if _, err := phases.FindState(dir); err == nil || !strings.Contains(err.Error(), filepath.Base(path)) {
			t.Errorf("%s missing: error %v, want one that names it", name, err)
		}
		if err := os.WriteFile(path, whole, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// damagePlan has three epochs, so that a damaged state can have one before and one behind it. The reference is frozen anew each epoch:
// a state holds every kind of file.
func damagePlan(t *testing.T) phases.Plan {
	train, _ := phasetest.Toy(t)
	opt := DefaultOptions()
	opt.Epochs, opt.KL.Reference = 3, "epoch_start"
	keep := phases.DefaultCheckpointOptions()
	keep.KeepStates = nil
	return phases.Plan{Checkpoint: keep, Phases: []phases.Phase{
		New("grpo", opt, phases.DefaultOptimOptions(), schedule.DefaultLROptions(), train, 16)}}
}

// TestDamageOfEveryState: whatever happens to any file of any state is named, and FindWhole finds the furthest state that needs nothing
// of it, from which the run ends as one that was never stopped.
func TestDamageOfEveryState(t *testing.T) {
	_, val := phasetest.Toy(t)
	dir, whole := t.TempDir(), &phasetest.Memory{}
	if _, err := phases.Run(context.Background(), damagePlan(t), phasetest.ToyEnv(t, val, whole, dir), nil); err != nil {
		t.Fatal(err)
	}
	want := phasetest.Files(t, dir)
	for _, of := range []struct{ damaged, from string }{
		{"grpo_epoch1", "grpo_epoch3"}, {"grpo_epoch2", "grpo_epoch3"}, {"grpo_epoch3", "grpo_epoch2"}} {
		for _, name := range []string{"state.json", "optimizer.safetensors", "frozen.safetensors", "SHA256SUMS",
			"../" + of.damaged + ".safetensors"} {
			path := filepath.Join(dir, "checkpoints", of.damaged+".state", name)
			good, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			flipped := bytes.Clone(good)
			flipped[len(flipped)/2] ^= 1
			for what, damaged := range map[string][]byte{"flipped": flipped, "empty": {}, "removed": nil} {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
				if damaged != nil {
					if err := os.WriteFile(path, damaged, 0o644); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := phases.FindState(dir); err == nil || !strings.Contains(err.Error(), filepath.Base(path)) &&
					!strings.Contains(err.Error(), filepath.Dir(path)) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s of %s %s: error %v, want one line that names it", name, of.damaged, what, err)
				}
				saved, err := phases.FindWhole(dir)
				from := of.from
				if strings.HasPrefix(name, "../") && damaged != nil { // later states know it as one that may be best
					from = map[string]string{"grpo_epoch1": "", "grpo_epoch2": "grpo_epoch1", "grpo_epoch3": "grpo_epoch2"}[of.damaged]
				}
				switch {
				case from == "" && (err == nil || !strings.Contains(err.Error(), "no state before it is whole")):
					t.Errorf("%s of %s %s: %v, want no state", name, of.damaged, what, err)
				case from == "":
				case err != nil || filepath.Base(saved.Dir) != from+".state":
					t.Errorf("%s of %s %s: state %v, %v; want that of %s", name, of.damaged, what, saved, err, from)
				case len(saved.Passed) == 0 || !strings.Contains(strings.Join(saved.Passed, ""), of.damaged):
					t.Errorf("%s of %s %s: passed %q", name, of.damaged, what, saved.Passed)
				}
				if err := os.WriteFile(path, good, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	damaged := filepath.Join(dir, "checkpoints/grpo_epoch3.state/optimizer.safetensors")
	if err := os.WriteFile(damaged, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	saved, err := phases.FindWhole(dir)
	if err != nil {
		t.Fatal(err)
	}
	rec := &phasetest.Memory{Rows: whole.Rows[:saved.Rows()], Evals: whole.Evals[:saved.Evals()]}
	if _, err := phases.Run(context.Background(), damagePlan(t), phasetest.ToyEnv(t, val, rec, dir), saved); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(rec.Rows, whole.Rows) || !reflect.DeepEqual(phasetest.Files(t, dir), want) {
		t.Error("the run from the state before the damaged one ends otherwise")
	}
}

// TestDigestsOfWhatWasWritten: a checkpoint that changes while the run goes on is not blessed by the states after it.
func TestDigestsOfWhatWasWritten(t *testing.T) {
	_, val := phasetest.Toy(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "checkpoints/grpo_epoch1.safetensors") // its row comes before its state
	rec := &phasetest.Memory{StopAfter: "epoch grpo 1 ", Stop: func() {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		data[len(data)-3] ^= 1
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Error(err)
		}
	}}
	if _, err := phases.Run(context.Background(), damagePlan(t), phasetest.ToyEnv(t, val, rec, dir), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := phases.FindState(dir); err == nil || !strings.Contains(err.Error(), path+": damaged") {
		t.Errorf("error %v, want one that names %s", err, path)
	}
}
