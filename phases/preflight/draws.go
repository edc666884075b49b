package preflight

import (
	"fmt"
	"math"
	"slices"

	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

// This file looks at the random numbers of a trial: are samples draws of the policy at its temperature, is the noise of
// every step and candidate its own, do cut completions say so.

// draw is one call of Sample by a phase, by whichever clone.
type draw struct {
	b         *selector.Batch // as the policy gave it
	truncated []bool          // as the policy gave it; the batch may have lost it
	seed      uint64
}

// noise is what the passes of one step drew.
type noise struct {
	draws []draw
	masks []uint64 // seeds of dropout
}

// ends is a source that knows which actions end a candidate by themselves.
type ends interface{ Ends(action int64) bool }

// samples checks the candidates that the first step drew, with the weights that drew them.
func (p *probe) samples(first noise) {
	if len(first.draws) == 0 {
		return
	}
	d := first.draws[len(first.draws)-1]
	p.unmarked(d)
	p.set(p.start)
	p.temperature(d)
	p.alike(d)
}

// unmarked looks for completions without an end that count as whole.
func (p *probe) unmarked(d draw) {
	src, ok := d.b.Source.(ends)
	if !ok {
		return
	}
	p.checks++
	cut, unmarked := 0, 0
	for at, valid := range d.b.Valid {
		ids := d.b.Scored(at/d.b.G, at%d.b.G)
		if !valid || len(ids) == 0 || src.Ends(ids[len(ids)-1]) {
			continue
		}
		cut++
		if d.truncated == nil || !d.truncated[at] {
			unmarked++
		}
	}
	if unmarked > 0 {
		p.found(p.Name, "truncation_unmarked", "", float64(unmarked), 0, "%d of %d sampled completions do not end by themselves, and %d of "+
			"these count as complete: rewards and truncated_share take cut answers for whole ones", cut, d.b.NumValid(), unmarked)
	}
}

// unlikely is how many standard errors samples may be off: six are no chance, in whatever number of trials.
const unlikely = 6

// few steps tell nothing about a temperature.
const fewSteps = 32

// temperature checks that samples are as likely as draws at the configured temperature T are: log p of a drawn action is
// -H in the mean, with the variance dH / d ln T (both of the distribution at T).
func (p *probe) temperature(d draw) {
	t := p.SampleTemp
	if t <= 0 {
		return
	}
	gap, variance, steps, ok := p.surprise(d.b, t)
	if !ok || steps < fewSteps || variance <= 0 {
		return
	}
	p.checks++
	z := gap / math.Sqrt(variance)
	p.Saw(p.Name, "sampling_differs", "samples are as likely as draws at the temperature %.3g, within %.2g standard errors over %d steps", t,
		math.Abs(z), steps)
	if !(math.Abs(z) > unlikely) {
		return
	}
	text := fmt.Sprintf("sampled candidates are %+.3g nats a step likelier than draws at the temperature %.3g are (%.1f standard errors "+
		"over %d steps)", gap/float64(steps), t, z, steps)
	best, near := math.Abs(z), t
	for _, factor := range []float64{0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.4, 2, 3, 5, 10} {
		if g, v, _, _ := p.surprise(d.b, t*factor); v > 0 && math.Abs(g)/math.Sqrt(v) < best {
			best, near = math.Abs(g)/math.Sqrt(v), t*factor
		}
	}
	if near != t {
		text += fmt.Sprintf("; they fit a temperature of %.3g better", near)
	}
	p.found(p.Name, "sampling_differs", p.Name+".sample_temperature", z, unlikely,
		"%s: the sampler does not draw from the policy that is trained", text)
}

// surprise returns Σ (log p + H) over the steps of a batch under the distribution at a temperature, and its variance.
func (p *probe) surprise(b *selector.Batch, temperature float64) (gap, variance float64, steps int, ok bool) {
	defer torchx.NoGrad()()
	defer torchx.Scope()()
	const step = 0.02 // of ln T
	at := func(t float64) (logp, entropy []float64) {
		out := p.policy.Forward(b, selector.ForwardOptions{Temperature: t})
		if out.Entropy.Nil() {
			return out.LogP.Floats(), nil
		}
		return out.LogP.Floats(), out.Entropy.Floats()
	}
	logp, entropy := at(temperature)
	_, above := at(temperature * math.Exp(step))
	_, below := at(temperature * math.Exp(-step))
	if entropy == nil {
		return 0, 0, 0, false
	}
	for i, m := range b.Mask {
		if m != 0 {
			gap += logp[i] + entropy[i]
			variance += math.Max((above[i]-below[i])/(2*step), 0)
			steps++
		}
	}
	return gap, variance, steps, true
}

// alike looks for groups whose candidates are all the same, and for queries that got the noise of others.
func (p *probe) alike(d draw) {
	b := d.b
	entropy, steps, ok := p.uncertainty(b)
	if !ok || b.G < 2 || steps == 0 || entropy < 0.5 { // a policy that is nearly sure says the same each time
		return
	}
	p.checks++
	groups, same := 0, 0
	for i := range b.B() {
		n, equal := 0, 0
		for g := range b.Candidates(i) {
			if n++; slices.Equal(b.Scored(i, 0), b.Scored(i, g)) {
				equal++
			}
		}
		if n > 1 {
			groups++
		}
		if n > 1 && n == equal {
			same++
		}
	}
	if groups > 1 && same == groups {
		p.found(p.Name, "noise_repeats", "", float64(same), 0, "all candidates of a query are the same in each of %d sampled groups, with an "+
			"entropy of %.3g nats a step: the candidates share their random numbers, or the temperature of the draw is far too low", groups, entropy)
		return
	}
	if own, other, pairs := agree(b, b, false); pairs >= fewDraws && own-other > shared {
		p.found(p.Name, "noise_repeats", "", own-other, 0, "candidates with the same number in the groups of different queries begin alike in "+
			"%.0f %% of the pairs, others in %.0f %%: all queries share their random numbers", 100*own, 100*other)
	}
}

// shared is the share of equal beginnings, beyond that of independent draws, from which noise is taken for shared.
const shared = 0.3

// fewDraws are too few pairs of candidates to tell.
const fewDraws = 8

// agree returns how often candidates of two batches begin alike: those with the same number in their groups, and those
// with different ones; of the same query, or of different ones. pairs counts the former.
func agree(a, b *selector.Batch, sameQuery bool) (own, other float64, pairs int) {
	equal, of := [2]float64{}, [2]float64{}
	for i := range a.B() {
		for j := range b.B() {
			if (i == j) != sameQuery {
				continue
			}
			for g := range a.G {
				for h := range b.G {
					x, y := a.Scored(i, g), b.Scored(j, h)
					if len(x) == 0 || len(y) == 0 {
						continue
					}
					k := 0
					if g != h {
						k = 1
					}
					of[k]++
					if x[0] == y[0] {
						equal[k]++
					}
				}
			}
		}
	}
	return equal[0] / math.Max(of[0], 1), equal[1] / math.Max(of[1], 1), int(of[0])
}

// uncertainty is the mean entropy of the steps of a batch, in nats.
func (p *probe) uncertainty(b *selector.Batch) (mean float64, steps int, ok bool) {
	defer torchx.NoGrad()()
	defer torchx.Scope()()
	out := p.policy.Forward(b, selector.ForwardOptions{})
	if out.Entropy.Nil() {
		return 0, 0, false
	}
	for i, h := range out.Entropy.Floats() {
		if b.Mask[i] != 0 {
			mean += h
			steps++
		}
	}
	return mean / float64(max(steps, 1)), steps, true
}

// repeats compares the random numbers of two steps with different numbers on the same queries.
func (p *probe) repeats(first, second noise) {
	if len(first.draws) > 0 && len(second.draws) > 0 {
		a, b := first.draws[len(first.draws)-1], second.draws[len(second.draws)-1]
		p.checks++
		own, other, pairs := agree(a.b, b.b, true)
		switch {
		case a.seed == b.seed:
			p.find("noise_repeats", "two steps sample with the same seed (%d): the policy sees the same draws in every epoch", a.seed)
		case pairs >= fewDraws && own-other > shared:
			p.find("noise_repeats", "two steps with different seeds began %.0f %% of their candidates alike, and candidates with different "+
				"numbers %.0f %%: the sampler does not use its seed", 100*own, 100*other)
		}
	}
	if len(first.masks) > 0 && len(second.masks) > 0 {
		p.checks++
		if first.masks[0] == second.masks[0] {
			p.find("noise_repeats", "two steps train with the same seed of dropout (%d): the same units are dropped in every step", first.masks[0])
		}
	}
}

const (
	// copied is how many standard deviations more pairs of samples may be equal than draws of the policy are: no chance.
	copied = 6
	// rare is the largest probability of the samples that are compared: likely ones are equal by themselves, and hide copies.
	rare = 0.05
)

// copies looks for samples of a query that are copies of others. Two draws are equal and rare with the probability Σ π² over rare
// candidates, which is the mean of π over the samples, likely ones counted as 0.
func (p *probe) copies(b *selector.Batch) {
	t := p.SampleTemp
	if !p.Online || t <= 0 || b == nil {
		return
	}
	logp := p.sequences(b, t)
	equal, expected, pairs := 0.0, 0.0, 0.0
	for i := range b.B() {
		n, sum := 0.0, 0.0
		for g, at := range b.Candidates(i) {
			n++
			chance := math.Exp(logp[at])
			if chance > rare {
				continue
			}
			sum += chance
			for h := range g {
				if b.Valid[i*b.G+h] && slices.Equal(b.Scored(i, g), b.Scored(i, h)) {
					equal++
				}
			}
		}
		pairs, expected = pairs+n*(n-1)/2, expected+sum*(n-1)/2
	}
	if pairs < fewDraws {
		return
	}
	p.checks++
	bound := expected + copied*math.Sqrt(math.Max(expected*(1+float64(b.G)*rare), 1)) // equal pairs of a group come together
	p.Saw(p.Name, "samples_repeat", "%g of %g pairs are of equal rare samples, %.3g are of as many draws", equal, pairs, expected)
	if equal > bound {
		p.found(p.Name, "samples_repeat", p.Name+".group_size", equal, bound, "%g of the %g pairs of samples of a query are equal though "+
			"rare, and of as many draws of the policy %.3g would be: samples are copies of each other, and groups have fewer candidates than "+
			"%s.group_size says", equal, pairs, expected, p.Name)
	}
}
