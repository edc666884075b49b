package phases

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/selector"
)

// A run's folder may be called as its overrides are: brackets in it are no pattern.
func TestMidEpochStatesGoFromAnyFolder(t *testing.T) {
	for _, name := range []string{"plain", "schedule=[rce,grpo]"} {
		s := &scheduler{ckpt: filepath.Join(t.TempDir(), name)}
		for _, state := range []string{"rce_epoch1_step2", "rce_epoch1_step4"} {
			if err := os.MkdirAll(filepath.Join(s.ckpt, state+stateSuffix), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.dropMidEpoch("rce_epoch1_step4" + stateSuffix); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(s.ckpt); err != nil || len(left) != 1 || left[0].Name() != "rce_epoch1_step4"+stateSuffix {
			t.Errorf("in %s are %v (%v), want the newer state alone", name, left, err)
		}
	}
}

// TestAStateIsNeverGone: where a state takes the place of one of its name, one of the two stands there at any time, and one is left.
func TestAStateIsNeverGone(t *testing.T) {
	ckpt, name := t.TempDir(), "rce_epoch1"+stateSuffix
	save := func(text string) {
		if err := saveFolder(ckpt, name, func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "state.json"), []byte(text), 0o600)
		}); err != nil {
			t.Error(err)
		}
	}
	save("first")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 50 {
			save("another")
		}
	}()
	for looks := 0; ; looks++ {
		if _, err := os.Stat(filepath.Join(ckpt, name)); err != nil {
			t.Errorf("look %d: %v", looks, err)
			break
		}
		select {
		case <-done:
			if text, err := os.ReadFile(filepath.Join(ckpt, name, "state.json")); err != nil || string(text) != "another" {
				t.Errorf("the state holds %q (%v)", text, err)
			}
			if left, err := os.ReadDir(ckpt); err != nil || len(left) != 1 {
				t.Errorf("there are %v (%v), want the state alone", left, err)
			}
			return
		default:
		}
	}
	<-done
}

// failing is a phase that cannot begin.
type failing struct {
	Phase
	begin func() error
}

func (failing) Info() Info                  { return Info{Name: "toy", Source: one{}, BatchSize: 1, Passes: 1} }
func (f failing) Begin(_ *Env, _ int) error { return f.begin() }

type one struct{ selector.Source }

func (one) Len() int { return 1 }

// TestUnsavedStateIsSaid: a state that could not be written is said however training ends, and training waits for it.
func TestUnsavedStateIsSaid(t *testing.T) {
	full := errors.New("no space left on device")
	for _, ended := range []error{ErrInterrupted, context.Canceled, errors.New("a step"), nil} {
		s := &scheduler{writing: make(chan error, 1)}
		if ended != nil {
			s.plan.Phases = []Phase{failing{begin: func() error { return ended }}}
		}
		s.writing <- full
		err := s.trainAndSave(t.Context(), nil)
		if !errors.Is(err, full) || errors.Is(err, ErrInterrupted) || errors.Is(err, context.Canceled) {
			t.Errorf("training ended in %v: %v, want %v and no interruption", ended, err, full)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("training ended in %v: %q, want one line", ended, err)
		}
	}
	s := &scheduler{writing: make(chan error, 1)}
	s.plan.Phases = []Phase{failing{begin: func() error { panic("out of memory") }}}
	s.writing <- full
	defer func() {
		if recover() == nil || s.writing != nil {
			t.Error("a panic did not wait for the state")
		}
	}()
	_ = s.trainAndSave(t.Context(), nil)
}

// TestStepsBeforeAStateAreCertain: a step is foreseen up to the one before which a state is saved.
func TestStepsBeforeAStateAreCertain(t *testing.T) {
	s := &scheduler{plan: Plan{Checkpoint: CheckpointOptions{EverySteps: new(3)}}}
	steps := epochSteps{info: Info{BatchSize: 1, Passes: 1}, order: []int{4, 2, 0, 1, 3}, epoch: 1, count: 5}
	var got []int
	for ; s.pos.EpochSteps < steps.count; s.pos.EpochSteps++ {
		got = append(got, len(s.at(nil, steps).Next))
		s.pos.GlobalStep++
	}
	if want := []int{2, 1, 0, 1, 0}; !slices.Equal(got, want) {
		t.Errorf("steps foreseen %v, want %v", got, want)
	}
}
