package leverplus

import (
	"math"

	"fulcrum/experiments/job"
	"fulcrum/internal/list"
	"fulcrum/phases"
	"fulcrum/rewardutil/group"
)

// Bring adds to the entries what compat: lever_plus does.
func Bring(e *job.Entries) {
	e.Reference = job.Reference{Reproduce: Reproduce, Freeze: Freeze, Gradients: Gradients, Normalize: CompatNormalize, ValLoss: CompatValLoss}
}

// Reproduce sets what the reference does and no key of ours says, once the format of the beams is known: RL files train
// with batches of 1, legacy files are normalised by z-score whatever is asked for. exp=lever_plus_compat sets the keys.
func Reproduce(c *job.Config, format string) {
	switch format {
	case "legacy":
		c.Data.Normalize.Method = "z_score"
	case "rl":
		c.Data.BatchSize = 1
	}
	normalize := CompatNormalize(c.Data.Normalize)
	c.RCE.Weights = Weights(c.RCE.Top1Only, c.RCE.Rewards == "normalized", c.RCE.Temperature.Relative, normalize)
	c.GRPO.Hooks = Hooks(normalize)
	c.GRPO.MaxLogRatio, c.GRPO.KL.LiftZero = math.Inf(1), true
	c.Checkpoint.Best.Highest = true // the reference knows no noise
}

// Gradients returns the hook of a run that reproduces the reference; nil where it freezes nothing.
func Gradients(c *job.Config) phases.GradientHook {
	if len(c.GRPO.Freeze) == 0 {
		return nil
	}
	return &StaleGradients{}
}

// CompatValLoss is the reference's: raw rewards at τ 1, averaged over batches (defect D16).
func CompatValLoss(c *job.Config) phases.ValLoss {
	return phases.ValLoss{Temperature: 1, Raw: true, Smoothing: c.Smoothing(), Mean: MeanOfBatches(c.Data.BatchSize)}
}

// CompatNormalize is data.normalize in the reference's precision: float32 in and out, so that rewards
// which differ by less are ties.
func CompatNormalize(opt group.NormalizeOptions) func([]float64) []float64 {
	return func(rewards []float64) []float64 {
		return float32s(group.Normalize(float32s(rewards), opt))
	}
}

// float32s rounds to float32.
func float32s(x []float64) []float64 {
	return list.Map(x, func(v float64) float64 { return float64(float32(v)) })
}
