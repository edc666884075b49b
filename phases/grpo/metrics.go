package grpo

import (
	"math"
	"slices"

	"fulcrum/internal/stat"
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
	KL               *float64 `metric:"kl"` // nats per sequence, of the candidates that are not masked; nil: not measured
	KLPerToken       *float64 `metric:"kl_per_token"`
	KLBeta           float64  `metric:"kl_beta"` // used in this step
	MeanRatio        *float64 `metric:"mean_ratio"`
	ClipFraction     *float64 `metric:"clip_fraction"`
	ClipFractionLow  *float64 `metric:"clip_fraction_low"`
	ClipFractionHigh *float64 `metric:"clip_fraction_high"`
	ClampFraction    *float64 `metric:"clamp_fraction"`
	CorrectionShare  *float64 `metric:"correction_share"`
	RefreshDrift     *float64 `metric:"refresh_drift"`  // where the old policy has the policy's weights
	AdvantageGain    *float64 `metric:"advantage_gain"` // elsewhere
	Entropy          *float64 `metric:"entropy"`
	Temperature      *float64 `metric:"policy_temperature"`
}

func (m Metrics) Row() phases.Metrics { return phases.Row(m) }

// rolloutMetrics are the numbers of a rollout that are known when it is made.
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
	ReaderCalls        int       `metric:"reader_calls"` // 0 of later passes over a batch
	ResampledGroups    *int      `metric:"resampled_groups"`
	SamplerGap         *float64  `metric:"sampler_gap"`
	SamplerGapMax      *float64  `metric:"sampler_gap_max"`
}

// epochMetrics are the numbers that the end of an epoch adds to its row.
type epochMetrics struct {
	KLBetaNext    float64 `metric:"kl_beta_next"`
	KLBetaAtBound bool    `metric:"kl_beta_at_bound"`
}

func (m epochMetrics) Row() phases.Metrics { return phases.Row(m) }

// measureRollout measures the drawn groups and the candidates left of them. before holds the advantages of whole groups,
// after the advantages of the candidates in the loss.
func (g *Phase) measureRollout(drawn, left *selector.Batch, adv []float64, before, after advantage.Stats) rolloutMetrics {
	calls := len(drawn.Anchors)
	if g.chosen.rollout.Samples {
		calls += drawn.NumValid()
	}
	return rolloutMetrics{
		ReaderCalls:   calls,
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

// keepCompletions records the samples of a new batch where completions are kept.
func (g *Phase) keepCompletions(at phases.At, drawn *selector.Batch) error {
	show := g.showNext && g.opt.Completions.Groups > 0
	g.showNext = false
	if !g.text || !show {
		return nil
	}
	return g.opt.Completions.Record(g.env.Rec, g.name, at.Epoch, at.Step, drawn, g.opt.Advantage)
}

// readout holds the numbers that the host reads of a part's pass. T is a tensor (undefined: not computed) before the step's
// only read-back and []float64 after it.
type readout[T any] struct {
	ppo, kl    T // scalars: shares of the loss's terms; kl undefined where it is not measured
	klSequence T // scalar, a share of the nats per sequence; undefined as kl
	logRatio   T // one a ratio
	logp, old  T // [B, G], or [B, G, T] with ratio=token
	ref        T // like logp; of a first pass that keeps them
	entropy    T // [B, G, T]
	oldSteps   T // [B, G, T] log-probabilities of sampled steps under the old policy
	correction T // weights of the surrogate
}

// list returns the fields in the order of the read-back.
func (m readout[T]) list() []T {
	return []T{m.ppo, m.kl, m.klSequence, m.logRatio, m.logp, m.old, m.ref, m.entropy, m.oldSteps, m.correction}
}

// readoutOf is the inverse of list.
func readoutOf[T any](x []T) readout[T] {
	return readout[T]{x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8], x[9]}
}

// tally adds up what the parts of a rollout measure in a pass.
type tally struct {
	ppo, kl    float64 // the parts' shares of the loss's terms
	klSequence float64 // nats per sequence

	ratios             float64   // sum
	n                  int       // ratios: one a candidate, or one a scored token
	outside, low, high int       // ratios outside the clip range; of them, those below and above it without gradient
	clamped            int       // log-ratios that were cut
	weights, cut       int       // of the correction; of them, those that were cut or masked
	entropy            float64   // sum over scored steps
	steps              int       // with an entropy
	gain               float64   // sum over candidates of advantage times the change of their log-probability since the old policy
	gaps               []float64 // of sampled tokens: |log-probability in the sampler - in the old policy's forward pass|
	drift              float64   // largest difference between the log-probabilities of the policy and a fresh old policy, nats
}

func (f *tally) add(o Options, part rollout, m readout[[]float64]) {
	b := part.batch
	f.ppo += m.ppo[0]
	f.kl, f.klSequence = f.kl+stat.Sum(m.kl), f.klSequence+stat.Sum(m.klSequence)
	f.addRatios(o, part, m.logRatio)
	width := len(m.logp) / len(b.Valid)
	for at := range m.logp {
		if !b.Valid[at/width] {
			continue
		}
		change := m.logp[at] - m.old[at]
		f.gain += part.adv[at/width] * change
		if part.fresh {
			f.drift = math.Max(f.drift, math.Abs(change)) // keeps NaN
		}
	}
	if part.old != nil && !part.known { // shared with the whole rollout
		copy(part.old, objective.Rounded(m.old))
	}
	f.addCorrection(o.Correction, part, m.correction)
	if part.correction != nil && !part.known {
		copy(part.correction, objective.Rounded(m.correction))
	}
	if part.keepsRef() {
		copy(part.ref, objective.Rounded(m.ref))
	}
	for at, h := range m.entropy {
		if b.Mask[at] != 0 {
			f.entropy += h
			f.steps++
		}
	}
	for at, old := range m.oldSteps {
		if sampled := b.Sampled[at]; b.Mask[at] != 0 && b.Valid[at/b.T] && !math.IsNaN(sampled) {
			f.gaps = append(f.gaps, math.Abs(sampled-old))
		}
	}
}

// addRatios counts a part's ratios: one a candidate, or one a token.
func (f *tally) addRatios(o Options, part rollout, logRatio []float64) {
	low, high := o.Clip.sides()
	b := part.batch
	width := len(logRatio) / len(b.Valid)
	for at, d := range logRatio {
		if !b.Valid[at/width] || width > 1 && b.Mask[at] == 0 {
			continue
		}
		f.n++
		if math.Abs(d) > o.MaxLogRatio {
			f.clamped++
			d = math.Copysign(o.MaxLogRatio, d)
		}
		ratio, adv := math.Exp(d), part.adv[at/width]
		f.ratios += ratio
		switch {
		case ratio < 1-low:
			f.outside++
			f.low += int(objective.OneIf(adv < 0))
		case ratio > 1+high:
			f.outside++
			f.high += int(objective.OneIf(adv > 0))
		}
	}
}

// measuresKL reports whether a step (from 0) measures the KL: the last of every kl.measure_every, where the policy is farthest from a
// reference that follows it.
func (g *Phase) measuresKL(step int) bool {
	n := g.opt.KL.MeasureEvery
	return n > 0 && (step+1)%n == 0
}

// measure turns the numbers of a step's pass into its metrics, and keeps in the rollout what later passes use or report.
func (g *Phase) measure(of phases.Stepped[*rollout]) Metrics {
	f, r := tally{}, of.Batch
	for i, span := range of.Spans {
		f.add(g.opt, r.part(span), readoutOf(of.Read[i]))
	}
	measured := g.measuresKL(r.step)
	r.known, r.refKnown = r.old != nil, r.refKnown || r.ref != nil && measured
	if n := len(f.gaps); n > 0 {
		slices.Sort(f.gaps)
		r.measured.SamplerGap, r.measured.SamplerGapMax = &f.gaps[n/2], &f.gaps[n-1] // the median, the largest
	}
	left := r.batch.NumValid()
	m := Metrics{OptimizerMetrics: of.OptimizerMetrics, rolloutMetrics: r.measured,
		PPOLoss: f.ppo, KLLoss: g.klWeight() * f.kl, KLBeta: g.beta.Value(),
		MeanRatio: mean(f.ratios, f.n), ClipFraction: mean(f.outside, f.n), ClampFraction: mean(f.clamped, f.n),
		ClipFractionLow: mean(f.low, f.n), ClipFractionHigh: mean(f.high, f.n),
		CorrectionShare: mean(f.cut, f.weights), Entropy: mean(f.entropy, f.steps),
	}
	switch {
	case left == 0: // nothing is in the loss: no ratio and no KL is known
	case r.fresh:
		m.RefreshDrift = &f.drift
	default:
		m.AdvantageGain = mean(f.gain, left)
	}
	if measured = measured && left > 0; measured {
		m.KL = new(f.klSequence * (perCandidate(r.counts) / float64(left)))
	}
	if g.text && measured {
		m.KLPerToken = new(*m.KL * objective.Share(left, r.counts.Tokens))
	}
	if g.opt.Temperature.Enabled {
		m.Temperature = &r.temperature
	}
	return m
}

// mean is a sum over n; nil: of nothing.
func mean[N int | float64](sum N, n int) *float64 {
	if n == 0 {
		return nil
	}
	return new(float64(sum) / float64(n))
}
