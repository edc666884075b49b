package preflight

import (
	"context"
	"math"
	"slices"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/selector"
)

// This file holds the optimizer against AdamW's equations. The moments tell what it was given: after a step with the
// gradient g, clipped, they are m' = β1·m + (1-β1)·g and v' = β2·v + (1-β2)·g².

// moments are an optimizer's, as a saved state holds them.
type moments struct {
	m, v  []float32
	steps int
}

func momentsOf(phase phases.Phase) moments {
	s := phase.State()
	return moments{s.M, s.V, s.OptimizerSteps}
}

func length(x []float32) float64 {
	return math.Sqrt(list.Sum(x, func(v float32) float64 { return float64(v) * float64(v) }))
}

// exact is how far a norm may lie from what it should be, as a share of it: sums of float32 numbers are rounded.
const exact = 0.02

// bfloat16 is how far a number of 16 bits may lie from what it should be, as a share of it.
const bfloat16 = 1.0 / (1 << 7)

// known reports whether the stage says how its optimizer is configured. Where anything is allowed, some gradients may be others.
func (p *probe) known() bool { return len(p.Optim.Betas) == 2 && !p.AllowNonFinite }

// firstMoments checks what one step of a new optimizer leaves, and how far it went.
func (p *probe) firstMoments(m phases.Metrics, at moments, after []float32) {
	if !p.known() || number(m, "grad_norm") == 0 {
		return
	}
	p.continues(moments{make([]float32, len(at.m)), make([]float32, len(at.v)), 0}, at, m, "the first step")
	p.stepSize(m, at, after)
}

// continues checks the moments after a step against those before it.
func (p *probe) continues(before, after moments, m phases.Metrics, when string) {
	norm := number(m, "grad_norm")
	if !p.known() || len(before.m) != len(after.m) || !(norm > 0) {
		return
	}
	p.checks++
	b1, b2 := p.Optim.Betas[0], p.Optim.Betas[1]
	if after.steps != before.steps+1 {
		p.find("moments_differ", "the optimizer counts %d steps after %s, and counted %d before it: the moments' bias is corrected for "+
			"another age than they have", after.steps, when, before.steps)
		return
	}
	want := norm // after clipping; 0 = none
	if limit := p.Optim.GradClipNorm; limit > 0 {
		want = math.Min(norm, limit)
	}
	squares, rest, size := 0.0, 0.0, 0.0 // of the gradient; of what the second moment lacks; of its share of it
	for i, x := range after.m {
		g := (float64(x) - b1*float64(before.m[i])) / (1 - b1)
		squares += g * g
		rest += math.Abs(float64(after.v[i]) - b2*float64(before.v[i]) - (1-b2)*g*g)
		size += (1 - b2) * g * g
	}
	got := math.Sqrt(squares)
	ulp := 1e-6
	if p.Optim.State == torchx.KeepBFloat16 {
		ulp = bfloat16
	}
	rounding := ulp * length(before.m) / (1 - b1)
	switch {
	case want < norm && math.Abs(got-norm) <= exact*norm && norm-want > 2*exact*norm:
		p.found(p.Name, "clip_ignored", "optim.grad_clip_norm", got, want, "a gradient of norm %.4g reached the optimizer with norm %.4g "+
			"although it was to be clipped to %.4g: optim.grad_clip_norm does not act", norm, got, want)
	case math.Abs(got-want) > exact*want+rounding:
		p.found(p.Name, "moments_differ", "", got, want, "the first moment after %s is that of a gradient with norm %.4g, and the gradient "+
			"(clipped) has %.4g: the optimizer forgot the steps before, was given another gradient, or has another beta than optim.betas=%v", when,
			got, want, p.Optim.Betas)
	case rest > 0.1*size+ulp*b2*sum(before.v):
		p.found(p.Name, "moments_differ", "", rest, size, "the second moment after %s is not the one before and the squared gradient in the "+
			"proportion of optim.betas=%v: the optimizer forgot the steps before, or has another beta", when, p.Optim.Betas)
	}
}

func sum(x []float32) float64 { return list.Sum(x, func(v float32) float64 { return float64(v) }) }

// anew makes the first step once more, from the weights of the start, with another phase.
func (p *probe) anew(ctx context.Context) (phases.Metrics, error) {
	phase, err := p.Build(p.src)
	if err != nil {
		return nil, err
	}
	p.set(p.start)
	if err := p.begin(phase); err != nil {
		return nil, err
	}
	defer phase.End()
	return p.stepOf(ctx, phase, 0)
}

// begin prepares a phase on the trial's clone.
func (p *probe) begin(phase phases.Phase) error {
	if err := phase.Begin(p.env, total); err != nil {
		return err
	}
	phases.BeginEpoch(phase, 1)
	return nil
}

// stepOf makes step number n of another phase on the batch.
func (p *probe) stepOf(ctx context.Context, phase phases.Phase, n int) (m phases.Metrics, err error) {
	defer torchx.Recover(&err)
	defer torchx.Scope()()
	measured, err := phase.Step(ctx, phases.At{Epoch: 1, Step: n, Queries: p.queries})
	if err != nil {
		return nil, err
	}
	return measured.Row(), nil
}

// stepSize checks how far the first step went: AdamW moves each weight by lr·|g| / (|g| + eps) then, whatever the
// gradient's size. The tensor in the middle decides: some may have a learning rate of their own.
func (p *probe) stepSize(m phases.Metrics, at moments, after []float32) {
	p.checks++
	lr, params := number(m, "lr"), p.policy.Params()
	var ratios []float64
	for _, name := range params.Names() {
		from, to := params.Range(name)
		zero := make([]float32, to-from)
		g, largest := farthest(at.m[from:to], zero)/(1-p.Optim.Betas[0]), farthest(p.start[from:to], zero)
		if p.frozen(name) || g < 100*p.Optim.Eps || lr < 3e-7*largest { // rounding of the weights would decide
			continue
		}
		ratios = append(ratios, farthest(after[from:to], p.start[from:to])/(lr*g/(g+p.Optim.Eps)))
	}
	if len(ratios) == 0 {
		return
	}
	r := stat.Middle(ratios)
	p.Saw(p.Name, "step_size", "%.3g times the learning rate of %.3g, 0.5 to 2", r, lr)
	if !(r >= 0.5 && r <= 2) {
		p.found(p.Name, "step_size", p.Name+".lr", r, 0, "the first step moved the weights by %.3g times the learning rate of %.3g; AdamW "+
			"moves them by the learning rate itself then: the rate that the optimizer uses is not the one that is configured and reported", r, lr)
	}
}

// misplaced is the share of what sets candidates apart that a gradient may be off by: clipping each reward a little is less, one
// candidate's reward given to another is more.
const misplaced = 0.2

// credit checks that the gradient of the phase's first step is that of Σ w·log π, with the weights w that the
// candidates' own rewards make: one look at every number between a reward and the weights of the policy.
func (p *probe) credit(m phases.Metrics, b *selector.Batch, at moments) {
	const rounding = 1e-5 // a gradient that is smaller is that of a policy which sees no difference
	if p.Credit == nil || p.AllowNonFinite || !(number(m, "grad_norm") > rounding) || len(at.m) == 0 {
		return
	}
	how := p.spy.how
	if how.Train && (p.spy.seen.B() != b.B() || p.spy.seen.G != b.G) {
		return // dropout masks of other shapes
	}
	w := p.Credit(b, number(m, "temperature"))
	if w == nil || !slices.ContainsFunc(w, func(x float64) bool { return x != 0 }) {
		return
	}
	p.checks++
	even := make([]float64, len(w)) // what all candidates of a group share tells nothing of who got what
	for i := range b.B() {
		total, n := 0.0, 0
		for _, at := range b.Candidates(i) {
			total, n = total+w[at], n+1
		}
		for _, at := range b.Candidates(i) {
			even[at] = total / float64(n)
		}
	}
	gradient := func(w []float64) []float32 { return p.thawed(p.gradient(b, w, p.start)) }
	common, first := gradient(even), p.thawed(slices.Clone(at.m))
	limit, least := misplaced, 1e-3
	switch {
	case p.Rough:
		limit, least = 0.5, 1
	case p.Optim.State == torchx.KeepBFloat16:
		least = 10 * bfloat16
	}
	off := func(w []float64) float64 { return misfit(first, gradient(w), common, least) }
	apart := off(w)
	p.Saw(p.Name, "credit_misplaced", "the gradient is that of the batch's rewards but for %.2g, at most %g", apart, limit)
	if !(apart > limit) {
		return
	}
	best, cause := limit, "something between the rewards and the loss is lost, changed or given to others"
	for _, of := range p.suspects(b, w) {
		if x := off(of.w); x < best {
			best, cause = x, "it is that of "+of.what
		}
	}
	p.found(p.Name, "credit_misplaced", "", apart, limit, "the gradient of the first step is not that of the batch's rewards (off by %.3g of "+
		"what sets its candidates apart): %s", apart, cause)
}

// thawed clears what belongs to frozen tensors: a phase may leave their gradients out.
func (p *probe) thawed(x []float32) []float32 {
	params := p.policy.Params()
	for _, name := range params.Names() {
		if p.frozen(name) {
			from, to := params.Range(name)
			clear(x[from:to])
		}
	}
	return x
}

// misfit is how far the first moment m is from a gradient that should be its negative but for a factor, as a share of
// what sets that gradient apart from the common one, or of the share least of the gradient itself where that is more.
func misfit(m, want, common []float32, least float64) float64 {
	dot, size := 0.0, 0.0
	for i, g := range want {
		dot -= float64(m[i]) * float64(g)
		size += float64(g) * float64(g)
	}
	if !(dot > 0) || size == 0 {
		return 1
	}
	factor, rest, apart := dot/size, 0.0, 0.0
	for i, g := range want {
		r, d := float64(m[i])+factor*float64(g), float64(g)-float64(common[i])
		rest += r * r
		apart += d * d
	}
	return math.Sqrt(rest) / (factor * math.Max(math.Sqrt(apart), least*math.Sqrt(size)))
}

// suspect is a way to get the weights of candidates wrong.
type suspect struct {
	what string
	w    []float64
}

func (p *probe) suspects(b *selector.Batch, w []float64) []suspect {
	with := func(f func(i, g int) float64) []float64 {
		out := make([]float64, len(w))
		for at, ok := range b.Valid {
			if ok {
				out[at] = f(at/b.G, at%b.G)
			}
		}
		return out
	}
	n := b.B()
	return []suspect{
		{"weights without the negative ones", with(func(i, g int) float64 { return math.Max(w[i*b.G+g], 0) })},
		{"weights without the positive ones", with(func(i, g int) float64 { return math.Min(w[i*b.G+g], 0) })},
		{"the weights of the next query", with(func(i, g int) float64 { return w[(i+1)%n*b.G+g] })},
		{"the weights of the query before", with(func(i, g int) float64 { return w[(i+n-1)%n*b.G+g] })},
		{"the weights of the next candidate", with(func(i, g int) float64 { return w[i*b.G+(g+1)%b.G] })},
		{"the weights of the candidate before", with(func(i, g int) float64 { return w[i*b.G+(g+b.G-1)%b.G] })},
		{"equal weights for all candidates", with(func(int, int) float64 { return 1 })},
		{"the weights of the first half of the queries", with(func(i, g int) float64 { return w[i*b.G+g] * float64(min(1, (n-1-i)*2/n)) })},
	}
}
