package grpo

import (
	"math"

	"fulcrum/phases"
	"fulcrum/phases/objective"
	"fulcrum/rewardutil/advantage"
	"fulcrum/selector"
)

// Metrics are the numbers of a GRPO step (docs/metrics.md).
type Metrics struct {
	phases.OptimizerMetrics
	rolloutMetrics

	PPOLoss          float64  `metric:"ppo_loss"`
	KLLoss           float64  `metric:"kl_loss"`
	KL               float64  `metric:"kl"` // nats per sequence, of the candidates that are not masked
	KLPerToken       *float64 `metric:"kl_per_token"`
	KLBeta           float64  `metric:"kl_beta"` // used in this step
	MeanRatio        float64  `metric:"mean_ratio"`
	ClipFraction     float64  `metric:"clip_fraction"`
	ClipFractionLow  float64  `metric:"clip_fraction_low"`
	ClipFractionHigh float64  `metric:"clip_fraction_high"`
	ClampFraction    float64  `metric:"clamp_fraction"`
	RefreshDrift     *float64 `metric:"refresh_drift"`  // where the old policy has the policy's weights
	AdvantageGain    *float64 `metric:"advantage_gain"` // elsewhere
	Entropy          *float64 `metric:"entropy"`
	Temperature      *float64 `metric:"policy_temperature"`
}

// Row implements phases.Measured.
func (m Metrics) Row() phases.Metrics { return phases.Row(m) }

// rolloutMetrics are what is measured of a rollout when it is made.
type rolloutMetrics struct {
	phases.TextMetrics

	MeanReward         float64   `metric:"mean_reward"`
	RewardStd          float64   `metric:"reward_std"`
	MeanAdvantage      float64   `metric:"mean_advantage"`
	StdAdvantage       float64   `metric:"std_advantage"`
	MaxAdvantage       float64   `metric:"max_advantage"`
	AdvantageClipped   float64   `metric:"advantage_clipped"`
	SignalShare        float64   `metric:"signal_share"`
	SignalShareTopK    float64   `metric:"signal_share_top_k"`
	ConstantGoodGroups int       `metric:"constant_good_groups"`
	ConstantBadGroups  int       `metric:"constant_bad_groups"`
	AdvantageHistogram []float64 `metric:"adv_hist"`
	Groups             int       `metric:"groups"`
	GroupSize          int       `metric:"group_size"`
	TopK               int       `metric:"top_k"`
	Items              int       `metric:"items"`
	ResampledGroups    *int      `metric:"resampled_groups"`
	SamplerGap         *float64  `metric:"sampler_gap"`
	SamplerGapMax      *float64  `metric:"sampler_gap_max"`
}

// epochMetrics are what an epoch's end adds to its row.
type epochMetrics struct {
	KLBetaNext    float64 `metric:"kl_beta_next"`
	KLBetaAtBound bool    `metric:"kl_beta_at_bound"`
}

func (m epochMetrics) Row() phases.Metrics { return phases.Row(m) }

// measureRollout describes what was drawn and what is left of it. before are the advantages of whole groups, after those
// of the candidates that count.
func measureRollout(drawn, left *selector.Batch, adv []float64, before, after advantage.Stats) rolloutMetrics {
	return rolloutMetrics{
		MeanReward:    objective.MeanReward(drawn),
		RewardStd:     advantage.GroupStd(drawn.Rewards, drawn.Valid, drawn.B(), drawn.G),
		MeanAdvantage: after.Mean, StdAdvantage: after.Std, MaxAdvantage: after.MaxAbs,
		AdvantageClipped: objective.Share(after.Clipped, after.Entries),
		SignalShare:      before.SignalShare(), SignalShareTopK: after.SignalShare(),
		ConstantGoodGroups: before.ConstantGood, ConstantBadGroups: before.ConstantBad,
		AdvantageHistogram: advantageHistogram(adv, left.Valid),
		Groups:             before.Groups - before.Empty,
		Items:              left.NumValid(),
	}
}

// advantageBins is the length of adv_hist: bins of width 0.5 over ±5, the default clip.
const advantageBins = 20

// advantageHistogram counts valid advantages in 20 equal bins over [-5, 5].
func advantageHistogram(adv []float64, valid []bool) []float64 {
	h := make([]float64, advantageBins)
	for i, ok := range valid {
		if ok && !math.IsNaN(adv[i]) {
			h[max(0, min(advantageBins-1, int(math.Floor((adv[i]+5)/10*advantageBins))))]++
		}
	}
	return h
}
