package control

import (
	"errors"
	"fmt"
	"math"

	"fulcrum/internal/option"
)

// KLOptions configures the KL term of GRPO's loss, β·KL(policy ‖ reference), and how β moves.
type KLOptions struct {
	// starting coefficient of the KL term; 0 leaves the term out and is never lifted
	Beta float64 `koanf:"beta" range:"[0,inf)" also:"grpo_beta,kl_coef,kl_beta,init_kl_coef,kl_coeff,kl_penalty"`
	// exact over the pool (not for token policies), or from log-ratios of candidates (ratio=sequence) or tokens
	// (token); k3_reversed is the Python reference's
	Estimator string `koanf:"estimator"`
	// band: beta moves by factor outside the target band; proportional: a little towards its middle; fixed: never
	Controller string `koanf:"controller" enum:"band,proportional,fixed"`
	// lower end of the band, nats per sequence
	TargetMin float64 `koanf:"target_min" range:"[0,inf)" when:"!controller=fixed"`
	// upper end of the band, nats per sequence
	TargetMax float64 `koanf:"target_max" range:"(0,inf)" also:"target,target_kl,kl_target" when:"!controller=fixed"`
	// beta is multiplied or divided by this outside the band
	Factor float64 `koanf:"factor" range:"(1,inf)" when:"controller=band"`
	// beta never falls below this
	BetaMin float64 `koanf:"beta_min" range:"(0,inf)" when:"!controller=fixed"`
	// beta never rises above this
	BetaMax float64 `koanf:"beta_max" range:"(0,inf)" when:"!controller=fixed"`
	// the policy that KL is measured against
	Reference string `koanf:"reference" enum:"init,phase_start,epoch_start"`

	// the KL that moves beta: each epoch's mean, a moving average over steps, or each step (noisy)
	Update string `koanf:"update" enum:"step,epoch,moving_average" when:"!controller=fixed"`
	// weight of the past in the moving average: of about ten steps
	MovingAverageDecay float64 `koanf:"moving_average_decay" range:"[0,1)" constant:"true"`
	// step of the proportional controller: beta changes by at most gain·0.2 of itself, a fiftieth
	Gain float64 `koanf:"gain" range:"(0,5)" constant:"true"`
	// move the reference towards the policy every so many optimizer steps; null = never
	SyncSteps *int `koanf:"sync_steps" range:"[1,inf)" also:"ref_model_sync_steps"`
	// weight of the policy in the new reference, sync_mix·policy + (1 - sync_mix)·reference (TR-DPO, arXiv:2404.09656)
	SyncMix float64 `koanf:"sync_mix" range:"(0,1]" also:"ref_model_mixup_alpha" when:"sync_steps"`
	// steps between measurements of a KL outside the loss (beta=0); 0 = never, nor val_kl
	MeasureEvery int `koanf:"measure_every" range:"[0,inf)"`
	// a beta of 0 is lifted to beta_min by the controller, as in the Python reference
	LiftZero bool `koanf:"lift_zero" constant:"true"`
}

// DefaultKLOptions returns the plan's band, [0.01, 0.1] nats with factor 1.5, moved once an epoch.
func DefaultKLOptions() KLOptions {
	return KLOptions{
		Beta: 0.1, Estimator: "exact", Controller: "band",
		TargetMin: 0.01, TargetMax: 0.1, Factor: 1.5, BetaMin: 0.001, BetaMax: 10,
		Reference: "phase_start", Update: "epoch", MovingAverageDecay: 0.9, Gain: 0.1, SyncMix: 1,
		MeasureEvery: 1,
	}
}

// Validate reports unknown names, an empty band, crossed bounds and a factor that moves nothing.
func (o KLOptions) Validate() error {
	errs := []error{
		option.Tags(o),
		option.Want(o.SyncSteps == nil || o.Reference != "epoch_start", "sync_steps", "want null with reference=epoch_start, which "+
			"refreshes the reference by the epoch"),
		option.Want(o.MeasureEvery == 1 || o.Beta == 0 && o.Controller == "fixed", "measure_every", "%d leaves steps without a KL, and "+
			"beta=%v with controller=%s goes by it: want 1, or beta=0 with controller=fixed", o.MeasureEvery, o.Beta, o.Controller),
	}
	if o.Controller != "fixed" {
		errs = append(errs, o.band().validate("beta_"))
	}
	return errors.Join(errs...)
}

func (o KLOptions) band() band {
	return band{targetMin: o.TargetMin, targetMax: o.TargetMax, factor: o.Factor, min: o.BetaMin, max: o.BetaMax,
		update: o.Update, decay: o.MovingAverageDecay}
}

// NewKLController returns the controller of β, at opt.Beta.
func NewKLController(opt KLOptions) (*Controller, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	return &Controller{state: State{Value: opt.Beta}, band: opt.band(),
		inert: func(beta float64) bool { return opt.Controller == "fixed" || beta == 0 && !opt.LiftZero },
		check: func(beta float64) error {
			if math.IsNaN(beta) || beta < 0 || math.IsInf(beta, 0) {
				return fmt.Errorf("restore KL controller: beta = %v: want a number of at least 0", beta)
			}
			return nil
		},
		move: func(beta, kl float64) float64 {
			if opt.Controller == "proportional" {
				target := math.Sqrt(max(opt.TargetMin, 1e-6) * opt.TargetMax)
				return ProportionalBeta(beta, kl, target, opt.Gain, opt.BetaMin, opt.BetaMax)
			}
			return BandBeta(beta, kl, opt.TargetMin, opt.TargetMax, opt.Factor, opt.BetaMin, opt.BetaMax)
		}}, nil
}

// BandBeta returns β·factor for a KL above targetMax, β/factor for one below targetMin, else β, kept in
// [betaMin, betaMax]. On an end of the band, or with a NaN KL, β stays. Source: parity specification §6.
func BandBeta(beta, kl, targetMin, targetMax, factor, betaMin, betaMax float64) float64 {
	switch {
	case kl > targetMax:
		beta *= factor
	case kl < targetMin:
		beta /= factor
	}
	return math.Max(betaMin, math.Min(betaMax, beta))
}

// ProportionalBeta returns β·(1 + gain·e) with e = KL/target - 1 cut to ±0.2, kept in [betaMin, betaMax].
// Source: Ziegler et al. 2019 (arXiv:1909.08593) §2.2, whose gain is 0.1.
func ProportionalBeta(beta, kl, target, gain, betaMin, betaMax float64) float64 {
	if !math.IsNaN(kl) {
		beta *= 1 + gain*math.Max(-0.2, math.Min(0.2, kl/target-1))
	}
	return math.Max(betaMin, math.Min(betaMax, beta))
}
