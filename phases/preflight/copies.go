package preflight

import (
	"fmt"
	"math"
	"slices"

	"fulcrum/internal/torchx"
	"fulcrum/phases/doctor"
	"fulcrum/selector"
)

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
	defer torchx.NoGrad()()
	defer torchx.Scope()()
	logp := p.policy.Forward(b, selector.ForwardOptions{Temperature: t}).LogP.Floats()
	equal, expected, pairs := 0.0, 0.0, 0.0
	for i := range b.B() {
		n, sum := 0.0, 0.0
		for g := range b.G {
			at := i*b.G + g
			if !b.Valid[at] {
				continue
			}
			n++
			l := 0.0
			for s := range b.T {
				if b.Mask[at*b.T+s] != 0 {
					l += logp[at*b.T+s]
				}
			}
			if math.Exp(l) > rare {
				continue
			}
			sum += math.Exp(l)
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
		p.add(p.Name, doctor.Stop, doctor.Finding{Check: "samples_repeat", Key: p.Name + ".group_size", Value: equal, Limit: bound,
			Message: fmt.Sprintf("%g of the %g pairs of samples of a query are equal though rare, and of as many draws of the policy %.3g would "+
				"be: samples are copies of each other, and groups have fewer candidates than %s.group_size says", equal, pairs, expected, p.Name)})
	}
}
