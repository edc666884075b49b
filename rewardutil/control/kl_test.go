package control

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
)

// Recorded by running the reference's adaptive_kl_beta; float64, so exact.
func TestBandBetaEqualsTheReference(t *testing.T) {
	var g struct {
		Rows []struct {
			KL     golden.Number `json:"current_kl"`
			Cur    golden.Number `json:"current_beta"`
			Min    float64       `json:"kl_min"`
			Max    float64       `json:"kl_max"`
			Factor float64
			Result float64
		} `json:"adaptive_kl_beta"`
	}
	golden.JSON(t, "../testdata/reward_utils.json", &g)
	if len(g.Rows) != 154 {
		t.Fatalf("%d golden rows, want 154", len(g.Rows))
	}
	for _, row := range g.Rows {
		if math.IsNaN(row.Cur.V) {
			continue // the reference makes 10 of it; no controller here can hold it
		}
		if got := BandBeta(row.Cur.V, row.KL.V, row.Min, row.Max, row.Factor, 0.001, 10); got != row.Result {
			t.Errorf("kl %v beta %v factor %v: got %v, want %v", row.KL.V, row.Cur.V, row.Factor, got, row.Result)
		}
	}
}

func controller(t *testing.T, change func(*KLOptions)) *Controller {
	t.Helper()
	o := DefaultKLOptions()
	change(&o)
	c, err := NewKLController(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestKLControllers(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*KLOptions)
		kls    []float64 // of one epoch's steps
		steps  []float64 // β after each step
		epoch  float64   // β after the epoch
	}{
		{"each step alone, as the reference", func(o *KLOptions) { o.Update = "step" }, []float64{0.2, 0.05, 0.001}, []float64{0.15, 0.15, 0.1},
			0.1},
		{"the epoch's mean moves once", func(*KLOptions) {}, []float64{0.5, 0.001}, []float64{0.1, 0.1}, 0.15},
		{"the epoch's mean inside the band", func(*KLOptions) {}, []float64{0.15, 0.001}, []float64{0.1, 0.1}, 0.1},
		{"a moving average moves once a window", func(o *KLOptions) { o.Update, o.MovingAverageDecay = "moving_average", 0.5 },
			[]float64{1, 1, 1, 1, 1}, []float64{0.1, 0.15, 0.15, 0.225, 0.225}, 0.225},
		{"proportional, 2 % at most", func(o *KLOptions) { o.Controller, o.Update = "proportional", "step" },
			[]float64{9, math.Sqrt(0.01 * 0.1), 0}, []float64{0.102, 0.102, 0.102 * 0.98}, 0.102 * 0.98},
		{"fixed", func(o *KLOptions) { o.Controller, o.Update = "fixed", "step" }, []float64{9, 9}, []float64{0.1, 0.1}, 0.1},
		{"a beta of 0 is off", func(o *KLOptions) { o.Beta, o.Update = 0, "step" }, []float64{9, 0}, []float64{0, 0}, 0},
		{"unless lifted, as the reference does", func(o *KLOptions) { o.Beta, o.Update, o.LiftZero = 0, "step", true }, []float64{0, 9},
			[]float64{0.001, 0.0015}, 0.0015},
		{"NaN moves nothing", func(o *KLOptions) { o.Update = "step" }, []float64{math.NaN()}, []float64{0.1}, 0.1},
		{"NaN is left out of the epoch's mean", func(*KLOptions) {}, []float64{math.NaN(), 1}, []float64{0.1, 0.1}, 0.15},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := controller(t, tc.change)
			var got []float64
			for _, kl := range tc.kls {
				c.Step(kl)
				got = append(got, c.Value())
			}
			c.EndEpoch()
			golden.Close(t, append(got, c.Value()), append(tc.steps, tc.epoch), 1e-15)
		})
	}
}

func TestKLControllerKeepsItsBounds(t *testing.T) {
	c := controller(t, func(o *KLOptions) { o.Beta, o.Update = 9, "step" })
	for i, kl := range []float64{1, 1, 0.05, math.NaN()} { // pushed onto the upper bound, held there; nothing asks for a move
		if c.Step(kl); c.Value() != 10 {
			t.Errorf("step %d, KL %v: got %v, want 10", i, kl, c.Value())
		}
	}
	for range 40 { // 10/1.5^23 is below 0.001
		c.Step(0)
	}
	if c.Value() != 0.001 {
		t.Errorf("got %v, want the lower bound", c.Value())
	}
}

func TestAnEpochForgetsTheOneBefore(t *testing.T) {
	c := controller(t, func(*KLOptions) {})
	c.Step(9)
	c.EndEpoch()
	c.Step(0.05) // inside the band; with the first epoch in the mean it would not be
	before := c.Value()
	if c.EndEpoch(); c.Value() != before {
		t.Errorf("got %v, want what the second epoch's own mean asks for, %v", c.Value(), before)
	}
	if c.EndEpoch(); c.Value() != before {
		t.Errorf("an epoch without steps decides nothing: got %v, want %v", c.Value(), before)
	}
}

func TestControllersResumeExactly(t *testing.T) {
	for _, update := range []string{"step", "epoch", "moving_average"} {
		rnd := rand.New(rand.NewPCG(3, 4))
		whole := controller(t, func(o *KLOptions) { o.Update = update })
		softly := PolicyTemperatureOptions{Enabled: true, Start: 1, Min: 0.5, Max: 2, Factor: 1.1, TargetMin: 0.01, TargetMax: 0.1,
			Update: update, MovingAverageDecay: 0.9}
		soft, err := NewPolicyTemperature(softly)
		if err != nil {
			t.Fatal(err)
		}
		var cut, softCut *Controller
		for step := range 300 {
			kl := rnd.ExpFloat64() * []float64{0.3, 0.002}[step/37%2]
			whole.Step(kl)
			soft.Step(kl)
			if cut != nil {
				cut.Step(kl)
				softCut.Step(kl)
			}
			if step%37 == 36 {
				whole.EndEpoch()
				soft.EndEpoch()
				if cut != nil {
					cut.EndEpoch()
					softCut.EndEpoch()
				}
			}
			if cut != nil && (cut.State() != whole.State() || softCut.State() != soft.State()) {
				t.Fatalf("%s step %d: got %+v, want %+v", update, step, cut.State(), whole.State())
			}
			if step == 17 { // killed inside an epoch: from here on, a restored copy runs beside
				data, err := json.Marshal([]State{whole.State(), soft.State()})
				if err != nil {
					t.Fatal(err)
				}
				var states []State
				if err := json.Unmarshal(data, &states); err != nil {
					t.Fatal(err)
				}
				cut = controller(t, func(o *KLOptions) { o.Update = update })
				softCut, _ = NewPolicyTemperature(softly)
				if err := fmt.Errorf("%v%v", cut.Restore(states[0]), softCut.Restore(states[1])); err.Error() != "<nil><nil>" {
					t.Fatal(err)
				}
			}
		}
		if cut.State() != whole.State() || softCut.State() != soft.State() || whole.Value() == DefaultKLOptions().Beta {
			t.Fatalf("%s: got %+v, want %+v", update, cut.State(), whole.State())
		}
	}
}

func TestPolicyTemperature(t *testing.T) {
	o := DefaultPolicyTemperatureOptions()
	off, err := NewPolicyTemperature(o)
	if err != nil {
		t.Fatal(err)
	}
	off.Step(9)
	if off.EndEpoch(); off.Value() != 1 {
		t.Errorf("off: got temperature %v, want 1", off.Value())
	}
	o.Enabled, o.Update = true, "step"
	c, err := NewPolicyTemperature(o)
	if err != nil {
		t.Fatal(err)
	}
	c.Step(0) // a low KL sharpens
	sharp := c.Value()
	c.Step(1) // a high one softens
	c.Step(1)
	golden.Close(t, []float64{sharp, c.Value()}, []float64{1 / 1.1, 1.1}, 1e-15)
	for range 20 {
		c.Step(1)
	}
	if s := c.State(); s.Value != 2 {
		t.Errorf("got %+v, want the upper bound", s)
	}
}

func TestKLOptionsValidate(t *testing.T) {
	if err := DefaultKLOptions().Validate(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		change func(*KLOptions)
		want   string
	}{
		{func(o *KLOptions) { o.TargetMax = 0.001 }, "target_max: want more than target_min = 0.01, got 0.001"},
		{func(o *KLOptions) { o.Factor = 1 }, "factor: want a number in (1, inf), got 1"},
		{func(o *KLOptions) { o.BetaMax = 0.0001 }, "beta_max: want at least beta_min = 0.001"},
		{func(o *KLOptions) { o.Beta = math.NaN() }, "beta: want a number"},
		{func(o *KLOptions) { o.Update = "batch" }, "update: want one of"},
		{func(o *KLOptions) { o.Controller, o.Gain = "proportional", 9 }, "gain: want"},
	} {
		o := DefaultKLOptions()
		tc.change(&o)
		if _, err := NewKLController(o); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v, want %q", err, tc.want)
		}
	}
	p := DefaultPolicyTemperatureOptions()
	p.Enabled, p.Start, p.Min = true, 5, 0
	if err := p.Validate(); err == nil || !strings.Contains(err.Error(), "start: want a number in [min, max]") ||
		!strings.Contains(err.Error(), "min: want a number in (0, inf), got 0") {
		t.Errorf("got %v", err)
	}
	if err := controller(t, func(*KLOptions) {}).Restore(State{Value: math.NaN()}); err == nil {
		t.Error("a NaN state is restored")
	}
}
