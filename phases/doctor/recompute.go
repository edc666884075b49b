package doctor

import (
	"math"

	"fulcrum/internal/stat"
)

// Is what the rows say of optimizer, advantages, queries and validation what it must be?

// clippedNorm is the norm of the gradient that should reach the optimizer.
func (d *Doctor) clippedNorm(norm float64) float64 {
	if d.lim.ClipNorm > 0 {
		return math.Min(norm, d.lim.ClipNorm)
	}
	return norm
}

// clipIgnored computes the clipping factor again, and holds the first moment against the longest that clipped gradients
// can make it: no sum is longer than its parts.
func (d *Doctor) clipIgnored(c Check, r row) {
	norm, ok := r.number("grad_norm")
	if d.lim.ClipNorm == 0 || !ok {
		return
	}
	if factor, known := r.number("clip_factor"); known {
		want := math.Min(1, d.lim.ClipNorm/(norm+1e-6))
		if math.Abs(factor-want) > 1e-3*want {
			d.say(c, "optim.grad_clip_norm", factor, want, "the gradient of norm %.4g was multiplied by %.4g, and "+
				"optim.grad_clip_norm=%g makes it %.4g: the clipping is not the one that is configured", norm, factor, d.lim.ClipNorm, want)
		}
	}
	moment, known := r.number("moment_norm")
	b := d.lim.Beta1
	most := b*d.state.Moment + (1-b)*d.clippedNorm(norm)
	if known && moment > 1.01*most {
		d.say(c, "optim.grad_clip_norm", moment, most, "the optimizer's first moment has the norm %.4g after step "+
			"%d, and gradients clipped to optim.grad_clip_norm=%g can make it %.4g at most: longer gradients reach the optimizer", moment, r.step+1,
			d.lim.ClipNorm, most)
	}
}

// resetSteps is how many steps in a row the first moment must be that of one gradient alone.
const resetSteps = 3

// momentsReset asks whether the optimizer remembers: its count, and its first moment, which is shorter than it can be,
// or that of the newest gradient alone for some steps in a row, where it does not.
func (d *Doctor) momentsReset(c Check, r row) {
	moment, ok := r.number("moment_norm")
	before := d.state.Moment
	d.state.Moment = finite(moment)
	norm, known := r.number("grad_norm")
	if _, stale := r.number("frozen_grad_norm"); !ok || !known || stale || r.step == 0 || before == 0 {
		return
	}
	if n, counted := r.number("optimizer_steps"); counted && n != float64(r.step+1) {
		d.say(c, "", n, float64(r.step+1), "the optimizer counts %g steps at step %d of the phase: its moments "+
			"began anew, or their bias is corrected for another age", n, r.step+1)
		return
	}
	b := d.lim.Beta1
	own := (1 - b) * d.clippedNorm(norm)
	alone := d.streak("moments_reset", math.Abs(moment-own) <= 1e-4*own, resetSteps)
	if b*before-own > 1.02*moment+1e-9 || alone && b > 0 && own > 0 {
		d.say(c, "", moment, b*before-own, "the optimizer's first moment has the norm %.4g after step %d, had "+
			"%.4g before it, and the newest gradient adds %.4g: the optimizer forgot the steps before", moment, r.step+1, before, own)
	}
}

// littleSignal speaks well before noSignal does.
func (d *Doctor) littleSignal(c Check, _ row) {
	if good, known := d.mean("constant_good_groups", c); known && good > 0.5 {
		return // solved
	}
	if share, ok := d.mean("signal_share", c); ok && share < c.Limit && d.state.Said["no_signal"] == "" {
		d.say(c, d.rewardKey(), share, c.Limit,
			"only %s of the groups of the last steps have a learning signal: in the others all rewards are equal, and their share of the work "+
				"teaches nothing; larger groups (%s), rewards with partial credit (%s), or other queries", percent(share), d.key("group_size"),
			d.rewardKey())
	}
}

// advantageSigns wants both signs where the method centres whole groups.
func (d *Doctor) advantageSigns(c Check, r row) {
	x, ok := r.get("top_k", "group_size", "signal_share")
	bins, known := r.fields["adv_hist"].([]float64)
	if d.lim.Policy == nil || !d.lim.Policy.Centred || !ok || !known || x[0] < x[1] || x[2] == 0 || d.lim.topK(r.epoch, x[1]) < x[1] ||
		d.masked(r) {
		return
	}
	below, above := 0.0, 0.0
	for i, n := range bins {
		if i < len(bins)/2 {
			below += n
		} else if i > len(bins)/2 { // the bin from 0 on holds groups without a signal too
			above += n
		}
	}
	switch {
	case below == 0 && above > 0:
		d.say(c, d.key("advantage"), below, above, "no candidate of the step has a negative advantage and %g "+
			"have a positive one, although those of %s are relative to their groups: bad candidates are dropped, and nothing is made "+
			"less likely", above, d.key("advantage"))
	case above == 0 && below > 2: // one much worse than its group leaves the others just above 0
		mean, _ := r.number("mean_advantage")
		if mean < -0.05 {
			d.say(c, d.key("advantage"), above, below, "no candidate of the step has a positive advantage and %g "+
				"have a negative one, although advantages are relative to their groups: good candidates are dropped, and nothing is made likelier",
				below)
		}
	}
}

// surrogateDiffers computes the surrogate again where all ratios are 1: it is minus the mean advantage of the candidates,
// 0 for those of groups without a signal.
func (d *Doctor) surrogateDiffers(c Check, r row) {
	x, ok := r.get("ppo_loss", "mean_advantage", "signal_share_top_k", "mean_ratio")
	y, known := r.get("items", "groups", "top_k")
	if d.lim.Policy == nil || !d.lim.Policy.Surrogate || !ok || !known || x[3] != 1 || y[0] == 0 || y[0] != y[1]*y[2] ||
		!d.lim.oldIsFresh(r.step) {
		return
	}
	if want := -x[1] * x[2]; math.Abs(x[0]-want) > c.Limit*math.Max(1, math.Abs(want)) {
		d.say(c, "", x[0], want, "ppo_loss is %.5g at a step whose ratios are all 1, and the advantages make "+
			"it %.5g: the loss has other advantages than those that are reported, or leaves some out", x[0], want)
	}
}

// cutCountsAsWhole wonders about completions that all have the greatest length and are none of them cut.
func (d *Doctor) cutCountsAsWhole(c Check, _ row) {
	length, ok := d.mean("completion_length", c)
	cut, known := d.mean("truncated_share", c)
	if d.lim.Longest == 0 || !d.lim.Online || !ok || !known || length < c.Limit*float64(d.lim.Longest) || cut > 0.5 {
		return
	}
	d.say(c, d.lim.LengthKey, length, c.Limit*float64(d.lim.Longest),
		"completions have %.4g tokens in the mean, the limit is %d (%s), and %s of them count as cut: cut completions are taken for whole ones",
		length, d.lim.Longest, d.lim.LengthKey, percent(cut))
}

// count adds a batch's queries to those of its epoch.
func (d *Doctor) count(epoch int, queries []int, batch uint64) {
	s := &d.state
	if s.SeenIn != epoch {
		s.Before, s.SeenIn, s.Order, s.Seen, s.Sum = s.Order, epoch, 0, 0, 0
	}
	s.Order = mixed(s.Order ^ batch)
	for _, q := range queries {
		s.Seen++
		s.Sum += mixed(uint64(q) + 1)
	}
}

// mixed is the finalizer of splitmix64: a hash of 64 bits.
func mixed(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// queriesMissing asks whether an epoch took every query once.
func (d *Doctor) queriesMissing(c Check, r row) {
	n := d.lim.Queries
	if n == 0 || d.state.SeenIn != r.epoch {
		return
	}
	sum := uint64(0)
	for q := range n {
		sum += mixed(uint64(q) + 1)
	}
	if d.state.Seen != n || d.state.Sum != sum {
		d.say(c, "data.shuffle", float64(d.state.Seen), float64(n), "the epoch took %d queries where it should "+
			"take each of %d once: some were left out or came twice; the order of the data is broken (data.shuffle)", d.state.Seen, n)
	}
}

// fewQueries is how many queries have too few orders to wonder about.
const fewQueries = 8

// orderRepeats asks whether a shuffled epoch has the order of the one before.
func (d *Doctor) orderRepeats(c Check, r row) {
	if d.lim.Shuffled && r.epoch > 1 && d.state.SeenIn == r.epoch && d.state.Seen >= fewQueries && d.state.Order == d.state.Before {
		d.say(c, "data.shuffle", float64(r.epoch), 0, "epochs %d and %d took their queries in the very same order "+
			"and batches although data.shuffle is on: the order does not depend on the epoch", r.epoch-1, r.epoch)
	}
}

// Scored tells what the validation queries earned one by one, or what the policy expects of them among recorded candidates, before Epoch.
func (d *Doctor) Scored(rewards []float64) { d.scores = rewards }

// validationMisreported holds val_reward against the queries' own rewards.
func (d *Doctor) validationMisreported(c Check, r row) {
	scores := d.scores
	d.scores = nil
	got, ok := r.number("val_reward")
	if !ok || len(scores) == 0 {
		return
	}
	mean := stat.Mean(scores)
	if math.Abs(got-mean) > 1e-6*math.Max(1, math.Abs(mean)) {
		d.say(c, "", got, mean, "val_reward is %.6g, and the mean of the rewards of its %d queries %.6g: "+
			"validation does not report what was measured", got, len(scores), mean)
	}
}
