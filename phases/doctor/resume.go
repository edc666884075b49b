package doctor

import (
	"math"
	"slices"
)

// referenceLost compares the KL of the first step after a resume with those of the steps before the stop: a reference policy that was not
// restored is the policy itself (the KL falls to 0) or the initial one (it jumps). A reference that was just taken, or follows the policy,
// moves the KL by itself; an estimate that may be negative says too little.
func (d *Doctor) referenceLost(c Check, r row) {
	kl, ok := r.number("kl")
	all := d.state.Recent["kl"]
	if !d.resumed || !ok || d.lim.Policy == nil || !d.lim.Policy.KL.NonNegative || d.lim.Policy.KL.SyncSteps != nil ||
		d.lim.referenceIsFresh(r.step) || len(all) <= c.Steps {
		return
	}
	before := all[len(all)-1-c.Steps : len(all)-1]
	least, most := slices.Min(before), slices.Max(before)
	bound := c.Limit * math.Max(most, smallKL)
	if kl <= bound {
		if bound = least / c.Limit; kl >= bound || least < smallKL {
			return
		}
	}
	d.say(c, d.key("kl.reference"), kl, bound,
		"the KL is %.3g nats in the first step after the resume and was %.3g to %.3g in the %d steps before the stop: the reference policy "+
			"(%s=%s) was not restored, so that the penalty pulls to another policy than before", kl, least, most, c.Steps, d.key("kl.reference"),
		d.lim.Policy.KL.Reference)
}

// smallKL is a KL in nats that means nothing: a phase that has hardly begun multiplies it from step to step.
const smallKL = 1e-3
