package doctor

import (
	"math"
	"strings"
	"testing"
)

// resumed plays a GRPO phase, stops it after a step and resumes it; lost changes the KL of the steps after the resume.
func resumed(t *testing.T, stop int, lost func(step int, x float64) float64) (found []Finding) {
	t.Helper()
	first := New(Checks())
	first.Begin("grpo", grpoLimits())
	for step := range stop {
		first.Step(step/perEpoch+1, step+1, grpoRow(step))
	}
	again := New(Checks())
	again.Begin("grpo", grpoLimits())
	if err := again.Restore(first.State()); err != nil {
		t.Fatal(err)
	}
	for step := stop; step < total; step++ {
		m := grpoRow(step)
		kl(lost)(step, m)
		found = append(found, again.Step(step/perEpoch+1, step+1, m)...)
	}
	return found
}

// TestReferenceLost: a reference that is the policy, or the initial one, after a resume is named at once; a healthy resume is not.
func TestReferenceLost(t *testing.T) {
	for _, tc := range []struct {
		name string
		lost func(step int, x float64) float64
		want bool
	}{
		{"healthy", func(_ int, x float64) float64 { return x }, false},
		{"the policy itself", func(step int, x float64) float64 { return x * math.Min(1, 1e-6+float64(step-15)/10) }, true},
		{"the initial policy", func(_ int, x float64) float64 { return x + 0.9 }, true},
		{"twice as far, as batches differ", func(_ int, x float64) float64 { return 2 * x }, false},
	} {
		found := resumed(t, 15, tc.lost)
		if named := len(found) > 0 && found[0].Check == "reference_lost"; named != tc.want {
			t.Errorf("%s: found %+v", tc.name, found)
		}
	}
}

// ended plays a phase of so many epochs whose validation queries earn 0.4 and then more by gain(epoch, query).
func ended(lim Limits, epochs int, early bool, gain func(epoch, query int) float64, row func(epoch int) map[string]any) []Finding {
	const queries = 50
	d := New(Checks())
	d.Start(map[string]any{"reward": 0.4}, 0.02)
	d.Known(map[string]float64{"random": 0.2, "similarity": 0.35, "oracle": 0.9})
	scores := func(epoch int) (out []float64, mean float64) {
		for q := range queries {
			x := 0.4 + 0.1*wave(q, 1) + gain(epoch, q)
			out, mean = append(out, x), mean+x/queries
		}
		return out, mean
	}
	before, _ := scores(0)
	d.Handed(before)
	d.Begin("grpo", lim)
	var found []Finding
	for epoch := 1; epoch <= epochs; epoch++ {
		m := row(epoch)
		now, mean := scores(epoch)
		m["val_reward"] = mean
		d.Scored(now)
		found = append(found, d.Epoch(epoch, m)...)
	}
	return append(found, d.End(early)...)
}

// TestNothingAdded: a phase whose epochs are all within the noise of its start is named with its cause; one that gains is not.
func TestNothingAdded(t *testing.T) {
	noise := func(epoch, q int) float64 {
		if epoch == 0 {
			return 0
		}
		return 0.02 * wave(q, 10+epoch)
	}
	with := func(fields map[string]any) func(int) map[string]any {
		return func(epoch int) map[string]any {
			m := epochRow(epoch)
			m["clip_fraction"], m["signal_share"] = 0.2, 0.9
			for k, v := range fields {
				m[k] = v
			}
			return m
		}
	}
	for _, tc := range []struct {
		fields  map[string]any
		because string
	}{
		{map[string]any{"signal_share": 0.1}, "only 10 % of its groups"},
		{map[string]any{"kl": 1e-4, "clip_fraction": 0.0}, "hardly moved"},
		{map[string]any{"clip_fraction": 0.74}, "74 % of its ratios lie outside"},
		{map[string]any{"kl": 0.3, "kl_beta_next": 0.15}, "is above the band"},
		{map[string]any{}, "does not carry over"},
		{map[string]any{"advantage_gain": 0.1}, "training does not improve either"},
	} {
		found := ended(grpoLimits(), 4, false, noise, with(tc.fields))
		if n := len(found); n == 0 || found[n-1].Check != "nothing_added" || found[n-1].Severity != Note ||
			!strings.Contains(found[n-1].Message, "grpo shows nothing on validation, because ") ||
			!strings.Contains(found[n-1].Message, tc.because) {
			t.Errorf("want …%s…, found %+v", tc.because, found)
		}
	}
	if found := ended(grpoLimits(), 4, false, func(e, q int) float64 { return 0.02*float64(e) + noise(e, q) }, with(nil)); len(found) > 0 {
		t.Errorf("a phase that gains: %+v", found)
	}
}

// TestEpochsMissing: an epoch too few is named, unless patience or a pruner ended the phase.
func TestEpochsMissing(t *testing.T) {
	lim := grpoLimits()
	lim.Epochs = 4
	rising := func(epoch, _ int) float64 { return 0.02 * float64(epoch) }
	for _, tc := range []struct {
		epochs int
		early  bool
		want   int
	}{{4, false, 0}, {3, false, 1}, {3, true, 0}, {5, true, 1}} {
		found := ended(lim, tc.epochs, tc.early, rising, epochRow)
		if len(found) != tc.want || tc.want > 0 && (found[0].Check != "epochs_missing" || !strings.Contains(found[0].Message, "grpo.epochs=4")) {
			t.Errorf("%d epochs, early %v: found %+v, want %d", tc.epochs, tc.early, found, tc.want)
		}
	}
}

// TestRewardAmongInputs: a policy that is nearly the oracle is named, and a gain from rewards that say nothing.
func TestRewardAmongInputs(t *testing.T) {
	placebo := grpoLimits()
	placebo.Placebo = true
	for _, tc := range []struct {
		name string
		lim  Limits
		gain float64 // of each epoch, from 0.4; similarity earns 0.35, the oracle 0.9
		want string
	}{
		{"healthy", grpoLimits(), 0.05, ""},
		{"nearly the oracle", grpoLimits(), 0.13, "oracle_gap_closed"},
		{"a placebo that gains", placebo, 0.05, "placebo_gains"},
		{"a placebo that learns nothing", placebo, 0, ""},
	} {
		found := ended(tc.lim, 4, false, func(e, q int) float64 { return tc.gain*float64(e) + 1e-3*wave(q, e) }, epochRow)
		var named []string
		for _, f := range found {
			if f.Severity != Note {
				named = append(named, f.Check)
			}
		}
		if got := strings.Join(named, " "); got != tc.want {
			t.Errorf("%s: found %q, want %q", tc.name, got, tc.want)
		}
	}
}

// TestUntrainedAhead: a policy that has learnt nothing and earns more than similarity is named at once; one of a checkpoint is not.
func TestUntrainedAhead(t *testing.T) {
	for _, tc := range []struct {
		reward float64
		fresh  bool
		want   int
	}{{0.35, true, 0}, {0.4, true, 0}, {0.6, true, 1}, {0.6, false, 0}} {
		d := New(Checks())
		d.Start(map[string]any{"reward": tc.reward}, 0.02)
		d.Known(map[string]float64{"random": 0.2, "similarity": 0.35, "oracle": 0.9})
		lim := grpoLimits()
		lim.Fresh = tc.fresh
		d.Begin("grpo", lim)
		found := d.Step(1, 1, grpoRow(0))
		if len(found) != tc.want || tc.want > 0 && found[0].Check != "untrained_ahead" {
			t.Errorf("%g, fresh %v: found %+v", tc.reward, tc.fresh, found)
		}
	}
}
