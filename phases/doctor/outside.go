package doctor

// bothBounds asks for epochs in which most ratios lie outside the clip range while the KL is above its band: neither bound holds the
// policy then. One of the two alone is common with recorded groups.
func (d *Doctor) bothBounds(c Check, r row) {
	if d.lim.Policy == nil || d.lim.Policy.KL.Controller == "fixed" {
		return
	}
	high := d.lim.Policy.KL.TargetMax
	outside, n, share, kl := 0, 0, 0.0, 0.0
	count := func(clip, k float64, known bool) {
		if !known {
			return
		}
		if n++; clip > c.Limit && k > high {
			outside, share, kl = outside+1, share+clip, kl+k
		}
	}
	for _, e := range append(d.state.Epochs[:len(d.state.Epochs):len(d.state.Epochs)], epochOf(r)) {
		clip, ok := e["clip_fraction"]
		k, known := e["kl"]
		count(clip, k, ok && known)
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
