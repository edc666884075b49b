package doctor

import (
	"fmt"
	"hash/fnv"
	"strings"
)

// Do the rewards tell candidates apart, and does the loss see it?

func (d *Doctor) noSignal(c Check, r row) {
	share, ok := d.mean("signal_share", c)
	if !ok || share >= c.Limit {
		return
	}
	if c.Severity == Stop && d.lim.TotalSteps < c.Steps { // few groups to judge by, and the phase is over before a stop saves anything
		c.Severity = Warning
	}
	d.say(c, d.rewardKey(), share, c.Limit,
		"%s of the groups of the last steps have a learning signal (rewards that differ), want at least %s: nothing pulls the policy but "+
			"noise%s; %s",
		percent(share), percent(c.Limit), ifThen(d.lim.Policy != nil, " and the KL", ""),
		ifThen(d.lim.Online, "warm it up with sft or rce, sample larger groups ("+d.key("group_size")+
			"), or choose rewards with partial credit ("+d.rewardKey()+")",
			"choose rewards that tell the candidates of a query apart ("+d.rewardKey()+"), or look for a constant column in the data"))
}

// rewardKey is where rewards are chosen.
func (d *Doctor) rewardKey() string {
	if d.lim.Text {
		return "rewards"
	}
	return "data.reward.mode"
}

func (d *Doctor) allGoodGroups(c Check, _ row) {
	if share, ok := d.mean("constant_good_groups", c); ok && share > c.Limit {
		d.say(c, "", share, c.Limit,
			"in %s of the groups every candidate earns the same good reward: the queries are too easy for the policy by now; harder queries, "+
				"or an end of the phase here, would waste fewer steps", percent(share))
	}
}

func (d *Doctor) allBadGroups(c Check, _ row) {
	if share, ok := d.mean("constant_bad_groups", c); ok && share > c.Limit {
		d.say(c, d.key("group_size"), share, c.Limit,
			"in %s of the groups every candidate earns the same bad reward: the queries are too hard for the policy; warm it up with sft or "+
				"rce, sample larger groups (%s), or choose rewards with partial credit (%s)",
			percent(share), d.key("group_size"), d.rewardKey())
	}
}

// essUniform scales the share of the effective sample size to the smallest temperature of the schedule:
// to second order it is 1/(1 + (spread/τ)²).
func (d *Doctor) essUniform(c Check, r row) {
	share, ok := d.mean("ess_share", c)
	tau, known := r.number("temperature")
	spread, _ := d.mean("score_spread", c)
	if !ok || !known || d.lim.Tau == nil || share <= 0 || tau <= 0 {
		return
	}
	smallest, _ := d.lim.Tau.ends()
	best := 1 / (1 + (1/share-1)*(tau/smallest)*(tau/smallest))
	if best > c.Limit {
		d.say(c, d.key("temperature.start"), best, c.Limit,
			"the RCE weights are nearly uniform: an effective %s of a group's candidates at τ = %.3g, and %s at the schedule's smallest τ = "+
				"%.3g, against a spread of %.3g between a group's scores; good and bad candidates are imitated alike: lower %s and %s, set "+
				"%s=true, or scale the rewards",
			percent(share), tau, percent(best), smallest, spread, d.key("temperature.start"), d.key("temperature.end"),
			d.key("temperature.relative"))
	}
}

// essCollapsed speaks of the steps at the largest temperature of the schedule only: annealing towards the
// best candidate is what a schedule is for.
func (d *Doctor) essCollapsed(c Check, r row) {
	ess, ok := d.mean("effective_sample_size", c)
	share, known := d.mean("ess_share", c)
	tau, there := r.number("temperature")
	if !ok || !known || !there || d.lim.Tau == nil || share <= 0 || share > 0.5 { // groups of one or two candidates have no more
		return
	}
	if _, largest := d.lim.Tau.ends(); tau < 0.8*largest || ess >= c.Limit {
		return
	}
	spread, _ := d.mean("score_spread", c)
	d.say(c, d.key("temperature.start"), ess, c.Limit,
		"the RCE weights imitate one candidate a query: an effective %.3g of them at τ = %.3g, the largest of the schedule, against a "+
			"spread of %.3g between a group's scores; the other candidates teach nothing: raise %s, or use sft, which does the same for less",
		ess, tau, spread, d.key("temperature.start"))
}

// Batch tells which queries the step to come is made of: of an epoch's queries, each comes once.
func (d *Doctor) Batch(epoch, pass int, queries []int) {
	if pass > 0 {
		return // the same batch again, as asked for
	}
	sum := fnv.New64a()
	for _, q := range queries {
		fmt.Fprintf(sum, "%d ", q)
	}
	d.count(epoch, queries, sum.Sum64())
	same := d.state.Batch == sum.Sum64() && d.state.BatchEpoch == epoch
	d.state.Batch, d.state.BatchEpoch = sum.Sum64(), epoch
	d.streak("batch_repeats", same, 1)
}

func (d *Doctor) batchRepeats(c Check, _ row) {
	times := d.state.Streak["batch_repeats"]
	if times >= c.Steps {
		d.say(c, "data.shuffle", float64(times+1), 1,
			"%d batches of the epoch in a row are of the very same queries: the rest of the data is never seen; the order of the data is "+
				"broken (data.shuffle)", times+1)
	}
}

func (d *Doctor) entropyCollapse(c Check, r row) {
	now, ok := d.mean("entropy", c)
	first := d.state.First["entropy"]
	if !ok || first.N < min(firstSteps, c.Steps) || first.mean() <= 0 || now >= c.Limit*first.mean() {
		return
	}
	signal, _ := d.mean("signal_share", c)
	spent := signal < 0.5*d.state.First["signal_share"].mean() // few groups are left that could tell it so
	if reward, known := d.mean("mean_reward", c); known && d.lim.Online && !spent && reward > 1.1*d.state.First["mean_reward"].mean() {
		return // it concentrates on what pays
	}
	d.say(c, d.orRate(d.key("entropy_weight")), now/first.mean(), c.Limit,
		"the policy's entropy fell to %.3g nats a step from %.3g at the phase's start: it answers nearly the same every time and explores "+
			"nothing; lower %s, raise %s, or set %s", now, first.mean(), d.key("lr"), d.key("kl.beta"), d.key("entropy_weight"))
}

func (d *Doctor) allTruncated(c Check, _ row) {
	if share, ok := d.mean("truncated_share", c); ok && share > c.Limit {
		d.say(c, d.lim.LengthKey, share, c.Limit,
			"%s of the completions are cut at the length limit: rewards judge unfinished answers; raise %s, or teach the policy to end with sft",
			percent(share), d.lim.LengthKey)
	}
}

func (d *Doctor) samplingCut(c Check, _ row) {
	if d.lim.Policy == nil {
		return
	}
	if kept, ok := d.mean("kept_mass", c); ok && kept < c.Limit {
		section := strings.TrimSuffix(d.lim.LengthKey, "max_new_tokens")
		d.say(c, section+"top_p", kept, c.Limit,
			"completions are drawn from %s of the policy's distribution, and their ratios are those of the whole: each token's weight is off "+
				"by a factor of about %.3g, and what is cut off is never tried; set %stop_p=1, top_k=0 and repetition_penalty=1 there, or sharpen "+
				"with %s, which the ratio knows", percent(kept), 1/kept, section, d.key("sample_temperature"))
	}
}

func (d *Doctor) correctionBites(c Check, _ row) {
	if share, ok := d.mean("correction_share", c); ok && share > c.Limit {
		d.say(c, d.key("correction.level"), share, c.Limit,
			"%s of the weights that correct for the sampler are cut or masked: what is sampled is not what is trained (sampler_gap); compute in "+
				"float32, or set %s=token", percent(share), d.key("correction.level"))
	}
}

// topKNotBest holds the candidates that a curriculum keeps against their groups: the advantages of a whole group have mean 0, so those
// of its best candidates have a mean of 0 or more. A clip may take from the best alone, and steps where it acts are passed over.
func (d *Doctor) topKNotBest(c Check, r row) {
	x, ok := r.get("mean_advantage", "advantage_clipped", "group_size")
	if d.lim.Policy == nil || !ok || !d.lim.Policy.Centred || x[1] > 0 || d.lim.topK(r.epoch, x[2]) >= x[2] || x[0] >= -c.Limit {
		return
	}
	d.say(c, d.key("curriculum"), x[0], -c.Limit, "the %g candidates of a group that count in epoch %d have a mean advantage of %.3g, and "+
		"the best ones of a group are never below its mean of 0: %s takes the worst, and the run imitates what it should avoid",
		d.lim.topK(r.epoch, x[2]), r.epoch, x[0], d.key("curriculum"))
}
