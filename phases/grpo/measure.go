package grpo

import (
	"math"
	"slices"

	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/objective"
	"fulcrum/selector"
)

// tally are what the parts of a step's batch have measured so far. Tensors stay on the device until the step's only
// read-back, then read fills in the numbers.
type tally struct {
	parts []part

	ppo, kl    float64 // the parts' shares of the loss's terms
	klSequence float64 // nats per sequence

	ratios             float64   // sum
	n                  int       // ratios: one a candidate, or one a scored token
	outside, low, high int       // ratios outside the clip range, and those whose gradient that stops
	clamped            int       // log-ratios that were cut
	entropy            float64   // sum over scored steps
	steps              int       // with an entropy
	gain               float64   // sum over candidates of advantage times the change of their log-probability since the old policy
	fresh              bool      // the old policy has the policy's weights
	gaps               []float64 // of sampled tokens: |log-probability in the sampler - in the old policy's forward pass|
	drift              float64   // then: the largest difference of their log-probabilities all the same, nats

	old, ref []float32 // for later passes over the batch; nil where nothing is kept
}

// newTally returns what a pass over the rollout fills in. The first of several passes keeps
// log-probabilities.
func (g *Phase) newTally(pass int) *tally {
	if pass > 0 {
		return &tally{old: g.rollout.old, ref: g.rollout.ref}
	}
	f, n := &tally{}, len(g.rollout.batch.Valid)*g.width(g.rollout.batch)
	if g.opt.NumIterations > 1 {
		f.old = make([]float32, n)
	}
	if g.opt.NumIterations > 1 && g.chosen.kl.Sampled != nil {
		f.ref = make([]float32, n)
	}
	return f
}

// part is one forward and backward pass of a step: its queries from from on.
type part struct {
	from  int
	batch *selector.Batch
	fresh bool // the old policy has the policy's weights
}

// found are the tensors of a part that are worth reading.
type found struct {
	ppo, kl   torchx.Tensor // scalars
	klTerms   torchx.Tensor // like logp, nats
	logRatio  torchx.Tensor // one a ratio
	logp, old torchx.Tensor // [B, G], or [B, G, T] with ratio=token
	ref       torchx.Tensor // like logp, or none
	entropy   torchx.Tensor // [B, G, T], or none
	oldSteps  torchx.Tensor // [B, G, T] log-probabilities of sampled steps under the old policy, or none
}

// measured returns what read wants the numbers of, detached, in its order. ref says that the reference's log-probabilities are kept.
func measured(in *staged, t found, ref bool) []torchx.Tensor {
	perSequence := t.kl
	if len(t.logp.Shape()) == 3 {
		perSequence = in.perCandidate.Times(torchx.Sum(torchx.Mul(t.klTerms, in.mask)))
	}
	if !ref {
		t.ref = torchx.Tensor{}
	}
	all := []torchx.Tensor{t.ppo, t.kl, perSequence, t.logRatio, t.logp, t.old, t.entropy, t.ref, t.oldSteps}
	for i, x := range all {
		if !x.Nil() {
			all[i] = torchx.Keep(torchx.Detach(x))
		}
	}
	return all
}

// read takes the numbers of what the parts have measured.
func (f *tally) read(g *Phase, values [][]float64) {
	each := len(values) / max(len(f.parts), 1)
	for i, p := range f.parts {
		f.readPart(g, p, values[i*each:])
	}
}

func (f *tally) readPart(g *Phase, p part, values [][]float64) {
	from, b, first := p.from, p.batch, len(f.old) > 0 && g.rollout.old == nil // of several passes
	f.ppo += values[0][0]
	f.kl += values[1][0]
	f.klSequence += values[2][0]
	f.addRatios(g, from, b, values[3])
	logp, old, width := values[4], values[5], g.width(b)
	f.fresh = p.fresh
	for at := range logp {
		if !b.Valid[at/width] {
			continue
		}
		change := logp[at] - old[at]
		f.gain += g.rollout.adv[from*b.G+at/width] * change
		if p.fresh {
			f.drift = math.Max(f.drift, math.Abs(change)) // keeps NaN
		}
	}
	if first {
		copy(f.old[from*b.G*width:], objective.Rounded(old))
	}
	if values[7] != nil {
		copy(f.ref[from*b.G*width:], objective.Rounded(values[7]))
	}
	for at, h := range values[6] {
		if b.Mask[at] != 0 {
			f.entropy += h
			f.steps++
		}
	}
	for at, old := range values[8] {
		if sampled := b.Sampled[at]; b.Mask[at] != 0 && b.Valid[at/b.T] && !math.IsNaN(sampled) {
			f.gaps = append(f.gaps, math.Abs(sampled-old))
		}
	}
}

// samplerGap returns the median and the largest difference between the log-probabilities that tokens were sampled with and the
// old policy's; nil where nothing is known. It sorts them.
func samplerGap(gaps []float64) (median, most *float64) {
	if len(gaps) == 0 {
		return nil, nil
	}
	slices.Sort(gaps)
	return &gaps[len(gaps)/2], &gaps[len(gaps)-1]
}

// addRatios counts a part's ratios: one a candidate, or one a token.
func (f *tally) addRatios(g *Phase, from int, b *selector.Batch, logRatio []float64) {
	low, high := g.opt.Clip.sides()
	width := len(logRatio) / len(b.Valid)
	for at, d := range logRatio {
		if !b.Valid[at/width] || width > 1 && b.Mask[at] == 0 {
			continue
		}
		f.n++
		if math.Abs(d) > g.opt.MaxLogRatio {
			f.clamped++
			d = math.Copysign(g.opt.MaxLogRatio, d)
		}
		ratio, adv := math.Exp(d), g.rollout.adv[from*b.G+at/width]
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

// measure turns the tally of a pass into metrics.
func (g *Phase) measure(optimizer phases.OptimizerMetrics, f *tally) Metrics {
	left := g.rollout.batch.NumValid()
	if len(f.gaps) > 0 { // later passes over the batch report it again
		g.rollout.measured.SamplerGap, g.rollout.measured.SamplerGapMax = samplerGap(f.gaps)
	}
	m := Metrics{OptimizerMetrics: optimizer, rolloutMetrics: g.rollout.measured,
		PPOLoss: f.ppo, KLLoss: g.klWeight() * f.kl, KLBeta: g.beta.Beta(),
		KL:           f.klSequence * (perCandidate(g.rollout.counts) / float64(max(left, 1))),
		MeanRatio:    f.ratios / math.Max(float64(f.n), 1),
		ClipFraction: objective.Share(f.outside, f.n), ClampFraction: objective.Share(f.clamped, f.n),
		ClipFractionLow: objective.Share(f.low, f.n), ClipFractionHigh: objective.Share(f.high, f.n),
	}
	if f.fresh {
		m.RefreshDrift = &f.drift
	} else {
		m.AdvantageGain = new(f.gain / math.Max(float64(left), 1))
	}
	if f.steps > 0 {
		m.Entropy = new(f.entropy / float64(f.steps))
	}
	if g.text {
		m.KLPerToken = new(m.KL * objective.Share(left, g.rollout.counts.Tokens))
	}
	if g.opt.Temperature.Enabled {
		m.Temperature = &g.rollout.temperature
	}
	return m
}
