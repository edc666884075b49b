package preflight

import (
	"context"
	"math"
	"slices"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/rewardutil/group"
	"fulcrum/selector"
)

// How far a log-probability may lie from itself, in nats of float32.
const (
	gradNograd = 1e-4 // with a gradient and without: kernels may differ; dropout makes 0.1
	twice      = 1e-5 // in two like passes: threads may add in another order
	inBatch    = 1e-3 // alone and among others: products of another shape are rounded elsewhere
)

// logProbs returns the policy's log-probabilities [B*G*T] of a batch without gradient.
func logProbs(p selector.Policy, b *selector.Batch, opt selector.ForwardOptions) []float64 {
	defer torchx.NoGrad()()
	defer torchx.Scope()()
	return p.Forward(b, opt).LogP.Floats()
}

// forward checks the policy's evaluations of the batch that the phase has just trained on, with the weights
// that it had then: again, without gradient, and query by query.
func (p *probe) forward(m phases.Metrics) {
	b := p.spy.seen
	if b == nil || b.NumValid() == 0 {
		return
	}
	plain := selector.ForwardOptions{Temperature: p.spy.how.Temperature}
	once := logProbs(p.policy, b, plain)
	ratios := compares(m)
	if ratios || !p.spy.how.Train { // imitation may train with dropout
		d, at := differ(once, p.spy.logp)
		p.over("grad_nograd_differ", d, gradNograd,
			"a log-probability is %.7g in the phase's step and %.7g without gradient, with the same weights: dropout is on in a pass that "+
				"ratios are made of, or the two passes compute differently", at[1], at[0])
	}
	if !p.first && ratios == p.Online {
		return // the policy alone was looked at with the first phase
	}
	d, at := differ(once, logProbs(p.policy, b, plain))
	p.over("forward_not_deterministic", d, twice,
		"the same log-probability is %.7g once and %.7g again, with the same weights: the policy's evaluation is random (dropout without "+
			"training?)", at[0], at[1])
	worst, at := 0.0, [2]float64{}
	for _, i := range []int{0, b.B() - 1} {
		alone := logProbs(p.policy, b.Part(i, i+1), plain)
		if d, found := differ(alone, once[i*b.G*b.T:(i+1)*b.G*b.T]); !(d <= worst) {
			worst, at = d, found
		}
	}
	p.over("batch_changes_output", worst, inBatch,
		"a log-probability is %.6g alone and %.6g in a batch of %d: the query reads what belongs to others (its images, its pool, or padding)",
		at[0], at[1], b.B())
}

// differ is the largest difference of two lists and the pair that has it; NaN where one of them is no number. Where numbers beyond 10 are
// among them, differences count in tenths of the largest: float32 rounds the scores that such log-probabilities come from in proportion.
func differ(a, b []float64) (d float64, at [2]float64) {
	unit := 1.0
	for _, x := range a {
		if !math.IsInf(x, 0) {
			unit = max(unit, math.Abs(x)/10)
		}
	}
	for i := range a {
		x := math.Abs(a[i]-b[i]) / unit
		if a[i] == b[i] {
			x = 0
		}
		if math.IsNaN(x) {
			return x, [2]float64{a[i], b[i]}
		}
		if x > d {
			d, at = x, [2]float64{a[i], b[i]}
		}
	}
	return d, at
}

// direction checks that the phase's first step, made from weights where ratios are 1 and the KL is 0, goes
// uphill: Σ A·Δlog π > 0 over the batch where candidates are compared (A = reward less its group's mean),
// Σ w·Δlog π > 0 where they are imitated (w = softmax of reward / τ).
func (p *probe) direction(ctx context.Context, m phases.Metrics, b *selector.Batch, after []float32) error {
	p.checks += 2
	if farthest(after, p.start) <= nowhere || number(m, "grad_norm") == 0 {
		return nil // moved says so
	}
	change, scale := p.along(b, after)
	if !slices.ContainsFunc(change, func(d float64) bool { return d != 0 }) {
		p.find("weights_ignored", "the weights moved and no log-probability of the batch changed: the policy does not read what is trained")
		return nil
	}
	words := "better candidates of its own batch"
	if !compares(m) {
		words = "candidates that it imitates"
	}
	gain := p.gain(m, b, change, after)
	p.Saw(p.Name, "weights_ignored", "log-probabilities of %d candidates change with the weights", b.NumValid())
	p.Saw(p.Name, "objective_not_improved", "a step makes the %s likelier: %+.2g", words, gain)
	if !(gain > 0) {
		p.found(p.Name, "objective_not_improved", "", gain, 0,
			"a step makes the %s less likely: the sign of an advantage, the ratio or the loss is turned round", words)
		return nil
	}
	if compares(m) {
		return nil
	}
	return p.prefers(ctx, b, change, scale, after)
}

// compares reports whether the phase compares candidates (it has ratios), and does not imitate them.
func compares(m phases.Metrics) bool {
	_, ok := m["mean_ratio"]
	return ok
}

// along returns how log π of the candidates changes from the start towards some weights. The step is scaled to where
// the change is large against rounding and small against 1, so that neither learning rate decides.
func (p *probe) along(b *selector.Batch, towards []float32) (change []float64, scale float64) {
	scale = 1
	for range 4 {
		change = p.change(b, towards, scale)
		largest := 0.0
		for _, d := range change {
			largest = math.Max(largest, math.Abs(d)) // an infinite one says more than a NaN beside it
		}
		if largest >= 3e-3 && largest <= 0.1 || largest == 0 && scale > 1 || math.IsNaN(largest) {
			break
		}
		scale *= math.Max(1e-4, math.Min(0.03/math.Max(largest, 1e-6), 1e4))
	}
	return change, scale
}

// change is how log π of the candidates changes along a scaled step from the start towards some weights.
func (p *probe) change(b *selector.Batch, towards []float32, scale float64) []float64 {
	w := list.Make(len(towards), func(i int) float32 { return p.start[i] + float32(scale)*(towards[i]-p.start[i]) })
	p.set(p.start)
	before := p.sequences(b, p.spy.how.Temperature)
	p.set(w)
	return stat.Less(p.sequences(b, p.spy.how.Temperature), before)
}

// prefers checks that imitation pulls more at better candidates. All its weights are positive, so every candidate
// may become likelier; but against a step on the same batch with rewards of the other sign, Σ (r - mean)·Δlog π
// must be larger: what the two steps have in common cancels.
func (p *probe) prefers(ctx context.Context, b *selector.Batch, change []float64, scale float64, after []float32) error {
	p.checks++
	p.part.flip = true
	defer func() { p.part.flip = false }()
	if _, err := p.anew(ctx); err != nil {
		return err
	}
	opposite := p.policy.Params().Values()
	better, size := 0.0, 0.0
	if p.Rough {
		w := slices.Concat(list.Map(stat.Indices(b.B()), func(i int) []float64 { return centred(b, i) })...)
		better, size = p.slope(b, w, opposite, after)
	} else {
		turned := p.change(b, opposite, scale)
		for i := range b.B() {
			for g, w := range centred(b, i) {
				d := w * (change[i*b.G+g] - turned[i*b.G+g])
				better += d
				size += math.Abs(d)
			}
		}
	}
	if better < -0.1*size {
		p.found(p.Name, "objective_not_improved", "", better, 0, "a step prefers the worse candidates of its batch: with rewards of the other "+
			"sign it would make the better ones likelier; the sign of the rewards or of the temperature is turned round")
	}
	return nil
}

// faint is the least gradient norm of a step, as a share of that of its objective computed here.
const faint = 1e-4

// pull checks that the gradient of the phase's step is not a mere rounding error next to that of Σ A·log π (or
// Σ w·log π) over its candidates, which is of the same order whatever the phase divides by.
func (p *probe) pull(m phases.Metrics, b *selector.Batch) {
	p.checks++
	w := p.worth(m, b)
	want, got := length(p.gradient(b, w, p.start))/float64(max(b.NumValid(), 1)), number(m, "grad_norm")
	if got > 0 && got < faint*want {
		p.found(p.Name, "gradient_missing", "", got, faint*want, "the gradient norm is %.3g, and that of the same candidates' "+
			"log-probabilities weighted by how good they are %.3g: what is left is rounding, the loss does not reach the policy", got, want)
	}
}

// worth is what a change of the candidates' log-probabilities is worth [B*G]: the reward less its group's mean where candidates are
// compared, the weight of imitation elsewhere.
func (p *probe) worth(m phases.Metrics, b *selector.Batch) []float64 {
	w := make([]float64, 0, len(b.Valid))
	for i := range b.B() {
		if compares(m) {
			w = append(w, centred(b, i)...)
		} else {
			w = append(w, imitated(b, i, number(m, "temperature"))...)
		}
	}
	return w
}

// sequences returns log π of whole candidates [B*G] at a temperature.
func (p *probe) sequences(b *selector.Batch, temperature float64) []float64 {
	logp := logProbs(p.policy, b, selector.ForwardOptions{Temperature: temperature})
	out := make([]float64, len(b.Valid))
	for i, x := range logp {
		if b.Mask[i] != 0 {
			out[i/b.T] += x
		}
	}
	return out
}

// slope is the derivative of Σ w·log π, at the weights of the start, from some weights to others, and the sum of its
// absolute parts. In 16 bits the difference of two log-probabilities is mostly rounding, and its sign chance; that of the
// gradient is not.
func (p *probe) slope(b *selector.Batch, w []float64, from, to []float32) (sum, size float64) {
	for i, g := range p.gradient(b, w, p.start) {
		d := float64(g) * (float64(to[i]) - float64(from[i]))
		sum, size = sum+d, size+math.Abs(d)
	}
	return sum, size
}

// gain is what the step from the start to the weights after it is worth: Σ w·Δlog π.
func (p *probe) gain(m phases.Metrics, b *selector.Batch, change []float64, after []float32) float64 {
	value := func(w []float64) (sum float64) {
		if p.Rough {
			sum, _ = p.slope(b, w, p.start, after)
			return sum
		}
		for i, w := range w {
			sum += w * change[i]
		}
		return sum
	}
	all := p.worth(m, b)
	sum := value(all)
	if !compares(m) || sum > 0 {
		return sum
	}
	// a curriculum imitates the best of a group: those that the phase has looked at, against the whole group
	for at, kept := range p.kept(b) {
		if !kept {
			all[at] = 0
		}
	}
	return value(all)
}

// kept reports which candidates of the whole groups the phase evaluated.
func (p *probe) kept(b *selector.Batch) []bool {
	out := make([]bool, len(b.Valid))
	s := p.spy.seen
	for i, q := range b.Queries {
		for k, other := range s.Queries {
			if q != other {
				continue
			}
			for h, at := range b.Candidates(i) {
				for g := range s.Candidates(k) {
					out[at] = out[at] || slices.Equal(s.Scored(k, g), b.Scored(i, h))
				}
			}
		}
	}
	return out
}

// centred are the rewards of a group less their mean, in units of their spread; 0 for padding.
func centred(b *selector.Batch, i int) []float64 {
	out, mean := make([]float64, b.G), stat.Mean(valid(b, i))
	for g, at := range b.Candidates(i) {
		out[g] = b.Rewards[at] - mean
	}
	if largest := group.MaxAbs(out); largest > 0 {
		for g := range out {
			out[g] /= largest
		}
	}
	return out
}

// imitated are the weights of a group's candidates: softmax of reward / τ, or the best alone where τ is no number.
func imitated(b *selector.Batch, i int, tau float64) []float64 {
	out := make([]float64, b.G)
	best := slices.Max(append(valid(b, i), math.Inf(-1)))
	sum := 0.0
	for g, at := range b.Candidates(i) {
		switch d := b.Rewards[at] - best; {
		case math.IsNaN(tau) && d == 0 && sum == 0:
			out[g] = 1
		case !math.IsNaN(tau):
			out[g] = math.Exp(d / tau)
		}
		sum += out[g]
	}
	for g := range out {
		out[g] /= math.Max(sum, 1e-12)
	}
	return out
}
