package schedule

import (
	"math"
	"testing"

	"fulcrum/internal/option"
	"fulcrum/internal/testkit/golden"
)

// Recorded by running the reference's compute_temperature_schedule; float64, so exact.
func TestTemperatureEqualsTheReference(t *testing.T) {
	var g struct {
		Rows []struct {
			Step   int `json:"current_step"`
			Total  int `json:"total_steps"`
			Start  float64
			End    float64
			Result float64
		} `json:"compute_temperature_schedule"`
	}
	golden.JSON(t, "../testdata/reward_utils.json", &g)
	if len(g.Rows) != 165 {
		t.Fatalf("%d golden rows, want 165", len(g.Rows))
	}
	for _, row := range g.Rows {
		o := TemperatureOptions{Start: row.Start, End: row.End, Schedule: "linear"}
		if got := o.At(row.Step, row.Total); got != row.Result {
			t.Errorf("%v to %v, step %d of %d: got %v, want %v", row.Start, row.End, row.Step, row.Total, got, row.Result)
		}
	}
}

func TestTemperatureSchedules(t *testing.T) {
	for _, tc := range []struct {
		schedule string
		want     []float64 // steps 0, 1, 2 of 3
	}{
		{"linear", []float64{2, 1.25, 0.5}},
		{"cosine", []float64{2, 1.25, 0.5}},
		{"exponential", []float64{2, 1, 0.5}},
		{"constant", []float64{2, 2, 2}},
	} {
		o := TemperatureOptions{Start: 2, End: 0.5, Schedule: tc.schedule}
		if err := option.Tags(o); err != nil {
			t.Error(err)
		}
		golden.Close(t, []float64{o.At(0, 3), o.At(1, 3), o.At(2, 3)}, tc.want, 1e-15)
		prev := math.Inf(1)
		for step := range 20 {
			if tau := o.At(step, 20); tau > prev {
				t.Errorf("%s: rises at step %d", tc.schedule, step)
			} else {
				prev = tau
			}
		}
	}
	if option.Tags(TemperatureOptions{Start: 0, End: 1, Schedule: "linear"}) == nil {
		t.Error("temperature 0 passes")
	}
}

func TestLRSchedule(t *testing.T) {
	for _, tc := range []struct {
		name  string
		o     LROptions
		total int
		want  []float64
	}{
		{"warm-up, then cosine", LROptions{Name: "cosine", WarmupRatio: 0.5}, 4, []float64{0.5, 1, 1, 0.5}},
		{"linear", LROptions{Name: "linear"}, 4, []float64{1, 0.75, 0.5, 0.25}},
		{"constant", LROptions{Name: "constant"}, 2, []float64{1, 1}},
		{"constant with warm-up", LROptions{Name: "constant", WarmupRatio: 0.5}, 4, []float64{0.5, 1, 1, 1}},
		{"a phase of one step", DefaultLROptions(), 1, []float64{1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []float64
			for step := range tc.total {
				got = append(got, tc.o.At(step, tc.total))
			}
			golden.Close(t, got, tc.want, 1e-15)
		})
	}
	for _, name := range []string{"cosine", "linear", "constant"} {
		for total := 1; total < 60; total++ {
			o := LROptions{Name: name, WarmupRatio: 0.1}
			for step := range total {
				if f := o.At(step, total); !(f > 0 && f <= 1) {
					t.Fatalf("%s step %d of %d: factor %v, want in (0, 1]", name, step, total, f)
				}
			}
		}
	}
	if option.Tags(LROptions{Name: "cosine", WarmupRatio: 1}) == nil || option.Tags(LROptions{Name: "cos"}) == nil {
		t.Error("a bad schedule passes")
	}
}
