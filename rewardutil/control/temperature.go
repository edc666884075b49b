package control

import (
	"errors"
	"fmt"
	"math"

	"fulcrum/internal/option"
)

// PolicyTemperatureOptions configures the second half of adaptive temperature: the temperature of the policy itself in
// GRPO, its logits divided by τ. A KL below the band sharpens the policy (τ falls), one above softens it (τ rises).
type PolicyTemperatureOptions struct {
	// let the KL steer the policy's temperature
	Enabled bool `koanf:"enabled"`
	// temperature of the first step; 1 is the policy as it is
	Start float64 `koanf:"start" range:"(0,inf)"`
	// the temperature never falls below this: beyond half and double another policy is trained
	Min float64 `koanf:"min" range:"(0,inf)" constant:"true"`
	// the temperature never rises above this: the inverse of Min
	Max float64 `koanf:"max" range:"(0,inf)" constant:"true"`
	// the temperature is multiplied or divided by this outside the band: gently, since every move changes the sampling too
	Factor float64 `koanf:"factor" range:"(1,inf)" constant:"true"`
	// KL below this sharpens, nats per sequence: the band of grpo.kl
	TargetMin float64 `koanf:"target_min" range:"[0,inf)" constant:"true"`
	// KL above this softens, nats per sequence
	TargetMax float64 `koanf:"target_max" range:"(0,inf)" constant:"true"`
	// the KL that decides: each step's, each epoch's mean, or a moving average; the mean, as for grpo.kl
	Update string `koanf:"update" enum:"step,epoch,moving_average" constant:"true"`
	// weight of the past in the moving average: of about ten steps
	MovingAverageDecay float64 `koanf:"moving_average_decay" range:"[0,1)" constant:"true"`
}

// DefaultPolicyTemperatureOptions returns a controller that is off.
func DefaultPolicyTemperatureOptions() PolicyTemperatureOptions {
	return PolicyTemperatureOptions{Start: 1, Min: 0.5, Max: 2, Factor: 1.1, TargetMin: 0.01, TargetMax: 0.1,
		Update: "epoch", MovingAverageDecay: 0.9}
}

// Validate reports an empty band, crossed bounds and a start outside them. Options that are off pass.
func (o PolicyTemperatureOptions) Validate() error {
	if !o.Enabled {
		return nil
	}
	return errors.Join(
		option.Tags(o),
		o.band().validate(""),
		option.Want(o.Start >= o.Min && o.Start <= o.Max, "start", "want a number in [min, max] = [%v, %v], got %v", o.Min, o.Max, o.Start),
	)
}

func (o PolicyTemperatureOptions) band() band {
	return band{targetMin: o.TargetMin, targetMax: o.TargetMax, factor: o.Factor, min: o.Min, max: o.Max,
		update: o.Update, decay: o.MovingAverageDecay}
}

// NewPolicyTemperature returns the controller of the policy's temperature, at opt.Start, or one that stays at 1 when it is off.
func NewPolicyTemperature(opt PolicyTemperatureOptions) (*Controller, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	start := opt.Start
	if !opt.Enabled {
		start = 1
	}
	return &Controller{state: State{Value: start}, band: opt.band(),
		inert: func(float64) bool { return !opt.Enabled },
		check: func(tau float64) error {
			if !(tau > 0) || math.IsInf(tau, 0) {
				return fmt.Errorf("restore policy temperature: %v: want a number above 0", tau)
			}
			return nil
		},
		move: func(tau, kl float64) float64 {
			return BandBeta(tau, kl, opt.TargetMin, opt.TargetMax, opt.Factor, opt.Min, opt.Max)
		}}, nil
}
