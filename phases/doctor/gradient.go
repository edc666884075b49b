package doctor

import (
	"math"

	"fulcrum/internal/stat"
)

// Does the step do what the loss asks for?

// gradientHistory is how many gradient norms the median of a spike is taken over.
const gradientHistory = 20

func (d *Doctor) gradientSpike(c Check, r row) {
	norm, ok := r.number("grad_norm")
	all := d.state.Recent["grad_norm"]
	if !ok || len(all) < 2 {
		return
	}
	before := all[:len(all)-1]
	if len(before) < min(c.Steps, gradientHistory)/2 {
		return
	}
	before = before[max(0, len(before)-c.Steps):]
	if typical := stat.Middle(before); typical > smallGradient && norm > c.Limit*typical {
		d.say(c, d.orRate("optim.grad_clip_norm"), norm/typical, c.Limit,
			"the gradient norm jumped to %.3g, %.3g times the median of the steps before (%.3g): one batch outweighs the others; look at its "+
				"rewards, lower %s, or clip harder (optim.grad_clip_norm)", norm, norm/typical, typical, d.key("lr"))
	}
}

func (d *Doctor) zeroGradient(c Check, r row) {
	norm, ok := r.number("grad_norm")
	signal := true
	if share, known := r.number("signal_share"); known {
		signal = share > 0
	}
	if d.streak("zero_gradient", ok && norm <= c.Limit && signal && !noItems(r) && !d.masked(r), c.Steps) {
		d.say(c, "", norm, c.Limit,
			"the gradient norm is %.3g in %d steps in a row although the batch has a learning signal: the loss does not reach the parameters "+
				"(detached log-probabilities, everything frozen)", norm, c.Steps)
	}
}

func (d *Doctor) zeroLR(c Check, r row) {
	if lr, ok := r.number("lr"); ok && lr == 0 {
		d.say(c, d.key("lr"), 0, 0, "the learning rate is 0: the step changed nothing; look at %s and lr_schedule",
			d.key("lr"))
	}
}

func (d *Doctor) lossPartsDiffer(c Check, r row) {
	x, ok := r.get("loss", "ppo_loss", "kl_loss")
	if d.lim.Policy == nil || !ok {
		return
	}
	differ := func(got, want, scale float64) bool { return math.Abs(got-want) > c.Limit*scale+1e-5 }
	bonus := 0.0
	if w := d.lim.Policy.EntropyWeight; w != 0 {
		h, known := r.number("entropy")
		if !known {
			return
		}
		bonus = w * h
	}
	if sum := x[1] + x[2] - bonus; d.lim.Policy.SumOfParts && differ(x[0], sum, math.Abs(x[1])+math.Abs(x[2])+math.Abs(bonus)) {
		d.say(c, "", x[0], sum, "the loss is %.6g and its parts ppo_loss + kl_loss%s are %.6g: what is "+
			"differentiated is not what is reported", x[0], ifThen(bonus != 0, " - entropy_weight · entropy", ""), sum)
	}
	if y, ok := r.get("kl_beta", "kl"); ok && d.lim.Policy.KLPerCandidate && differ(x[2], y[0]*y[1], math.Abs(y[0]*y[1])) {
		d.say(c, d.key("kl.beta"), x[2], y[0]*y[1], "kl_loss is %.6g, and kl_beta · kl is %.6g: the penalty "+
			"in the loss is not the one that %s and the KL make", x[2], y[0]*y[1], d.key("kl.beta"))
	}
}

func (d *Doctor) lossDiverges(c Check, r row) {
	if loss, known := r.number("loss"); known && d.lim.Policy == nil && !d.lim.Signed && loss < -1e-6 {
		d.say(c, d.key("lr"), loss, 0, "the loss of imitation is %.4g, and a cross entropy cannot be below 0: its "+
			"sign is wrong, so that every step (%s) makes the candidates less likely", loss, d.key("lr"))
	}
	now, ok := d.mean("loss", c)
	first := d.state.First["loss"]
	if d.lim.Policy != nil || !ok || first.N < firstSteps || first.mean() <= 0 || now <= c.Limit*first.mean() {
		return
	}
	d.say(c, d.key("lr"), now/first.mean(), c.Limit,
		"the loss is %.4g in the mean of the last steps, %.3g times that of the phase's first steps (%.4g): imitation gets worse, not "+
			"better; lower %s, or the sign of the loss is wrong", now, now/first.mean(), first.mean(), d.key("lr"))
}

// --- schedules, computed here again

func (d *Doctor) lrOffSchedule(c Check, r row) {
	lr, ok := r.number("lr")
	if !ok || d.lim.LR == 0 || lr == 0 { // zero_lr says that
		return
	}
	want := d.lim.LR * d.lim.LRPlan.at(r.step, d.lim.TotalSteps)
	if math.Abs(lr-want) > 1e-6*d.lim.LR {
		d.say(c, "lr_schedule", lr, want, "the learning rate of step %d is %.6g, and %s with "+
			"lr_schedule.name=%s makes it %.6g: the schedule is not the one that is configured", r.step+1, lr, d.key("lr"), d.lim.LRPlan.Name, want)
	}
}

func (d *Doctor) tauOffSchedule(c Check, r row) {
	tau, ok := r.number("temperature")
	if !ok || d.lim.Tau == nil {
		return
	}
	want := d.lim.Tau.at(r.step, d.lim.TotalSteps)
	if math.Abs(tau-want) > 1e-6*want {
		d.say(c, d.key("temperature.schedule"), tau, want, "τ is %.6g at step %d, and %s=%s makes it %.6g: the "+
			"annealing is not the one that is configured", tau, r.step+1, d.key("temperature.schedule"), d.lim.Tau.Schedule, want)
	}
}

func (d *Doctor) topKOffCurriculum(c Check, r row) {
	x, ok := r.get("top_k", "group_size")
	if d.lim.Policy == nil || !ok {
		return
	}
	if want := d.lim.topK(r.epoch, x[1]); x[0] != want {
		d.say(c, d.key("curriculum"), x[0], want, "%g candidates of a group count in epoch %d, and %s says "+
			"%g of %g: the curriculum is not the one that is configured", x[0], r.epoch, d.key("curriculum"), want, x[1])
	}
}

func (d *Doctor) advantageBeyondClip(c Check, r row) {
	most, ok := r.number("max_advantage")
	if d.lim.Policy == nil || !ok || !(most > d.lim.Policy.AdvantageClip*(1+1e-6)) {
		return
	}
	d.say(c, d.key("advantage.clip"), most, d.lim.Policy.AdvantageClip,
		"the largest advantage is %.4g, beyond the clip at %.4g (%s): the clip does not act, and one lucky candidate can outweigh a batch", most,
		d.lim.Policy.AdvantageClip, d.key("advantage.clip"))
}

func (d *Doctor) advantageNotCentred(c Check, r row) {
	x, ok := r.get("mean_advantage", "advantage_clipped", "top_k", "group_size")
	if d.lim.Policy == nil || !ok || !d.lim.Policy.Centred || x[1] > 0 || x[2] < x[3] || d.lim.topK(r.epoch, x[3]) < x[3] {
		return
	}
	if math.Abs(x[0]) > c.Limit {
		d.say(c, d.key("advantage.method"), x[0], c.Limit, "the advantages of whole groups have a mean of "+
			"%.4g, want 0: the baseline (%s) is not the group's mean, so that candidates are rewarded for being in a good group", x[0],
			d.key("advantage.method"))
	}
}
