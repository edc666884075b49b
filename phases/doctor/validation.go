package doctor

import "fulcrum/internal/stat"

// Does validation follow training?

// validationDiverges compares the newest epochs of the phase. Training is the loss of imitation, the
// sampled reward of online phases, or the advantage's gain on recorded groups. Validation is what the policy earns and, of imitation, its
// loss too: two epochs of one of them may be noise. GRPO may raise the loss of imitation while rewards rise.
func (d *Doctor) validationDiverges(c Check, r row) {
	val, better := d.series("val_reward", r), 1.0
	name := "val_reward"
	if len(val) == 0 {
		val, name = d.series("val_recorded_reward", r), "val_recorded_reward"
	}
	loss := d.series("val_loss", r)
	if d.lim.Policy != nil {
		loss = nil
	} else if len(val) == 0 {
		val, better, name = loss, -1, "val_loss"
	}
	train, of, rises := d.series("loss", r), "loss", -1.0
	if d.lim.Online {
		train, of, rises = d.series("mean_reward", r), "mean_reward", 1
	} else if d.lim.Policy != nil {
		train, of, rises = d.series("advantage_gain", r), "advantage_gain", 1
	}
	n := int(c.Limit)
	if n < 1 || len(val) <= n || len(train) <= n {
		return
	}
	val, train, loss = val[len(val)-n-1:], train[len(train)-n-1:], loss[max(0, len(loss)-n-1):]
	if len(loss) > 1 && loss[len(loss)-1] <= loss[0] {
		return
	}
	for i := 1; i <= n; i++ {
		if better*(val[i]-val[i-1]) >= 0 || rises*(train[i]-train[i-1]) <= 0 {
			return
		}
	}
	d.say(c, d.orRate("checkpoint.patience_epochs"), float64(n), c.Limit,
		"%s went from %.4g to %.4g over %d epochs while training got better (%s from %.4g to %.4g): the policy learns what does not carry "+
			"over; fewer epochs, checkpoint.patience_epochs, more data or a smaller learning rate", name, val[0], val[n], n, of, train[0], train[n])
}

// validationUnchanged compares with the epoch before, the first with the initial policy.
func (d *Doctor) validationUnchanged(c Check, r row) {
	x, ok := r.get("val_loss", "lr", "grad_norm")
	if !ok || x[1] == 0 || x[2] <= smallGradient {
		return
	}
	before, known := d.state.Initial["val_loss"]
	if n := len(d.state.Epochs); n > 0 {
		before, known = d.state.Epochs[n-1]["val_loss"]
	} else if !d.lim.StartsAtInit {
		known = false
	}
	if known && before == x[0] {
		d.say(c, "", x[0], before, "val_loss is %.8g, the same to the last digit as before the epoch, "+
			"although the gradient was %.3g: the weights do not move, or validation looks at other weights", x[0], x[2])
	}
}

// validationReward is the reward that is known: what selections earn, else the recorded one.
func (r row) validationReward() (name string, x float64, ok bool) {
	for _, name = range []string{"val_reward", "val_recorded_reward"} {
		if x, ok = r.number(name); ok {
			break
		}
	}
	return name, x, ok
}

// worseThanStart wants a loss beyond the noise of the queries too: four standard errors of the initial reward are
// nearly three of the difference of two sets.
func (d *Doctor) worseThanStart(c Check, r row) {
	name, reward, ok := r.validationReward()
	initial, known := d.state.Initial[name]
	if !ok || !known || initial <= 0 || reward >= (1-c.Limit)*initial || reward >= initial-4*d.state.Initial["reward_error"] {
		return
	}
	d.say(c, d.orRate(d.key("lr")), reward, (1-c.Limit)*initial,
		"%s is %.4g after the epoch, and the initial policy earns %.4g: training loses %s of it; lower %s, or look at the sign and "+
			"the scale of the rewards", name, reward, initial, percent(1-reward/initial), d.key("lr"))
}

// validationFalls compares with the best epoch of the run so far, of earlier phases too. It wants a loss beyond the noise of the queries,
// as worseThanStart does, and leaves to that what ends below the start.
func (d *Doctor) validationFalls(c Check, r row) {
	_, own := stat.MeanSE(d.scores)
	noise := max(d.state.Initial["reward_error"], d.state.Initial["best_error"], finite(own))
	name, x, ok := r.validationReward()
	best, known := d.state.Initial["best_"+name]
	if ok && (!known || x > best) {
		d.state.Initial["best_"+name], d.state.Initial["best_error"] = x, finite(own)
	}
	if !ok || best <= 0 || noise == 0 || x >= (1-c.Limit)*best || x >= best-4*noise || d.state.Said["worse_than_start"] != "" {
		return
	}
	d.say(c, d.orRate(d.key("lr")), x, (1-c.Limit)*best,
		"%s is %.4g after the epoch and was %.4g after an earlier one: the run has lost %s of it since; the best checkpoint may hold the "+
			"earlier one; lower %s, or end the phase earlier (checkpoint.patience_epochs)", name, x, best, percent(1-x/best), d.key("lr"))
}

// series are an epoch metric's numbers of this phase, that of the row in hand last.
func (d *Doctor) series(name string, r row) []float64 {
	var out []float64
	for _, e := range d.state.Epochs {
		if x, ok := e[name]; ok {
			out = append(out, x)
		}
	}
	if x, ok := r.number(name); ok {
		out = append(out, x)
	}
	return out
}
