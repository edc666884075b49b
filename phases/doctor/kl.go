package doctor

import (
	"math"
	"slices"
)

// Does the KL say how far the policy is from its reference, and does β answer it?

func (d *Doctor) klAboveBand(c Check, _ row) {
	c = d.soon(c)
	if d.lim.Policy == nil || d.lim.Policy.KL.Controller == "fixed" {
		return
	}
	kl, ok := d.mean("kl", c)
	high := d.lim.Policy.KL.TargetMax
	if !ok || kl <= c.Limit*high {
		return
	}
	if d.lim.Policy.KL.Reference == "init" && d.state.First["kl"].mean() > c.Limit*high {
		d.say(c, d.key("kl.target_max"), kl, c.Limit*high,
			"the KL is %.3g nats per sequence in the mean of the last steps, %.3g times the upper end of its band (%.3g), and was so from the "+
				"first steps on: the phases before took the policy away from the initial one, which is the reference; set %s=phase_start, or "+
				"widen the band (%s)", kl, kl/high, high, d.key("kl.reference"), d.key("kl.target_max"))
		return
	}
	d.say(c, d.runsAway(), kl, c.Limit*high,
		"the KL is %.3g nats per sequence in the mean of the last steps, %.3g times the upper end of its band (%.3g): the policy has left "+
			"the reference behind faster than β can pull; lower %s, raise %s, or widen the band (%s)", kl, kl/high, high, d.key("lr"),
		d.key("kl.beta"), d.key("kl.target_max"))
}

func (d *Doctor) klBelowBand(c Check, r row) {
	if d.lim.Policy == nil || d.lim.Policy.KL.Controller == "fixed" || d.lim.referenceIsFresh(r.step) { // the KL of a fresh step is 0
		return
	}
	kl, ok := d.mean("kl", c)
	if low := d.lim.Policy.KL.TargetMin; ok && d.state.Said["kl_stuck_at_zero"] == "" && kl < c.Limit*low {
		d.say(c, d.key("lr"), kl, c.Limit*low,
			"the KL is %.3g nats per sequence in the mean of the last steps, below the lower end of its band (%.3g): the policy hardly moves; "+
				"raise %s, lower %s, or lower the band (%s)", kl, low, d.key("lr"), d.key("kl.beta"), d.key("kl.target_min"))
	}
}

// betaAtBound counts steps whose β sits on a bound while their KL asks it to go further.
func (d *Doctor) betaAtBound(c Check, r row) {
	x, ok := r.get("kl_beta", "kl")
	if d.lim.Policy == nil || d.lim.Policy.KL.Controller == "fixed" || !ok || d.lim.referenceIsFresh(r.step) {
		return
	}
	beta, kl, b := x[0], x[1], d.lim.Policy.KL
	w := max(1, min(c.Steps, d.lim.TotalSteps-1)) // fresh steps do not count
	if d.streak("beta_at_max", beta >= b.BetaMax*(1-1e-9) && kl > b.TargetMax, w) {
		d.say(c, d.orRate(d.key("kl.beta_max")), beta, b.BetaMax,
			"the KL coefficient sits on its upper bound %.4g while the KL, %.3g nats, is above its band: it cannot pull any harder; raise %s, "+
				"widen the band (%s), or lower %s", beta, kl, d.key("kl.beta_max"), d.key("kl.target_max"), d.key("lr"))
	}
	if d.streak("beta_at_min", beta <= b.BetaMin*(1+1e-9) && kl < b.TargetMin, w) {
		d.say(c, d.key("kl.beta_min"), beta, b.BetaMin,
			"the KL coefficient sits on its lower bound %.4g while the KL, %.3g nats, is below its band: the penalty is not what holds the "+
				"policy; lower %s or the band (%s), or raise %s", beta, kl, d.key("kl.beta_min"), d.key("kl.target_min"), d.key("lr"))
	}
}

// betaWrongWay holds the move of β against the KL of the step that decided it.
func (d *Doctor) betaWrongWay(c Check, r row) {
	x, ok := r.get("kl", "kl_beta")
	if d.lim.Policy == nil || d.lim.Policy.KL.Controller == "fixed" || d.lim.Policy.KL.Update != "step" || !ok {
		return
	}
	if before := d.state.Recent["beta_step"]; len(before) == 2 {
		d.betaMove(c, before[0], before[1], x[1])
	}
	d.state.Recent["beta_step"] = []float64{x[0], x[1]}
}

// betaWrongWayEpoch holds the move of β against the epoch's mean KL.
func (d *Doctor) betaWrongWayEpoch(c Check, r row) {
	x, ok := r.get("kl", "kl_beta", "kl_beta_next")
	if ok && d.lim.Policy != nil && d.lim.Policy.KL.Controller != "fixed" && d.lim.Policy.KL.Update == "epoch" {
		d.betaMove(c, x[0], x[1], x[2])
	}
}

func (d *Doctor) betaMove(c Check, kl, before, after float64) {
	b := d.lim.Policy.KL
	wrong := kl > 1.01*b.TargetMax && (after < before*(1-1e-9) || after == before && before < b.BetaMax*(1-1e-9)) ||
		kl < 0.99*b.TargetMin && (after > before*(1+1e-9) || after == before && before > b.BetaMin*(1+1e-9))
	if wrong {
		d.say(c, d.key("kl.controller"), after, before,
			"the KL coefficient went from %.4g to %.4g after a KL of %.3g nats outside its band [%.3g, %.3g]: it should have moved the other "+
				"way; the controller (%s=%s) is wrong or is not told the KL", before, after, kl, b.TargetMin, b.TargetMax, d.key("kl.controller"),
			b.Controller)
	}
}

// klStuckAtZero takes the KL at the refresh, when both policies had the same weights, for the rounding that tells a
// step from none.
func (d *Doctor) klStuckAtZero(c Check, r row) {
	kl, ok := r.number("kl")
	if d.lim.Policy == nil || !ok || noItems(r) {
		return
	}
	if d.lim.referenceIsFresh(r.step) {
		d.state.Rounding["kl"] = math.Min(math.Max(math.Abs(kl), 1e-9), 1e-6) // more is no rounding
		return
	}
	floor, known := d.state.Rounding["kl"]
	moves := d.state.Moves["reference"]
	if d.streak("kl_stuck_at_zero", known && math.Abs(kl) <= 10*floor && moves > 0, c.Steps) {
		d.say(c, d.key("kl.reference"), kl, 10*floor,
			"the KL is still 0 but for rounding (%.3g nats) after %d steps with a gradient: the reference policy (%s=%s) follows the policy, "+
				"or the weights do not move; nothing holds the policy near its reference", kl, moves, d.key("kl.reference"), d.lim.Policy.KL.Reference)
	}
}

func (d *Doctor) klNotZero(c Check, r row) {
	kl, ok := r.number("kl")
	if d.lim.Policy == nil || !d.lim.referenceIsFresh(r.step) {
		return
	}
	if d.lim.Policy.KL.NonNegative && kl < 0 {
		return // kl_negative says that
	}
	if ok && math.Abs(kl) > c.Limit*d.lim.rounding() {
		d.say(c, d.key("kl.reference"), kl, c.Limit*d.lim.rounding(),
			"the KL is %.3g nats at a step whose policy has the weights of its reference (%s=%s), want 0: the forward pass is not "+
				"deterministic (dropout in the KL), or the reference is another policy", kl, d.key("kl.reference"), d.lim.Policy.KL.Reference)
	}
}

func (d *Doctor) klNegative(c Check, r row) {
	if d.lim.Policy == nil || !d.lim.Policy.KL.NonNegative {
		return
	}
	if kl, ok := r.number("kl"); ok && kl < -c.Limit*d.lim.rounding() {
		d.say(c, d.key("kl.estimator"), kl, -c.Limit*d.lim.rounding(), "the KL is %.3g nats, and %s=exact, k2 and "+
			"k3 cannot be below 0: the log-probabilities of the policy or its reference are not those of one distribution", kl,
			d.key("kl.estimator"))
	}
}

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
