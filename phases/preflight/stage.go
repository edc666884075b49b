package preflight

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/doctor"
	"fulcrum/selector"
)

// Stage is a phase of the schedule and how to make it anew.
type Stage struct {
	Name   string
	Source selector.Source // what the phase trains on
	Online bool            // its candidates are sampled
	Freeze []string        // parameters whose name contains one of these must not move
	// Build makes the phase on another source, without weight decay: it would move tensors without a gradient.
	Build func(selector.Source) (phases.Phase, error)
}

// Trial is what the stages are tried with.
type Trial struct {
	Policy selector.Policy // the run's; clones of it are trained
	Data   phases.Data
	Seed   int64 // of sampling and dropout
	Rough  bool  // log-probabilities have less than 24 bits: limits are a thousand times wider
	GoOn   bool  // phases.Env.GoOn
}

// total is how many optimizer steps a phase is told it has: warm-up is over soon.
const total = 20

// Try runs every stage on a clone of the policy and adds what it finds. An error is a failure of the trial
// itself (an interrupt); what goes wrong in a phase is a finding.
func (r *Report) Try(ctx context.Context, t Trial, stages []Stage) error {
	for i, s := range stages {
		if err := ctx.Err(); err != nil {
			return err
		}
		p := &probe{Report: r, Trial: t, Stage: s, first: i == 0}
		err := torchx.Try(func() error {
			defer torchx.Scope()()
			return p.run(ctx)
		})
		p.free()
		if err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			p.find("step_failed", "the phase cannot make a step: %v", err)
		}
	}
	return nil
}

// probe is one stage in trial.
type probe struct {
	*Report
	Trial
	Stage
	first bool // of the run's stages

	policy  selector.Policy // the clone that is trained
	initial selector.Policy
	spy     *spy
	part    *part
	phase   phases.Phase
	queries []int     // of part: all of them
	start   []float32 // [N] the weights before the first step
}

func (p *probe) free() {
	if p.phase != nil {
		p.phase.End()
	}
	for _, q := range []selector.Policy{p.policy, p.initial} {
		if q != nil {
			q.Free()
		}
	}
}

// find adds a finding about the stage.
func (p *probe) find(check, format string, args ...any) {
	p.add(p.Name, false, doctor.Finding{Check: check, Message: fmt.Sprintf(format, args...)})
}

// over adds a finding when a value is above its limit, or no number.
func (p *probe) over(check string, value float64, limit doctor.Limit, format string, args ...any) {
	p.checks++
	bound := limit.Limit
	if p.Rough {
		bound *= 1000
	}
	if value <= bound {
		return
	}
	p.add(p.Name, false, doctor.Finding{Check: check, Message: fmt.Sprintf(format, args...), Value: value, Limit: bound})
}

func (p *probe) run(ctx context.Context) error {
	queries := choose(p.Source, p.opt.Queries, p.seed, p.Name, !p.Online)
	if len(queries) == 0 {
		return nil // a phase without data is refused elsewhere
	}
	var src selector.Source
	p.part, src = newPart(p.Source, queries)
	for i := range queries {
		p.queries = append(p.queries, i)
	}
	phase, err := p.Build(src)
	if err != nil {
		return err
	}
	p.policy, p.initial = p.Policy.Clone(), p.Policy.Clone()
	p.start = p.policy.Params().Values()
	var seen selector.Policy
	p.spy, seen = watch(p.policy)
	_, p.part.steps = seen.(selector.ExactKL)
	env := &phases.Env{Policy: seen, Initial: p.initial, Data: p.Data, Seed: p.Seed, GoOn: p.GoOn}
	if err := phase.Begin(env, total); err != nil {
		return err
	}
	p.phase = phase
	if err := phase.BeginEpoch(1); err != nil {
		return err
	}
	return p.steps(ctx)
}

// step makes the phase's step number n on the batch.
func (p *probe) step(ctx context.Context, n int) (m phases.Metrics, err error) {
	defer torchx.Recover(&err)
	defer torchx.Scope()()
	return p.phase.Step(ctx, 1, n, 0, p.queries)
}

// rewind gives the clone its first weights again.
func (p *probe) rewind() { p.policy.Params().SetValues(p.start) }

// steps makes the same first step three times (as it is, again, with padding), then some more.
func (p *probe) steps(ctx context.Context) error {
	reference := p.phase.Reference().Params().Values()
	p.spy.reset()
	m, err := p.step(ctx, 0)
	if err != nil {
		return err
	}
	batch := p.part.last
	after := p.policy.Params().Values()
	p.finiteRewards(batch)
	p.rewind()
	p.forward(m)
	p.direction(m, batch, after)
	p.rewind()

	again, err := p.step(ctx, 0)
	if err != nil {
		return err
	}
	p.ratio(m, again)
	p.over("gradients_accumulate", apart(m, again, "grad_norm"), p.opt.GradientsAccumulate,
		"two steps from the same weights on the same batch have gradient norms of %.4g and %.4g: gradients are left over from the step before", m["grad_norm"], again["grad_norm"])
	p.rewind()

	p.part.pad = true
	padded, err := p.step(ctx, 0)
	p.part.pad = false
	if err != nil {
		return err
	}
	if !p.GoOn {
		p.over("padding_changes_loss", max(apart(m, padded, "loss"), apart(m, padded, "grad_norm")), p.opt.PaddingChangesLoss,
			"padding of the batch changes the step: loss %.6g and %.6g, gradient norm %.4g and %.4g: candidates that do not exist are counted", m["loss"], padded["loss"], m["grad_norm"], padded["grad_norm"])
	}
	for n := 1; n < p.opt.Steps; n++ {
		if _, err := p.step(ctx, n); err != nil {
			return err
		}
	}
	p.moved(m)
	p.still(reference)
	return nil
}

// number reads a metric.
func number(m phases.Metrics, name string) float64 {
	if x, ok := m[name].(float64); ok {
		return x
	}
	return math.NaN()
}

// apart is the relative difference of a metric of two steps; 0 where both are as good as 0.
func apart(a, b phases.Metrics, name string) float64 {
	x, y := number(a, name), number(b, name)
	if d := math.Abs(x - y); !(d <= 1e-7) {
		return d / math.Max(math.Abs(x), 1e-4)
	}
	return 0
}

// ratio checks that the policy's ratio to itself is 1: exactly in the first step, and but for rounding when
// the weights are what they were then.
func (p *probe) ratio(first, again phases.Metrics) {
	r, ok := first["mean_ratio"].(float64)
	if !ok {
		return
	}
	p.checks++
	if r != 1 {
		p.find("ratio_not_one", "the ratio of the first step is %.9g instead of exactly 1: the old policy is not the policy that starts, or dropout is on in one of the two", r)
		return
	}
	if r := number(again, "mean_ratio"); !(math.Abs(r-1) <= 1e-3) {
		p.find("ratio_not_one", "with the same weights as in the first step the ratio is %.6g instead of 1: the old policy's log-probabilities are those of other weights", r)
	}
}

// finiteRewards looks at the rewards of the trial's candidates.
func (p *probe) finiteRewards(b *selector.Batch) {
	p.checks++
	for at, ok := range b.Valid {
		if x := b.Rewards[at]; ok && (math.IsNaN(x) || math.IsInf(x, 0)) {
			p.find("nonfinite_rewards", "query %d, candidate %d has the reward %v: one is enough to make the weights NaN", b.Source.ID(b.Queries[at/b.G]), at%b.G+1, x)
			return
		}
	}
}

// moved checks that every trained tensor has moved since the first step, and no frozen one.
func (p *probe) moved(m phases.Metrics) {
	p.checks += 3
	params, now := p.policy.Params(), p.policy.Params().Values()
	var idle, astray []string
	for _, name := range params.Names() {
		from, to := params.Range(name)
		moved := !slices.Equal(now[from:to], p.start[from:to])
		switch frozen := p.frozen(name); {
		case frozen && moved:
			astray = append(astray, name)
		case !frozen && !moved:
			idle = append(idle, name)
		}
	}
	if len(astray) > 0 {
		p.find("frozen_move", "%s moved although %s.freeze names it: its learning rate is not 0", list(astray), p.Name)
	}
	if len(idle) == 0 {
		return
	}
	all := len(idle)+p.countFrozen() == len(params.Names())
	if all && number(m, "grad_norm") > 0 {
		p.add(p.Name, false, doctor.Finding{Check: "parameters_do_not_move", Key: p.Name + ".lr", Value: float64(len(idle)),
			Message: fmt.Sprintf("no weight moved in %d steps although the gradient norm is %.4g: the optimizer makes no step, or %s.lr=%.3g is too small for float32", p.opt.Steps, m["grad_norm"], p.Name, m["lr"])})
		return
	}
	reached := p.gradients()
	var unmoved, without []string
	for _, name := range idle {
		if reached[name] {
			unmoved = append(unmoved, name)
		} else {
			without = append(without, name)
		}
	}
	if all {
		p.add(p.Name, false, doctor.Finding{Check: "gradient_missing", Value: float64(len(idle)),
			Message: fmt.Sprintf("no weight has a gradient in this phase (norm %.3g over %d steps): the log-probabilities are cut off from the weights, or nothing of the loss depends on them", number(m, "grad_norm"), p.opt.Steps)})
		return
	}
	if len(unmoved) > 0 {
		p.find("parameters_do_not_move", "%s did not move in %d steps although the log-probabilities have a gradient to it: the phase leaves it out", list(unmoved), p.opt.Steps)
	}
	if len(without) > 0 {
		p.find("gradient_missing", "%s has no gradient after %d steps: the log-probabilities do not depend on it", list(without), p.opt.Steps)
	}
}

func (p *probe) frozen(name string) bool {
	return slices.ContainsFunc(p.Freeze, func(part string) bool { return strings.Contains(name, part) })
}

func (p *probe) countFrozen() int {
	n := 0
	for _, name := range p.policy.Params().Names() {
		if p.frozen(name) {
			n++
		}
	}
	return n
}

// gradients reports which tensors the log-probabilities of the batch have a gradient to, whatever the phase does.
func (p *probe) gradients() map[string]bool {
	defer torchx.Scope()()
	params := p.policy.Params()
	params.ZeroGrad()
	b := p.part.last
	out := p.policy.Forward(b, selector.ForwardOptions{})
	w := make([]float32, len(b.Mask))
	for i, m := range b.Mask {
		w[i] = m * float32(1+i%7) // different weights: a sum over all actions has no gradient
	}
	torchx.Backward(torchx.Sum(torchx.Mul(out.LogP, torchx.ToLike(torchx.From(w, b.B(), b.G, b.T), out.LogP))))
	grad := torchx.Data[float32](params.Grad())
	params.ZeroGrad()
	reached := map[string]bool{}
	for _, name := range params.Names() {
		from, to := params.Range(name)
		reached[name] = slices.ContainsFunc(grad[from:to], func(g float32) bool { return g != 0 })
	}
	return reached
}

// still checks that the reference policy has not moved.
func (p *probe) still(reference []float32) {
	if n, ok := p.phase.(interface{ ReferenceName() string }); ok && n.ReferenceName() == "synced" {
		return
	}
	p.checks++
	if !slices.Equal(p.phase.Reference().Params().Values(), reference) {
		p.find("frozen_move", "the reference policy of the KL moves with the policy: it shares its weights, so that the KL is always 0")
	}
}

// list names some tensors.
func list(names []string) string {
	const show = 3
	if len(names) <= show {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:show], ", "), len(names)-show)
}
