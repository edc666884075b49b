package preflight

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/selector"
)

// This file asks how far the policy can come in all the steps of the schedule. AdamW's steps are as long as the learning rate,
// whatever the gradient, and those on the trial's few queries pull together: steps on all of the data change them less.

// What steps may change, in nats of the log-probabilities of a batch's candidates.
const (
	tooLittle = 0.5 // by all of them: a candidate is then 1.6 times as likely as before, and nothing is learnt
	tooFar    = 50  // by one: what it leaves is as good as certain
)

// reached is how far the steps of one phase bring its candidates, in nats of their log-probabilities.
type reached struct {
	stage  Stage
	All    float64
	Behind float64 // how far candidates that are imitated are behind the policy's own choice; 0 where none are
	First  string  // what the first step does
}

// reach holds one step against what is too much, and notes how far all of them bring the candidates of the batch. The weights are
// those after the first step, and those of the trial's last, which rates brought there in All: tensors whose gradient is 0 at first,
// as those behind a scale that starts there, have moved by then.
func (p *probe) reach(m phases.Metrics, b *selector.Batch, after, last []float32, rates float64) {
	lr := number(m, "lr")
	if !(lr > 0) || p.Travel == 0 || b.NumValid() == 0 {
		return
	}
	p.checks += 2
	once := p.moves(b, after, p.Rate/lr)
	r := reached{stage: p.Stage, All: max(p.Travel/p.Rate*once, p.moves(b, last, p.Travel/rates))}
	r.First = fmt.Sprintf("the first of %d steps at %s.lr=%.3g changes the log-probabilities of its candidates by %.2g nats", p.Steps, p.Name,
		p.Rate, once)
	if !compares(m) && !p.part.steps && !p.Online {
		r.Behind = max(0, p.behind(b))
	}
	p.reaches = append(p.reaches, r)
	p.Saw(p.Name, "step_too_large", "%s, at most %d", r.First, tooFar)
	if once > tooFar {
		scale, _, _ := p.scaled()
		p.found(p.Name, "step_too_large", cmp.Or(scale, p.Name+".lr"), once, tooFar,
			"%s, so that each step throws away what those before it learnt: %s", r.First, p.remedy(p.Stage, 5/once))
	}
}

// tooFew asks whether the whole schedule moves the policy at all, and whether the phases that imitate come half way, together, to
// candidates that are far less likely than what the policy chooses itself. Phases that sample need not go there.
func (r *Report) tooFew(t Trial) {
	const far = 5.0 // nats; candidates that are nearer change places before the policy is there
	var total, imitated, behind float64
	var most reached
	samples := false
	for i, s := range r.reaches {
		total, samples = total+s.All, samples || s.stage.Online
		if s.Behind > 0 {
			imitated, behind = imitated+s.All, max(behind, s.Behind)
		}
		if i == 0 || s.Behind > most.Behind || s.Behind == most.Behind && s.All > most.All {
			most = s
		}
	}
	say := func(all, limit, factor float64, format string, args ...any) {
		r.found(most.stage.Name, "too_few_steps", most.stage.Name+".epochs", all, limit, "%s%s%s", most.First, fmt.Sprintf(format, args...),
			t.remedy(most.stage, factor))
	}
	if total > 0 {
		r.Saw(most.stage.Name, "too_few_steps", "all steps of the schedule change log-probabilities by about %.2g nats, at least %g", total,
			tooLittle)
	}
	switch {
	case total == 0: // no phase was tried, or none reads what it trains, which is said elsewhere
	case behind > far && imitated < behind/2 && !samples:
		say(imitated, behind/2, 3*behind/imitated, ", and all steps that imitate by about %.2g; but these candidates are %.2g nats less likely "+
			"than what the policy chooses itself, so that it comes less than half way to them: ", imitated, behind)
	case total < tooLittle:
		say(total, tooLittle, 10*tooLittle/total, ", and all steps of the schedule by about %.2g, from which nothing is learnt: ", total)
	}
}

// remedy says what to type so that the phase comes so many times as far. The scale comes first where steps are too large: a lower rate
// alone leaves a policy that is certain of what it chose before it learnt.
func (t Trial) remedy(s Stage, factor float64) string {
	const highest, hopeless = 0.05, 1000 // no one trains at higher rates; no option makes up for larger factors
	var ways []string
	if factor > hopeless {
		return "no option mends that, so look at what the policy reads"
	}
	if factor > 1 {
		ways = append(ways, fmt.Sprintf("more epochs (%s.epochs=%.0f), smaller batches (data.batch_size)", s.Name,
			math.Ceil(factor*float64(s.Epochs))))
	}
	if rate := factor * s.Rate; rate <= highest {
		ways = append(ways, fmt.Sprintf("%s.lr=%s", s.Name, short(rate)))
	}
	if key, value, why := t.scaled(); key != "" {
		scale := fmt.Sprintf("%s=%s in place of %g (%s)", key, short(factor*value), value, why)
		if ways = append(ways, scale); factor < 1 {
			slices.Reverse(ways)
		}
	}
	return strings.Join(ways, ", or ")
}

// scaled is Scale where there is one, else no key.
func (t Trial) scaled() (key string, value float64, why string) {
	if t.Scale == nil {
		return "", 0, ""
	}
	return t.Scale()
}

// short writes a number with one digit that counts, and without an exponent where that is readable.
func short(x float64) string {
	x, _ = strconv.ParseFloat(strconv.FormatFloat(x, 'g', 1, 64), 64)
	return strconv.FormatFloat(x, 'g', -1, 64)
}

// moves is how far log π of the batch's candidates changes along a scaled first step, in nats on average.
func (p *probe) moves(b *selector.Batch, after []float32, scale float64) float64 {
	sum := 0.0
	for at, d := range p.change(b, after, scale) {
		if b.Valid[at] {
			sum += math.Abs(d)
		}
	}
	return sum / float64(b.NumValid())
}

// behind is how much less likely than what the policy draws itself the batch's candidates are, in nats on average: -log π less
// the entropy. It is 0 for a policy that knows nothing.
func (p *probe) behind(b *selector.Batch) float64 {
	defer torchx.NoGrad()()
	defer torchx.Scope()()
	p.set(p.start)
	out := p.policy.Forward(b, selector.ForwardOptions{Entropy: true})
	entropy, sum := out.Entropy.Floats(), 0.0
	for i, logp := range out.LogP.Floats() {
		if b.Mask[i] != 0 && b.Valid[i/b.T] {
			sum -= logp + entropy[i]
		}
	}
	return sum / float64(b.NumValid())
}
