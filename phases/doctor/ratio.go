package doctor

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"fulcrum/internal/stat"
)

// Is the ratio between policy and old policy what the options say it is?

func (d *Doctor) ratioNotOne(c Check, r row) {
	if d.lim.Policy == nil || noItems(r) {
		return
	}
	if drift, ok := r.number("refresh_drift"); ok && drift > c.Limit*d.lim.rounding() {
		d.say(c, "", drift, c.Limit*d.lim.rounding(),
			"with equal weights the policy and the old policy differ by up to %.3g nats in a log-probability: the forward pass is not "+
				"deterministic (dropout or sampling noise in the ratio), or the old policy was not refreshed; every ratio carries that noise", drift)
	}
	ratio, ok := r.number("mean_ratio")
	if ok && d.lim.oldIsFresh(r.step) && !(math.Abs(ratio-1) <= 1e-6) {
		d.say(c, d.key("old_policy"), ratio, 1,
			"the mean ratio is %.6g at a step that follows a refresh of the old policy (%s=%s), want exactly 1: the old policy is stale, or "+
				"the ratio is computed from other log-probabilities", ratio, d.key("old_policy"), d.lim.Policy.OldPolicy)
	}
}

// noItems reports whether nothing is left in the step's loss: its ratio is then no number.
func noItems(r row) bool {
	n, ok := r.number("items")
	return ok && n == 0
}

// masked reports whether completions that were cut are left out of the step's loss: what its groups tell may be left out with them.
func (d *Doctor) masked(r row) bool {
	cut, _ := r.number("truncated_share")
	return d.lim.Policy != nil && d.lim.Policy.MaskTruncated && cut > 0
}

// ratioStuckAtOne takes the differences at the refresh, when both policies had the same weights, for the rounding
// that tells a step from none.
func (d *Doctor) ratioStuckAtOne(c Check, r row) {
	if d.lim.Policy == nil || noItems(r) {
		return
	}
	if d.lim.oldIsFresh(r.step) { // with old_policy=batch and one pass, all steps are like this
		d.state.Rounding["ratio"] = 1e-7
		if drift, ok := r.number("refresh_drift"); ok {
			d.state.Rounding["ratio"] = math.Min(math.Max(drift, 1e-7), 1e-5) // more is no rounding
		}
		return
	}
	x, ok := r.get("mean_ratio", "advantage_gain")
	floor, moves := 2*d.state.Rounding["ratio"], d.state.Moves["old"]
	if d.streak("ratio_stuck_at_one", ok && math.Abs(x[0]-1) <= floor && math.Abs(x[1]) <= floor && moves > 0, c.Steps) {
		d.say(c, d.key("old_policy"), x[0], 1,
			"the mean ratio is still 1 but for rounding (%.9g) after %d steps with a gradient since the old policy was refreshed: the old "+
				"policy (%s=%s) follows the policy, or the weights do not move; the clip bounds nothing", x[0], moves, d.key("old_policy"),
			d.lim.Policy.OldPolicy)
	}
}

func (d *Doctor) ratioClipped(c Check, _ row) {
	if share, ok := d.mean("clip_fraction", c); ok && share > c.Limit && d.lim.Policy != nil {
		p := d.lim.Policy
		d.say(c, d.orRate(d.key("old_policy")), share, c.Limit,
			"%s of the ratios lie outside the clip range [%.3g, %.3g]: most of the loss has no gradient; refresh the old policy more often "+
				"(%s), lower %s, or widen %s", percent(share), 1-p.ClipLow, 1+p.ClipHigh, d.key("old_policy"), d.key("lr"), d.key("clip.epsilon"))
	}
}

func (d *Doctor) ratioClamped(c Check, _ row) {
	c = d.soon(c)
	if share, ok := d.mean("clamp_fraction", c); ok && share > c.Limit {
		d.say(c, d.runsAway(), share, c.Limit,
			"%s of the log-ratios were cut before they were exponentiated: the policy is far away from the old policy, or the old policy is "+
				"the wrong one; lower %s or refresh it more often (%s)", percent(share), d.key("lr"), d.key("old_policy"))
	}
}

// objectiveFalls asks whether candidates with a good advantage have become likelier than they were under
// the old policy, in the mean over the window's steps and beyond its noise.
func (d *Doctor) objectiveFalls(c Check, r row) {
	gains, ok := d.recent("objective_gain", c)
	if _, now := r.number("advantage_gain"); !ok || !now || !compares(r) || len(gains) < 3 {
		return
	}
	mean, n := stat.Mean(gains), float64(len(gains))
	squares := stat.Squares(gains, mean)
	t := mean / math.Max(math.Sqrt(squares/(n*(n-1))), 1e-12)
	// The spread is that of a few steps: Student's t says how rare t is, and z is as rare in the normal distribution.
	z := distuv.UnitNormal.Quantile(max(distuv.StudentsT{Sigma: 1, Nu: n - 1}.CDF(t), math.SmallestNonzeroFloat64))
	if z < -c.Limit && mean < -1e-5 { // beyond rounding
		d.say(c, d.orRate(d.key("lr")), z, -c.Limit,
			"candidates with a good advantage have become less likely since the old policy: advantage times the change of log-probability is "+
				"%.3g nats in the mean of the last %d steps, %.1f standard errors below 0; the sign of the loss, the advantages or the ratio is "+
				"wrong, or %s is too high", mean, len(gains), -z, d.key("lr"))
	}
}

// bothBounds asks for epochs in which most ratios lie outside the clip range while the KL is above its band: neither bound holds the
// policy then. One of the two alone is common with recorded groups.
func (d *Doctor) bothBounds(c Check, r row) {
	if d.lim.Policy == nil || d.lim.Policy.KL.Controller == "fixed" {
		return
	}
	high := d.lim.Policy.KL.TargetMax
	outside, n, share, kl := 0, 0, 0.0, 0.0
	for _, e := range slices.Concat(d.state.Epochs, []epoch{epochOf(r)}) {
		clip, ok := e["clip_fraction"]
		k, known := e["kl"]
		if !ok || !known {
			continue
		}
		if n++; clip > c.Limit && k > high {
			outside, share, kl = outside+1, share+clip, kl+k
		}
	}
	if n < fewEpochs || float64(outside) < mostEpochs*float64(n) {
		return
	}
	share, kl = share/float64(outside), kl/float64(outside)
	p := d.lim.Policy
	d.say(c, d.orRate(d.key("lr")), share, c.Limit,
		"in %d of %d epochs %s of the ratios lie outside the clip range [%.3g, %.3g] and the KL, %.3g nats, is above its band (up to %.3g): "+
			"most of the loss has no gradient, and neither the clip nor β holds the policy; lower %s, refresh the old policy more often (%s), "+
			"or raise %s", outside, n, percent(share), 1-p.ClipLow, 1+p.ClipHigh, kl, high, d.key("lr"), d.key("old_policy"), d.key("kl.beta"))
}

// fewEpochs are too few for a verdict: β needs some to answer the first ones.
const fewEpochs = 3

// mostEpochs is the share of a phase's epochs that must agree: one that begins at the old policy's weights may be well.
const mostEpochs = 0.75
