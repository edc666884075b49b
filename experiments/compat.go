package experiments

import (
	"fulcrum/phases"
	"fulcrum/rewardutil/group"
)

// compatible reports whether the run reproduces the Python reference (compat: lever_plus).
func (c *Config) compatible() bool { return c.Compat != nil }

// reproduce sets what the reference does and no key of ours says, once the format of the beams is known:
// RL files train with batches of 1, legacy files are normalised by z-score whatever is asked for.
// exp=lever_plus_compat sets the keys.
func (c *Config) reproduce(format string) {
	switch format {
	case "legacy":
		c.Data.Normalize.Method = "z_score"
	case "rl":
		c.Data.BatchSize = 1
	}
	c.RCE.Compat = true
	c.RCE.KeepGradient = len(c.GRPO.Freeze) > 0
	c.GRPO.Compat = true
	c.Optim.GoOn = true
}

// compatValLoss is the reference's: raw rewards at τ 1, averaged over batches (defect D16).
func (c *Config) compatValLoss() phases.ValLoss {
	return phases.ValLoss{Temperature: 1, Raw: true, Smoothing: c.Selector.Smoothing, Batch: c.Data.BatchSize}
}

// compatNormalize is data.normalize in the reference's precision: float32 in and out, so that rewards
// which differ by less are ties.
func compatNormalize(opt group.NormalizeOptions) func([]float64) []float64 {
	return func(rewards []float64) []float64 {
		out := group.Normalize(float32s(rewards), opt)
		return float32s(out)
	}
}

// float32s rounds to float32.
func float32s(x []float64) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(float32(v))
	}
	return out
}
