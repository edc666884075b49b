package grpo

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/testkit/phasetest"
	"fulcrum/phases"
	"fulcrum/phases/doctor"
	"fulcrum/phases/preflight"
	"fulcrum/phases/rce"
	"fulcrum/rewardutil/schedule"
)

// TestTheDoctorChangesNothing: checkpoints have the same bytes with and without it.
func TestTheDoctorChangesNothing(t *testing.T) {
	train, val := phasetest.Toy(t)
	var got [2]map[string]string
	for i, checks := range [][]doctor.Check{nil, phasetest.Nosy()} {
		dir, rec := t.TempDir(), &phasetest.Memory{}
		plan := constantPlan(train)
		plan.Doctor = checks
		if _, err := phases.Run(context.Background(), plan, phasetest.ToyEnv(t, val, rec, dir), nil); err != nil {
			t.Fatal(err)
		}
		found := slices.DeleteFunc(rec.Findings(), func(event string) bool { return event == "best_is_initial" }) // the scheduler's
		if (checks != nil) != (len(found) > 0) {
			t.Fatalf("%d checks: found %v", len(checks), found)
		}
		got[i] = map[string]string{}
		for name, hash := range phasetest.Files(t, dir) {
			if strings.HasSuffix(name, ".safetensors") {
				got[i][name] = hash
			}
		}
	}
	if len(got[0]) < 5 || !reflect.DeepEqual(got[0], got[1]) {
		t.Errorf("files %v, want %v", got[1], got[0])
	}
}

// TestStop: a finding of severity stop ends the run and is its error; the state before it stays, and once the
// severity is changed a resume goes on as if it had been so from the start.
func TestStop(t *testing.T) {
	plan := func(severity doctor.Severity) phases.Plan {
		return phases.Plan{Checkpoint: phases.DefaultCheckpointOptions(),
			Doctor: phasetest.Tuned(map[string]doctor.Check{"no_signal": {Severity: severity, Limit: 0.05, Steps: 5}}),
			Phases: []phases.Phase{
				tokenGRPO(func(o *Options) { o.Advantage.Precision = 10 })}} // rewards lie within 1.5 of each other: no signal
	}
	whole, want := &phasetest.Memory{}, t.TempDir()
	if _, err := phases.Run(context.Background(), plan(doctor.Warning), tokenEnv(t, whole, want), nil); err != nil {
		t.Fatal(err)
	}
	rec, dir := &phasetest.Memory{}, t.TempDir()
	_, err := phases.Run(context.Background(), plan(doctor.Stop), tokenEnv(t, rec, dir), nil)
	var stop *doctor.StopError
	if !errors.As(err, &stop) || stop.Finding.Check != "no_signal" || !strings.Contains(err.Error(), "grpo epoch 2 step 5") {
		t.Fatalf("error %v, want no_signal at epoch 2 step 5", err)
	}
	if last := rec.Rows[len(rec.Rows)-1]; !strings.HasPrefix(last, "event grpo 2 5 ") || !strings.Contains(last, `"severity":"stop"`) ||
		!strings.Contains(last, `"limit":0.05`) {
		t.Errorf("the last row is %s", last)
	}
	saved, err := phases.FindState(dir)
	if err != nil || saved == nil || saved.Epoch() != 1 {
		t.Fatalf("state %+v, %v: want the end of epoch 1", saved, err)
	}
	rec.Rows, rec.Evals, rec.Kept = rec.Rows[:saved.Rows()], rec.Evals[:saved.Evals()], rec.Kept[:saved.Completions()]
	if _, err := phases.Run(context.Background(), plan(doctor.Warning), tokenEnv(t, rec, dir), saved); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(rec.Rows, whole.Rows) {
		t.Errorf("resumed rows differ:\n%s\nwant\n%s", strings.Join(rec.Rows, "\n"), strings.Join(whole.Rows, "\n"))
	}
	expected := phasetest.Files(t, want)
	for name, text := range phasetest.Files(t, dir) {
		if text != expected[name] {
			t.Errorf("%s differs after the resume", name)
		}
	}
}

// TestSoftenedIsNeverStopped: with softened options the finding is a warning.
func TestSoftenedIsNeverStopped(t *testing.T) {
	rec := &phasetest.Memory{}
	env := tokenEnv(t, rec, t.TempDir())
	phase := tokenGRPO(func(o *Options) { o.Advantage.Precision = 10 })
	if _, err := phases.Run(context.Background(), phases.Plan{Checkpoint: phases.DefaultCheckpointOptions(),
		Doctor: preflight.Options{Soft: true}.Rows(), Phases: []phases.Phase{phase}}, env, nil); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, row := range rec.Rows {
		if strings.Contains(row, `"event":"no_signal"`) && strings.Contains(row, `"severity":"warning"`) {
			found++
		}
	}
	if found != 1 {
		t.Errorf("%d warnings, want 1", found)
	}
}

// TestNonFiniteIsTraced: the error and the event name the operation that made the first NaN or infinity, with the
// line that called it; weights, checkpoints and the state stay as they were.
func TestNonFiniteIsTraced(t *testing.T) {
	train, val := phasetest.Toy(t)
	for _, phase := range []phases.Phase{
		rce.New(rce.DefaultOptions(), phases.DefaultOptimOptions(), schedule.DefaultLROptions(), train, 16, 0),
		New("grpo", DefaultOptions(), phases.DefaultOptimOptions(), schedule.DefaultLROptions(), train, 16),
	} {
		rec := &phasetest.Memory{}
		env := phasetest.ToyEnv(t, val, rec, t.TempDir())
		w := env.Policy.Params().Values()
		rec.StopAfter, rec.Stop = "eval init", func() { // once the initial policy is validated
			rec.StopAfter = ""
			for i := range w {
				w[i] *= 1e30
			}
			env.Policy.Params().SetValues(w)
		}
		_, err := phases.Run(context.Background(), phases.Plan{Checkpoint: phases.DefaultCheckpointOptions(), Doctor: doctor.Checks(),
			Phases: []phases.Phase{phase}}, env, nil)
		var bad *phases.NonFiniteError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), "made the first number that is not finite") ||
			!strings.Contains(err.Error(), "selector/pointer/") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want one line that names an operation of selector/pointer", phase.Info().Name, err)
		}
		t.Log(err)
		if last := rec.Rows[len(rec.Rows)-1]; !strings.HasPrefix(last, "event "+phase.Info().Name+" 1 1 1 ") ||
			!strings.Contains(last, `"event":"nonfinite"`) || !strings.Contains(last, "selector/pointer/") {
			t.Errorf("%s: the last row is %s", phase.Info().Name, last)
		}
		if !reflect.DeepEqual(w, env.Policy.Params().Values()) {
			t.Errorf("%s: the weights changed", phase.Info().Name)
		}
	}
}

// TestNonFiniteRewardIsNamed: with its query and its candidate, and nothing is made again to find it.
func TestNonFiniteRewardIsNamed(t *testing.T) {
	train, val := phasetest.Toy(t)
	rec := &phasetest.Memory{}
	phase := New("grpo", DefaultOptions(), phases.DefaultOptimOptions(), schedule.DefaultLROptions(), poisoned{train}, 16)
	_, err := phases.Run(context.Background(), phases.Plan{Checkpoint: phases.DefaultCheckpointOptions(), Doctor: doctor.Checks(),
		Phases: []phases.Phase{phase}}, phasetest.ToyEnv(t, val, rec, t.TempDir()), nil)
	var bad *phases.NonFiniteError
	if !errors.As(err, &bad) || !strings.Contains(err.Error(), "of toy: candidate 0 of its group has reward NaN") || bad.Origin != "" {
		t.Errorf("error %v, want one that names the candidate", err)
	}
	if found := rec.Findings(); len(found) != 1 || found[0] != "nonfinite" {
		t.Errorf("found %v", found)
	}
}
