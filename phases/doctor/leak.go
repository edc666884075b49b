package doctor

import "math"

// Does the policy earn what no policy could learn honestly?

// Known tells what the validation queries earn under rules that learn nothing: random, similarity, oracle. After Start.
func (d *Doctor) Known(rewards map[string]float64) {
	for _, name := range []string{"random", "similarity", "oracle"} {
		if x, ok := rewards[name]; ok {
			d.state.Initial[name] = finite(x)
		}
	}
}

// closed is the share of the way from the better of random and similarity to the oracle that a reward has come, and where that way
// begins. ok is false without an oracle that is clearly ahead.
func (d *Doctor) closed(reward float64) (share, from float64, ok bool) {
	oracle, known := d.state.Initial["oracle"]
	random, r := d.state.Initial["random"]
	from, s := d.state.Initial["similarity"]
	from = math.Max(from, random)
	ok = known && r && s && oracle-from > 4*d.state.Initial["reward_error"] && oracle > from
	return (reward - from) / (oracle - from), from, ok
}

// untrainedAhead looks for an initial policy that has learnt nothing and earns far more than similarity.
func (d *Doctor) untrainedAhead(c Check, r row) {
	reward, known := d.state.Initial["val_reward"]
	share, from, ok := d.closed(reward)
	if !d.lim.Fresh || r.step > 0 || !known || !ok || share <= c.Limit || reward <= from+4*d.state.Initial["reward_error"] {
		return
	}
	d.say(c, "data", reward, from, "the initial policy earns %.4g on validation and has learnt nothing, %s of the way from %.4g (similarity "+
		"or random) to the oracle: the reward, or the query's answer, is among what it reads (data)", reward, percent(share), from)
}

// gapClosed looks for a policy that is nearly the oracle.
func (d *Doctor) gapClosed(c Check, r row) {
	reward, known := r.number("val_reward")
	share, from, ok := d.closed(reward)
	if !known || !ok || share <= c.Limit {
		return
	}
	d.say(c, "data", share, c.Limit, "val_reward is %.4g after the epoch, %s of the way from %.4g (similarity or random) to the oracle's "+
		"%.4g: a policy that reads questions and candidates alone comes nowhere near that unless the task is easy; look for the reward, or the "+
		"query's answer, among what it reads (data)", reward, percent(share), from, d.state.Initial["oracle"])
}

// placeboGains looks for a gain of a run whose training rewards are another query's.
func (d *Doctor) placeboGains(c Check, r row) {
	reward, known := r.number("val_reward")
	share, from, ok := d.closed(reward)
	noise := 4 * d.state.Initial["reward_error"]
	if !d.lim.Placebo || !known || !ok || share <= c.Limit || reward <= from+noise || reward <= d.state.Initial["val_reward"]+noise {
		return
	}
	d.say(c, "control", reward, from, "val_reward is %.4g with rewards of training that say nothing (control), %s of the way from %.4g "+
		"(similarity or random) to the oracle: the gain comes from what the policy reads, so that the reward, or the query's answer, is "+
		"among it", reward, percent(share), from)
}
