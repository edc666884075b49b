package doctor

import (
	"fmt"
	"math"

	"fulcrum/internal/stat"
)

// Did the phase do what it was there for? These checks speak when it is over.

// Handed tells what the validation queries earn under the policy that the next phase starts from, one by one.
func (d *Doctor) Handed(rewards []float64) { d.state.Handed = rewards }

// End looks at a phase after its last epoch. early says that a rule of the run (patience, pruning) ended it before.
func (d *Doctor) End(early bool) []Finding {
	d.state.Early = early
	for _, c := range d.checks {
		if c.end != nil {
			c.end(d, c)
		}
	}
	return d.take()
}

// epochsMissing counts the epochs of a phase that no rule has ended.
func (d *Doctor) epochsMissing(c Check) {
	want, got := d.lim.Epochs, len(d.state.Epochs)
	if want == 0 || got == want || d.state.Early && got < want {
		return
	}
	d.say(c, d.key("epochs"), float64(got), float64(want), "the phase made %d epochs and %s=%d asks for another number: some were left "+
		"out or came twice, and every schedule that is counted over them is another", got, d.key("epochs"), want)
}

// gained adds to an epoch what its policy earns more than the phase began with, over the same queries, and the standard error.
func (d *Doctor) gained(e epoch) {
	if n := len(d.scores); n >= fewScores && n == len(d.state.Handed) {
		gain, noise := stat.MeanSE(stat.Less(d.scores, d.state.Handed))
		e["gain"], e["gain_error"] = finite(gain), finite(noise)
	}
}

// nothingAdded looks for a phase with ratios of which no epoch is better on validation than what it began with, and says why, as far as
// its rows tell.
func (d *Doctor) nothingAdded(c Check) {
	if d.lim.Policy == nil || len(d.state.Epochs) == 0 {
		return
	}
	best, noise := math.Inf(-1), 0.0
	for _, e := range d.state.Epochs {
		gain, ok := e["gain"]
		if !ok || gain > c.Limit*e["gain_error"] && gain > 0 {
			return
		}
		if gain > best {
			best, noise = gain, e["gain_error"]
		}
	}
	d.say(c, d.key("lr"), best, c.Limit*noise, "%s shows nothing on validation, because %s: its best epoch earns %+.3g there over what the "+
		"phase began with, within %.2g standard errors of %.2g", d.state.Phase, d.because(), best, c.Limit, noise)
}

// because names the first of the usual causes that the epochs' means show.
func (d *Doctor) because() string {
	mean := func(name string) float64 { // NaN where an epoch lacks it
		sum := 0.0
		for _, e := range d.state.Epochs {
			x, ok := e[name]
			if !ok {
				return math.NaN()
			}
			sum += x
		}
		return sum / float64(len(d.state.Epochs))
	}
	signal, outside, kl, band := mean("signal_share"), mean("clip_fraction"), mean("kl"), d.lim.Policy.KL
	first, last := d.state.Epochs[0], d.state.Epochs[len(d.state.Epochs)-1]
	switch {
	case signal < fewSignals:
		return fmt.Sprintf("only %s of its groups have rewards that differ (%s)", percent(signal), d.rewardKey())
	case math.Abs(kl) < band.TargetMin && outside < fewOutside:
		return fmt.Sprintf("its policy hardly moved (a KL of %.2g nats, %s of the ratios outside the clip range): raise %s or %s", kl,
			percent(outside), d.key("lr"), d.key("epochs"))
	case outside > mostOutside:
		return fmt.Sprintf("%s of its ratios lie outside the clip range, where the loss has no gradient (%s, %s)", percent(outside),
			d.key("lr"), d.key("old_policy"))
	case kl > band.TargetMax && band.Controller != "fixed":
		return fmt.Sprintf("its KL, %.2g nats, is above the band (up to %.2g): the penalty pulls it back (%s, %s)", kl, band.TargetMax,
			d.key("lr"), d.key("kl.target_max"))
	case d.lim.topK(len(d.state.Epochs), math.Inf(1)) < math.Inf(1):
		return fmt.Sprintf("its curriculum kept the best candidates alone to the end, which a warm-up imitates too (%s)", d.key("curriculum"))
	case last["mean_reward"] > first["mean_reward"] && d.lim.Online || last["advantage_gain"] > first["advantage_gain"] && !d.lim.Online:
		return "training improves and validation does not: what it learns does not carry over, or is too little for this many queries"
	}
	return fmt.Sprintf("training does not improve either (%s)", d.key("lr"))
}

const (
	fewScores   = 50   // validation queries: with fewer a phase must be much better to be seen to be
	fewSignals  = 0.2  // as little_signal
	fewOutside  = 0.05 // ratios of a policy that moves leave the range here and there
	mostOutside = 0.5  // as bounds_exceeded
)
