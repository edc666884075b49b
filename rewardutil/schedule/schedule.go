// Package schedule gives the learning rate and RCE's temperature at each step of a phase.
package schedule

import "math"

// TemperatureOptions is RCE's temperature over the steps of its phase.
type TemperatureOptions struct {
	// temperature of the first step, in reward units (or deviations, with relative)
	Start float64 `koanf:"start" range:"(0,inf)"`
	// temperature of the last step
	End float64 `koanf:"end" range:"(0,inf)"`
	// how the temperature goes from start to end
	Schedule string `koanf:"schedule" enum:"linear,cosine,exponential,constant"`
	// multiply by the standard deviation of each group's rewards, so that their scale does not matter
	Relative bool `koanf:"relative"`
}

// DefaultTemperatureOptions returns 2.0 to 0.5, linear.
func DefaultTemperatureOptions() TemperatureOptions {
	return TemperatureOptions{Start: 2, End: 0.5, Schedule: "linear"}
}

// At returns the temperature of a step (0-based, over all epochs of the phase) of total steps. A phase
// of one step gets the end temperature, or the start with schedule constant. Source: parity
// specification §6 (linear); the others are ours.
func (o TemperatureOptions) At(step, total int) float64 {
	if o.Schedule == "constant" {
		return o.Start
	}
	if total <= 1 {
		return o.End
	}
	x := math.Max(0, math.Min(1, float64(step)/float64(total-1)))
	switch o.Schedule {
	case "cosine":
		return o.End + (o.Start-o.End)*(1+math.Cos(math.Pi*x))/2
	case "exponential":
		return o.Start * math.Pow(o.End/o.Start, x)
	}
	return o.Start + (o.End-o.Start)*x
}

// LRScheduleOptions is the learning rate over the steps of a phase.
type LROptions struct {
	// shape of the learning rate after warm-up
	Name string `koanf:"name" enum:"cosine,linear,constant" also:"lr_scheduler_type,lr_scheduler,scheduler"`
	// share of a phase's steps in which the learning rate rises from near 0
	WarmupRatio float64 `koanf:"warmup_ratio" range:"[0,1)" also:"warmup"`
}

// DefaultLRScheduleOptions returns cosine decay to 0 after 10 % warm-up.
func DefaultLROptions() LROptions {
	return LROptions{Name: "cosine", WarmupRatio: 0.1}
}

// At returns the factor on the learning rate at a step (0-based) of a phase of total steps. No step gets
// 0: warm-up of w steps starts at 1/w and reaches 1 in its last step, the decay starts at 1 and would
// reach 0 one step after the last.
func (o LROptions) At(step, total int) float64 {
	warmup := int(math.Round(o.WarmupRatio * float64(total)))
	if step < warmup {
		return float64(step+1) / float64(warmup)
	}
	x := math.Min(1, float64(step-warmup)/float64(max(1, total-warmup)))
	switch o.Name {
	case "cosine":
		return (1 + math.Cos(math.Pi*x)) / 2
	case "linear":
		return 1 - x
	}
	return 1
}
