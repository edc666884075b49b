package grpo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/tensorfile"
	"fulcrum/internal/testkit/phasetest"
	"fulcrum/phases"
	"fulcrum/phases/rce"
	"fulcrum/rewardutil/schedule"
)

// TestKeep: checkpoint.keep counts checkpoints, not epochs; checkpoint.keep_states states. A state goes with its weights, and the best
// checkpoint keeps both.
func TestKeep(t *testing.T) {
	train, val := phasetest.Toy(t)
	const last = "rce_epoch8"
	for _, tc := range []struct {
		name            string
		change          func(*phases.CheckpointOptions)
		weights, states []string
	}{
		{"all weights, two states", func(*phases.CheckpointOptions) {}, []string{"rce_epoch3", "rce_epoch6", last}, []string{"rce_epoch6", last}},
		{"all states", func(o *phases.CheckpointOptions) { o.KeepStates = nil }, []string{"rce_epoch3", "rce_epoch6", last},
			[]string{"rce_epoch3", "rce_epoch6", last}},
		{"two weights", func(o *phases.CheckpointOptions) { o.Keep, o.KeepStates = new(2), nil }, []string{"rce_epoch6", last},
			[]string{"rce_epoch6", last}},
		{"one weights", func(o *phases.CheckpointOptions) { o.Keep = new(1) }, []string{last}, []string{last}},
		{"an early best", func(o *phases.CheckpointOptions) {
			o.EveryEpochs, o.Keep, o.KeepStates, o.Best = 1, new(1), new(1), phases.BestOptions{Metric: new("val_loss"), Highest: true}
		}, []string{"best", last}, []string{"best", last}},
	} {
		opt := rce.DefaultOptions()
		opt.Epochs, opt.LR = 8, 1e-3
		plan := phases.Plan{Checkpoint: phases.DefaultCheckpointOptions()}
		plan.Checkpoint.EveryEpochs, plan.Checkpoint.Best.Metric = 3, new("val_kl") // the start stays best
		if tc.change(&plan.Checkpoint); plan.Checkpoint.Best.Highest {
			opt.LR = 0.03 // its loss is lowest in the middle
		}
		plan.Phases = []phases.Phase{rce.New(opt, phases.DefaultOptimOptions(), schedule.DefaultLROptions(), train, 16, 0)}
		dir := t.TempDir()
		result, err := phases.Run(context.Background(), plan, phasetest.ToyEnv(t, val, &phasetest.Memory{}, dir), nil)
		if err != nil {
			t.Fatal(err)
		}
		kept := func(suffix string) (names []string) {
			paths, _ := filepath.Glob(filepath.Join(dir, "checkpoints", "rce_epoch*"+suffix))
			for _, path := range paths {
				name := strings.TrimSuffix(filepath.Base(path), suffix)
				if name+".safetensors" == filepath.Base(result.BestFile) {
					name = "best"
				}
				names = append(names, name)
			}
			return names
		}
		weights, states := kept(".safetensors"), kept(".state")
		if !reflect.DeepEqual(weights, tc.weights) || !reflect.DeepEqual(states, tc.states) {
			t.Errorf("%s: weights %v, states %v, want %v and %v (best is %s)", tc.name, weights, states, tc.weights, tc.states, result.BestFile)
		}
		if _, err := phases.FindState(dir); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// sized is a recorder that measures the numbers in the checkpoint files of a run at each of its rows.
type sized struct {
	*phasetest.Memory
	dir  string
	most int
}

func (s *sized) Record(kind, phase string, epoch, step, globalStep int, fields map[string]any) error {
	n := 0
	err := filepath.WalkDir(s.dir, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !e.Type().IsRegular() || filepath.Ext(path) != ".safetensors" {
			return err
		}
		f, err := tensorfile.ReadSafetensors(path)
		if errors.Is(err, fs.ErrNotExist) { // it is written, or removed, beside training
			return nil
		}
		if err != nil {
			return err
		}
		defer f.Close()
		for _, x := range f.Tensors {
			n += x.Len()
		}
		return nil
	})
	if s.most = max(s.most, n); err != nil {
		return err
	}
	return s.Memory.Record(kind, phase, epoch, step, globalStep, fields)
}

// newest is a recorder that notes the newest state of a run at each of its steps, where it is one in mid-epoch.
type newest struct {
	*phasetest.Memory
	dir    string
	states []string
}

func (n *newest) Record(kind, phase string, epoch, step, globalStep int, fields map[string]any) error {
	if s, err := phases.FindState(n.dir); kind == "step" && err == nil && s != nil && strings.Contains(s.Dir, "_step") {
		n.states = append(n.states, filepath.Base(s.Dir))
	}
	return n.Memory.Record(kind, phase, epoch, step, globalStep, fields)
}

// TestStatesBetweenBatches: a state that is due between the passes over a batch is saved after them.
func TestStatesBetweenBatches(t *testing.T) {
	train, val := phasetest.Toy(t) // three batches
	for _, ahead := range []bool{false, true} {
		rec := &newest{Memory: &phasetest.Memory{}, dir: t.TempDir()}
		opt, env := DefaultOptions(), phasetest.ToyEnv(t, val, rec, rec.dir)
		opt.Epochs, opt.NumIterations, opt.Rollout, opt.OldPolicy, env.LookAhead = 2, 2, "online", "batch", ahead
		plan := phases.Plan{Checkpoint: phases.DefaultCheckpointOptions(), Phases: []phases.Phase{
			New("grpo", opt, phases.DefaultOptimOptions(), schedule.DefaultLROptions(), train, 16)}}
		plan.Checkpoint.EverySteps = new(3)
		if _, err := phases.Run(context.Background(), plan, env, nil); err != nil {
			t.Fatal(err)
		}
		want := []string{"grpo_epoch1_step4.state", "grpo_epoch2_step4.state"}
		if got := slices.Compact(rec.states); !slices.Equal(got, want) {
			t.Errorf("ahead %v: states %v, want %v", ahead, got, want)
		}
	}
}

// TestDisk: a run's checkpoints and states never take more than the forecast, nor much less.
func TestDisk(t *testing.T) {
	train, val := phasetest.Toy(t)
	for name, change := range map[string]func(*phases.CheckpointOptions){
		"by default":      func(*phases.CheckpointOptions) {},
		"all states":      func(o *phases.CheckpointOptions) { o.KeepStates = nil },
		"one":             func(o *phases.CheckpointOptions) { o.Keep, o.KeepStates = new(1), new(1) },
		"each step":       func(o *phases.CheckpointOptions) { o.EverySteps = new(1) },
		"restored":        func(o *phases.CheckpointOptions) { o.Keep, o.RestoreBest = new(2), true },
		"every other one": func(o *phases.CheckpointOptions) { o.EveryEpochs = 2 },
	} {
		rec := &sized{Memory: &phasetest.Memory{}, dir: t.TempDir()}
		env, plan := phasetest.ToyEnv(t, val, rec, rec.dir), toyPlan(train)
		change(&plan.Checkpoint)
		if _, err := phases.Run(context.Background(), plan, env, nil); err != nil {
			t.Fatal(err)
		}
		n := env.Policy.Params().Numel()
		if got := float64(4 * rec.most); got > plan.Disk(n) || got < 0.4*plan.Disk(n) {
			t.Errorf("%s: the files take up to %.3g times the weights, the forecast is %.3g", name, got/float64(4*n), plan.Disk(n)/float64(4*n))
		}
	}
}

// TestKeeps: the forecast counts the frozen policies that a state really holds.
func TestKeeps(t *testing.T) {
	train, val := phasetest.Toy(t)
	for _, reference := range []string{"init", "phase_start", "epoch_start"} {
		for _, old := range []string{"init", "phase_start", "epoch_start", "every_n", "batch"} {
			for _, every := range []int{0, 1} {
				for _, sync := range []*int{nil, new(2)} {
					o := DefaultOptions()
					o.KL.Beta, o.KL.Controller, o.KL.MeasureEvery, o.KL.Reference, o.OldPolicy = 0, "fixed", every, reference, old
					if o.KL.SyncSteps = sync; o.KL.Validate() != nil {
						continue
					}
					phase := New("grpo", o, phases.DefaultOptimOptions(), schedule.DefaultLROptions(), train, 16)
					if err := phase.Begin(phasetest.ToyEnv(t, val, &phasetest.Memory{}, t.TempDir()), 6); err != nil {
						t.Fatal(err)
					}
					if got, want := phase.Keeps(), len(phase.State().Frozen); got != want {
						t.Errorf("reference %s, old %s, every %d, sync %v: %d, want %d", reference, old, every, sync != nil, got, want)
					}
					phase.End()
				}
			}
		}
	}
}

// obstacle is a recorder that puts a folder where the link to the last checkpoint will be, at a row of a run.
type obstacle struct {
	*phasetest.Memory
	link, row string
}

func (o *obstacle) Record(kind, phase string, epoch, step, globalStep int, fields map[string]any) error {
	if fmt.Sprint(kind, phase, epoch) == o.row {
		if err := os.Remove(o.link); err != nil {
			return err
		}
		if err := os.Mkdir(o.link, 0o755); err != nil {
			return err
		}
	}
	return o.Memory.Record(kind, phase, epoch, step, globalStep, fields)
}

// TestUnwrittenState: an error of what is written beside training ends the run, in its last epoch too, and the state before stays.
func TestUnwrittenState(t *testing.T) {
	train, val := phasetest.Toy(t)
	for _, epoch := range []int{2, 3} {
		opt := rce.DefaultOptions()
		opt.Epochs, opt.LR = 3, 1e-3
		plan := phases.Plan{Checkpoint: phases.DefaultCheckpointOptions()}
		plan.Checkpoint.KeepStates = new(1)
		plan.Phases = []phases.Phase{rce.New(opt, phases.DefaultOptimOptions(), schedule.DefaultLROptions(), train, 16, 0)}
		dir := t.TempDir()
		rec := &obstacle{&phasetest.Memory{}, filepath.Join(dir, "checkpoints/last.safetensors"), fmt.Sprint("epoch", "rce", epoch)}
		_, err := phases.Run(context.Background(), plan, phasetest.ToyEnv(t, val, rec, dir), nil)
		if err == nil || !strings.Contains(err.Error(), "last.safetensors") {
			t.Errorf("epoch %d: %v", epoch, err)
		}
		next := fmt.Sprintf("epoch rce %d ", epoch+1)
		if slices.ContainsFunc(rec.Rows, func(row string) bool { return strings.HasPrefix(row, next) }) {
			t.Errorf("epoch %d: the run went on", epoch)
		}
		for of := epoch - 1; of <= epoch; of++ {
			if _, err := os.Stat(filepath.Join(dir, fmt.Sprintf("checkpoints/rce_epoch%d.state/SHA256SUMS", of))); err != nil {
				t.Errorf("epoch %d: %v", epoch, err)
			}
		}
	}
}
