package preflight

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"

	"fulcrum/internal/ranks"
	"fulcrum/internal/rng"
	"fulcrum/internal/stat"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
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
	// Optim is how the configuration says the phase's optimizer works; without betas it is not looked at.
	Optim phases.OptimOptions
	// Credit returns what the phase's first step multiplies log π of each candidate by in its objective [B*G], but for a
	// common factor, from the rewards of whole groups and RCE's τ. nil: not known.
	Credit func(b *selector.Batch, tau float64) []float64
	// SampleTemp is the temperature of draws from the policy itself; 0: from another distribution (top_p), not looked at.
	SampleTemp float64
	// Epochs and Steps are how many the run makes, Rate is the peak of their learning rate and Travel the sum over all of them: as far
	// as AdamW takes a weight. 0: not known, and not looked at.
	Epochs, Steps int
	Rate, Travel  float64
	// Largest returns the n queries that make the largest batch, for Memory; nil leaves the stage out.
	Largest func(n int) []int
}

// Trial is what the stages are tried with.
type Trial struct {
	Policy  selector.Policy // the run's; clones of it are trained
	Ranks   *ranks.Group    // processes that share the stages
	Data    phases.Data
	Queries int   // of the batch on which clones are tried; 0 = Queries
	Seed    int64 // of sampling and dropout
	Rough   bool  // log-probabilities have less than 24 bits: limits are a thousand times wider, directions those of gradients
	// AllowNonFinite and WithHeads are those of phases.Env. Steps that allow anything are not compared with the textbook's.
	AllowNonFinite bool
	WithHeads      func(p selector.Policy, heads int) (selector.Policy, error)
	// Unused says why a tensor may have no part in the log-probabilities of a batch: no image is in it, for
	// example; "" where it should have. May be nil.
	Unused func(b *selector.Batch, name string) string
	// Scale names the option that scales the policy's inputs, with its value, where steps go as far as that is large, and the numbers
	// of the data that it has to suit. nil, or no key: there is none.
	Scale func() (key string, value float64, why string)
}

func (t Trial) env(policy selector.Policy) *phases.Env {
	return &phases.Env{Policy: policy, Initial: t.Policy, Data: t.Data, Seed: t.Seed, AllowNonFinite: t.AllowNonFinite, WithHeads: t.WithHeads}
}

// Of a loss or a gradient norm, the share by which two steps may differ that should be equal.
const (
	accumulated = 1e-2 // the first again, where some kernels add in any order; what is left over doubles it
	padded      = 1e-3 // with padding and without: products of another shape are rounded elsewhere
)

// Queries is how many a trial's batch has, fewer where Trial.Queries says so: enough for a mean, few enough for a second.
const Queries = 8

// trialSteps is after how many optimizer steps every trained tensor has moved: a branch behind a scale of 0 moves with the second.
const trialSteps = 3

// total is how many optimizer steps a phase is told it has: warm-up is over soon.
const total = 20

// tried is what the trial of a stage adds to a report; it travels between processes.
type tried struct {
	Checks   int
	Findings []Finding
	Seen     []Seen
	Reaches  []reached
}

// Try runs every stage on a clone of the policy and adds what it finds. An error is a failure of the trial
// itself (an interrupt); what goes wrong in a phase is a finding. Processes take the stages in turn.
func (r *Report) Try(ctx context.Context, t Trial, stages []Stage) error {
	own := map[int]tried{}
	var failed error
	for i := t.Ranks.Rank(); i < len(stages) && failed == nil; i += t.Ranks.Size() {
		one := &Report{severity: r.severity, seed: r.seed, steps: r.steps, said: map[string]bool{}}
		failed = one.try(ctx, t, stages[i], i == 0)
		own[i] = tried{one.checks, one.findings, one.seen, one.reaches}
	}
	all, err := ranks.Gather(t.Ranks, "the preflight", own, failed)
	if err != nil {
		return err
	}
	for i, s := range stages {
		of := all[i%len(all)][i]
		r.checks, r.findings, r.seen = r.checks+of.Checks, append(r.findings, of.Findings...), append(r.seen, of.Seen...)
		for _, reached := range of.Reaches {
			reached.stage = s
			r.reaches = append(r.reaches, reached)
		}
	}
	r.tooFew(t)
	return nil
}

// try runs a stage; first says that it is the run's first.
func (r *Report) try(ctx context.Context, t Trial, s Stage, first bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p := &probe{Report: r, Trial: t, Stage: s, first: first}
	err := torchx.Try(func() error {
		defer torchx.Scope()()
		return p.run(ctx)
	})
	p.free()
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	var infinite *phases.NonFiniteError
	switch {
	case err == nil:
	case errors.As(err, &infinite) && strings.Contains(infinite.What, "reward"):
		p.find("nonfinite_rewards", "%s: one such reward is enough to make the weights NaN", infinite.What)
	case strings.Contains(err.Error(), "does not require grad"):
		p.find("gradient_missing", "the phase's loss has no gradient at all: the log-probabilities are cut off from the weights")
	default:
		p.find("step_failed", "the phase cannot make a step: %v", err)
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
	spy     *spy
	part    *part
	src     selector.Source // the part, as phases take it
	env     *phases.Env
	phase   phases.Phase
	queries []int     // of part: all of them
	start   []float32 // [N] the weights before the first step
}

func (p *probe) free() {
	if p.phase != nil {
		p.phase.End()
	}
	if p.policy != nil {
		p.policy.Free()
	}
}

func (p *probe) find(check, format string, args ...any) {
	p.found(p.Name, check, "", 0, 0, format, args...)
}

// over adds a finding when a value is above its limit, or no number.
func (p *probe) over(check string, value, bound float64, format string, args ...any) {
	p.checks++
	if p.Rough {
		bound *= 1000
	}
	if value <= bound {
		p.Saw(p.Name, check, "%.2g, at most %g", value, bound)
		return
	}
	p.found(p.Name, check, "", value, bound, format, args...)
}

func (p *probe) run(ctx context.Context) error {
	queries := choose(p.Source, cmp.Or(p.Trial.Queries, Queries), p.seed, p.Name, !p.Online)
	if len(queries) == 0 {
		return nil // a phase without data is refused elsewhere
	}
	p.part, p.src = newPart(p.Source, queries)
	p.queries = stat.Indices(len(queries))
	phase, err := p.Build(p.src)
	if err != nil {
		return err
	}
	p.policy = p.Policy.Clone()
	p.start = p.policy.Params().Values()
	var seen selector.Policy
	p.spy, seen = watch(p.policy)
	_, p.part.steps = seen.(selector.TokenPolicy)
	p.env = p.Trial.env(seen)
	p.phase = phase
	if err := p.begin(phase); err != nil {
		p.phase = nil
		return err
	}
	return p.try(ctx)
}

func (p *probe) set(weights []float32) { p.policy.Params().SetValues(weights) }

// try makes the first step twice from the same weights, some more, and one with shaken weights twice, the
// second time with padding.
func (p *probe) try(ctx context.Context) error {
	var reference []float32
	of, name := phases.ReferenceOf(p.phase, p.env)
	if of != nil {
		reference = of.Params().Values()
	}
	m, err := p.stepOf(ctx, p.phase, 0)
	if err != nil {
		return err
	}
	batch, after, drawn := p.part.last, p.policy.Params().Values(), p.spy.heard()
	p.Saw(p.Name, "batch", "%d queries × %d candidates × %d steps", batch.B(), batch.G, batch.T)
	p.Saw(p.Name, "gradient_missing", "a gradient of norm %.3g in the first step", number(m, "grad_norm"))
	one := momentsOf(p.phase)
	p.set(p.start)
	if name == "synced" { // the first step may have moved it
		of.Params().SetValues(reference)
	}
	again, err := p.stepOf(ctx, p.phase, 0) // with nothing between the two that would clear a gradient
	if err != nil {
		return err
	}
	p.ratio(m, again)
	p.over("gradients_accumulate", apart(m, again, "grad_norm"), accumulated,
		"two steps from the same weights on the same batch have gradient norms of %.4g and %.4g: gradients are left over from the step before",
		m["grad_norm"], again["grad_norm"])
	second, two := p.policy.Params().Values(), momentsOf(p.phase)
	p.continues(one, two, again, "the second step")
	p.samples(drawn)
	p.set(p.start)
	p.pull(m, batch)
	p.credit(m, batch, one)
	p.copies(batch)
	if err := p.recompute(ctx, m, batch); err != nil {
		return err
	}
	p.set(p.start)
	p.firstMoments(m, one, after)
	if err := p.direction(ctx, m, batch, after); err != nil {
		return err
	}
	p.set(second)
	p.spy.heard()
	rates := number(again, "lr")
	for n := 1; n < p.steps; n++ {
		next, err := p.stepOf(ctx, p.phase, n)
		if err != nil {
			return err
		}
		rates += number(next, "lr")
		if n == 1 {
			p.repeats(drawn, p.spy.heard())
		}
	}
	last := p.policy.Params().Values()
	p.reach(m, batch, after, last, rates)
	p.set(last)
	idle := p.moved(m)
	p.unmoved(reference)
	if err := p.shaken(ctx, idle); err != nil {
		return err
	}
	return p.nextEpoch(ctx)
}

// nextEpoch begins another epoch and checks that the optimizer remembers the one before.
func (p *probe) nextEpoch(ctx context.Context) error {
	before := momentsOf(p.phase)
	phases.EndEpoch(p.phase)
	phases.BeginEpoch(p.phase, 2)
	m, err := p.stepOf(ctx, p.phase, p.steps+1)
	if err != nil {
		return ctx.Err() // no policy has these weights
	}
	p.continues(before, momentsOf(p.phase), m, "the first step of an epoch")
	return nil
}

// shaken makes a step with weights that are a little off everywhere: adapters that start at 0, and branches whose
// scale does, take part then. idle are tensors that have not moved so far.
func (p *probe) shaken(ctx context.Context, idle []string) error {
	weights, state := p.shake(), p.phase.State()
	p.set(weights)
	p.spy.seen, p.spy.logp = nil, nil
	m, err := p.stepOf(ctx, p.phase, p.steps)
	if err != nil {
		return ctx.Err() // no policy has these weights: their failure says nothing
	}
	still, _ := p.stayed(weights)
	p.leftOut(slices.DeleteFunc(idle, func(name string) bool { return !slices.Contains(still, name) }), weights)
	p.set(weights)
	p.forward(m)
	if err := p.phase.Restore(state); err != nil { // a coefficient, or a reference, that moves with every step
		return err
	}
	p.nats(m)
	p.part.pad = true
	defer func() { p.part.pad = false }()
	wider, err := p.stepOf(ctx, p.phase, p.steps)
	if err != nil {
		return err
	}
	moved := apart(m, wider, "kl_beta") > 0 // by the first of the two: their losses are two
	if !p.AllowNonFinite && !moved {
		p.over("padding_changes_loss", max(apart(m, wider, "loss"), apart(m, wider, "grad_norm")), padded,
			"padding of the batch changes the step: loss %.6g and %.6g, gradient norm %.4g and %.4g: candidates that do not exist are counted",
			m["loss"], wider["loss"], m["grad_norm"], wider["grad_norm"])
	}
	return nil
}

// shake returns the first weights with noise of a tenth of each tensor's size, and of 0.02 where that is less.
func (p *probe) shake() []float32 {
	const relative, least = 0.1, 0.02
	r, out, params := rng.New(p.seed, "preflight shake"), slices.Clone(p.start), p.policy.Params()
	for _, name := range params.Names() {
		from, to := params.Range(name)
		std := float32(math.Max(least, relative*length(out[from:to])/math.Sqrt(float64(max(to-from, 1)))))
		for i := from; i < to; i++ {
			out[i] += std * float32(r.NormFloat64())
		}
	}
	return out
}

func number(m phases.Metrics, name string) float64 {
	switch x := m[name].(type) {
	case float64:
		return x
	case int:
		return float64(x)
	}
	return math.NaN()
}

// apart is the relative difference of a metric of two steps; 0 where both are as good as 0.
func apart(a, b phases.Metrics, name string) float64 {
	x, y := number(a, name), number(b, name)
	if d := math.Abs(x - y); !(d <= 1e-6) {
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
		p.find("ratio_not_one", "the ratio of the first step is %.9g instead of exactly 1: the old policy is not the policy that starts, or "+
			"dropout is on in one of the two", r)
		return
	}
	p.Saw(p.Name, "ratio_not_one", "exactly 1 in the first step, %.6g with the same weights again", number(again, "mean_ratio"))
	near := 1e-3
	if p.Rough { // over a whole sequence; other weights are farther away
		near = 0.3
	}
	if r := number(again, "mean_ratio"); !(math.Abs(r-1) <= near) {
		p.find("ratio_not_one", "with the same weights as in the first step the ratio is %.6g instead of 1: the old policy's "+
			"log-probabilities are those of other weights", r)
	}
}
