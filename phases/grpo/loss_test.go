package grpo

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/objective"
	"fulcrum/rewardutil/advantage"
	"fulcrum/rewardutil/control"
	"fulcrum/selector"
)

// lossFixture is a case of testdata/grpo_loss.json: log-probabilities of the tokens of each completion under
// the new, old and reference policy, and what a public PyTorch implementation makes of them: k3, ε = 0.2,
// β = 0.04, all tokens of the batch averaged together. Written from the fixtures grpo_unit, grpo_init and
// grpo_mid of the Qwen2.5-VL specification; tokens with mask 0 are left out.
type lossFixture struct {
	Name       string
	Groups     int
	GroupSize  int `json:"group_size"`
	Rewards    []float64
	Sample     lossWant
	Population lossWant
	Rows       []lossRow
}

type lossRow struct {
	New, Old, Ref, Ratio []float64
	GradSample           []float64 `json:"grad_sample"`
	GradPopulation       []float64 `json:"grad_population"`
	Weights              []float64 `json:"-"` // of the surrogate; nil: 1
}

type lossWant struct {
	Loss            float64
	PolicyLoss      float64 `json:"policy_loss"`
	KL              float64
	ClippedFraction float64 `json:"clipped_fraction"`
	PerSequence     float64 `json:"loss_mean_per_sequence"` // 0 where not given
	Advantages      []float64
}

// scripted is a policy whose only parameters are the log-probabilities of one batch.
type scripted struct {
	selector.Policy
	params *torchx.Params
}

func newScripted(logp []float64) scripted {
	p := torchx.NewParams([]torchx.Spec{{Name: "logp", Shape: []int{len(logp)}}}, "cpu")
	p.SetValues(objective.Rounded(logp))
	return scripted{params: p}
}

func (s scripted) Params() *torchx.Params { return s.params }

// Forward returns them; queries are numbered by their place in the batch.
func (s scripted) Forward(b *selector.Batch, _ selector.ForwardOptions) selector.Output {
	n := len(b.Valid) * b.T
	start := int(b.Queries[0]) * b.G * b.T
	logp := torchx.Reshape(torchx.Narrow(s.params.Get("logp"), 0, start, n), b.B(), b.G, b.T)
	return selector.Output{LogP: torchx.Mul(logp, objective.Mask(logp, b))}
}

// scriptedGRPO is a GRPO phase in the middle of a step: a batch in hand whose old and reference
// log-probabilities are known.
func scriptedGRPO(t *testing.T, fx lossFixture, std string, change func(*Options)) *Phase {
	t.Helper()
	steps := 1
	for _, row := range fx.Rows {
		steps = max(steps, len(row.New))
	}
	queries := make([]int, fx.Groups)
	for i := range queries {
		queries[i] = i
	}
	b := selector.NewBatch(nil, queries, fx.GroupSize, steps)
	logp, old, ref := make([]float64, len(b.Mask)), make([]float64, len(b.Mask)), make([]float64, len(b.Mask))
	for at, row := range fx.Rows {
		b.Set(at/b.G, at%b.G, make([]int64, len(row.New)), fx.Rewards[at])
		copy(logp[at*steps:], row.New)
		copy(old[at*steps:], row.Old)
		copy(ref[at*steps:], row.Ref)
	}
	opt := DefaultOptions()
	opt.Ratio, opt.Loss, opt.KL.Estimator, opt.KL.Beta, opt.KL.Controller = "token", "bnpo", "k3", 0.04, "fixed"
	opt.Advantage.Std, opt.Advantage.MinStd, opt.Advantage.Clip = std, 0, math.Inf(1)
	if change != nil {
		change(&opt)
	}
	if err := opt.Validate(); err != nil {
		t.Fatal(err)
	}
	policy := newScripted(logp)
	t.Cleanup(policy.params.Free)
	chosen, err := opt.choose()
	if err != nil {
		t.Fatal(err)
	}
	g := &Phase{name: "grpo", opt: opt, chosen: chosen, env: &phases.Env{Policy: policy}, reference: &frozenPolicy{Policy: policy}}
	if g.beta, err = control.NewKLController(opt.KL); err != nil {
		t.Fatal(err)
	}
	adv, _ := advantage.Compute(b.Rewards, b.Valid, b.B(), b.G, opt.Advantage)
	g.rollout = &rollout{batch: b, index: make([]int, len(adv)), adv: adv, known: true, refKnown: true,
		counts:      Counts{Candidates: b.NumValid(), Tokens: objective.CountSteps(b), Longest: b.T},
		temperature: 1, old: objective.Rounded(old), ref: objective.Rounded(ref)}
	if opt.Ratio == "sequence" {
		g.rollout.old, g.rollout.ref = sumRows(g.rollout.old, steps), sumRows(g.rollout.ref, steps)
	}
	return g
}

func sumRows(x []float32, steps int) []float32 {
	out := make([]float32, len(x)/steps)
	for i, v := range x {
		out[i/steps] += v
	}
	return out
}

// pass makes the backward passes of one step and returns its metrics, the loss and the gradient with respect
// to the log-probabilities.
func (g *Phase) pass(t *testing.T) (m phases.Metrics, loss float64, gradient []float64) {
	t.Helper()
	defer torchx.Scope()()
	params := g.env.Policy.Params()
	params.ZeroGrad()
	up, of := phases.Inputs{}, phases.Stepped[*rollout]{Batch: g.rollout}
	var parts []*inputs
	n := g.rollout.batch.B()
	size := option.Or(g.opt.MicroBatch, n)
	for from := 0; from < n; from += size {
		span := phases.Span{From: from, To: min(from+size, n)}
		if part, ok := g.Inputs(g.rollout, span, &up); ok {
			parts, of.Spans = append(parts, part), append(of.Spans, span)
		}
	}
	up.Upload.Send(params.Flat())
	for _, part := range parts {
		share, read := g.Loss(part)
		torchx.Backward(share)
		loss += torchx.Read(share)[0][0]
		of.Read = append(of.Read, torchx.Read(list.Map(read, detached)...))
	}
	return g.measure(of).Row(), loss, params.Grad().Floats()
}

func detached(x torchx.Tensor) torchx.Tensor {
	if x.Nil() {
		return x
	}
	return torchx.Detach(x)
}

func lossFixtures(t *testing.T) []lossFixture {
	t.Helper()
	text, err := os.ReadFile("testdata/grpo_loss.json")
	if err != nil {
		t.Fatal(err)
	}
	var fixtures []lossFixture
	if err := json.Unmarshal(text, &fixtures); err != nil || len(fixtures) != 7 {
		t.Fatalf("%d cases, want 7: %v", len(fixtures), err)
	}
	return fixtures
}

// TestGRPOLossFixtures: losses, ratios, clipped shares and gradients are those of the public
// implementation. 2e-6: its sums are float32 over at most 42 terms of order one.
func TestGRPOLossFixtures(t *testing.T) {
	torchx.Attach(1)
	for _, fx := range lossFixtures(t) {
		for _, std := range []string{"sample", "population"} {
			want := fx.Sample
			if std == "population" {
				want = fx.Population
			}
			t.Run(fx.Name+"/"+std, func(t *testing.T) {
				g := scriptedGRPO(t, fx, std, nil)
				golden.Close(t, g.rollout.adv, want.Advantages, 1e-6)
				m, loss, gradient := g.pass(t)
				golden.Close(t, []float64{loss, m["ppo_loss"].(float64), m["kl_loss"].(float64) / 0.04}, []float64{want.Loss, want.PolicyLoss, want.KL},
					2e-6)
				active := m["clip_fraction_low"].(float64) + m["clip_fraction_high"].(float64)
				golden.Close(t, []float64{active}, []float64{want.ClippedFraction}, 1e-6)
				steps, ratios, n := g.rollout.batch.T, 0.0, 0
				for at, row := range fx.Rows {
					grad := row.GradSample
					if std == "population" {
						grad = row.GradPopulation
					}
					if grad != nil {
						golden.Close(t, gradient[at*steps:at*steps+len(grad)], grad, 2e-6)
					}
					for _, r := range row.Ratio {
						ratios, n = ratios+r, n+1
					}
				}
				if n > 0 {
					golden.Close(t, []float64{m["mean_ratio"].(float64)}, []float64{ratios / float64(n)}, 1e-6)
				}
				if want.PerSequence != 0 {
					per := scriptedGRPO(t, fx, std, func(o *Options) { o.Loss = "grpo" })
					_, loss, _ := per.pass(t)
					golden.Close(t, []float64{loss}, []float64{want.PerSequence}, 2e-6)
				}
			})
		}
	}
}

// textbookLoss is the table of loss.go in float64, term by term.
func textbookLoss(g *Phase, fx lossFixture) float64 {
	o := g.opt
	low, high := o.Clip.sides()
	cut := func(d float64) float64 { return math.Max(-o.MaxLogRatio, math.Min(o.MaxLogRatio, d)) }
	kl := func(r float64) float64 {
		switch o.KL.Estimator {
		case "k1":
			return r
		case "k2":
			return r * r / 2
		case "k3_reversed":
			return math.Exp(cut(r)) - 1 - cut(r)
		}
		return math.Exp(-cut(r)) - 1 + cut(r)
	}
	tokens, longest, candidates := 0, 0, float64(len(fx.Rows))
	for _, row := range fx.Rows {
		tokens += len(row.New)
		longest = max(longest, len(row.New))
	}
	if g.env.Data.Shots > 0 {
		longest = g.env.Data.Shots
	}
	beta := o.KL.Beta
	if o.Loss == "ppo_clip" {
		beta = 0
	}
	term := func(d, r, a float64, i, t int) float64 {
		ratio, weight := math.Exp(cut(d)), 1.0
		if w := fx.Rows[i].Weights; w != nil {
			weight = w[t]
		}
		return -weight*math.Min(ratio*a, math.Max(1-low, math.Min(1+high, ratio))*a) + beta*kl(r)
	}
	total := 0.0
	for i, row := range fx.Rows {
		a, d, r := g.rollout.adv[i], 0.0, 0.0
		for t := range row.New {
			d += row.New[t] - row.Old[t]
			r += row.New[t] - row.Ref[t]
		}
		n := float64(len(row.New))
		if o.Ratio == "sequence" {
			if o.Loss == "gspo" && n > 0 {
				d /= n
			}
			total += term(d, r, a, i, 0) / candidates
			continue
		}
		for t := range row.New {
			di := row.New[t] - row.Old[t]
			if o.Loss == "gspo" {
				di = d / n
			}
			x := term(di, row.New[t]-row.Ref[t], a, i, t)
			switch o.Loss {
			case "bnpo", "dapo":
				total += x / float64(tokens)
			case "dr_grpo":
				total += x / (candidates * float64(longest))
			default:
				total += x / n / candidates
			}
		}
	}
	return total
}

// TestGRPOLosses: every loss with every level of ratio and estimator is its definition, its gradient is that
// of the definition by central differences, and micro-batches change neither.
func TestGRPOLosses(t *testing.T) {
	torchx.Attach(1)
	fixtures := lossFixtures(t)
	two, wide := fixtures[1], fixtures[3] // both of two groups
	n := 0
	for _, ratio := range []string{"sequence", "token"} {
		for _, loss := range []string{"grpo", "bnpo", "dapo", "dr_grpo", "gspo", "ppo_clip"} {
			for _, estimator := range []string{"k1", "k2", "k3", "k3_reversed"} {
				change := func(o *Options) {
					o.Ratio, o.Loss, o.KL.Estimator, o.KL.Beta = ratio, loss, estimator, 0.3
					o.Clip.EpsilonHigh, o.MaxLogRatio = new(0.28), 1.5
				}
				o := DefaultOptions()
				if change(&o); o.Validate() != nil {
					continue // token means of sequence ratios
				}
				n++
				for _, fx := range []lossFixture{two, wide} {
					name := fmt.Sprintf("%s/%s/%s/%s", ratio, loss, estimator, fx.Name)
					g := scriptedGRPO(t, fx, "sample", change)
					if loss == "dr_grpo" && fx.Name == wide.Name {
						g.env.Data.Shots, g.rollout.counts.Longest = 20, 20
					}
					_, got, gradient := g.pass(t)
					// 5e-6: float32 sums of up to 42 terms of order one, ratios of up to e^1.5.
					if want := textbookLoss(g, fx); math.Abs(got-want) > 5e-6 {
						t.Errorf("%s: loss %.9g, want %.9g", name, got, want)
					}
					const h = 1e-6
					for i, row := range fx.Rows {
						for s := range row.New {
							x := row.New[s]
							row.New[s] = x + h
							up := textbookLoss(g, fx)
							row.New[s] = x - h
							down := textbookLoss(g, fx)
							row.New[s] = x
							if want := (up - down) / (2 * h); math.Abs(gradient[i*g.rollout.batch.T+s]-want) > 2e-5 {
								t.Errorf("%s: gradient of completion %d token %d is %.7g, want %.7g", name, i, s, gradient[i*g.rollout.batch.T+s], want)
							}
						}
					}
					g.opt.MicroBatch = new(1)
					_, parts, partly := g.pass(t)
					if math.Abs(parts-got) > 1e-6 || !slices.EqualFunc(partly, gradient, func(a, b float64) bool { return math.Abs(a-b) < 1e-6 }) {
						t.Errorf("%s: loss %.9g in micro-batches, want %.9g; or gradients differ", name, parts, got)
					}
				}
			}
		}
	}
	if n != 4*(3+6) {
		t.Errorf("%d combinations, want %d", n, 4*(3+6))
	}
}

// TestMaskTruncated: a truncated completion has no gradient, stays in the baseline, and counts where the
// loss is a mean over completions, not where it is one over tokens.
func TestMaskTruncated(t *testing.T) {
	torchx.Attach(1)
	fx := lossFixtures(t)[1]
	for _, loss := range []string{"grpo", "dapo"} {
		g := scriptedGRPO(t, fx, "sample", func(o *Options) { o.Loss, o.MaskTruncated = loss, true })
		adv := slices.Clone(g.rollout.adv)
		b := g.rollout.batch
		b.Truncated = make([]bool, len(b.Valid))
		b.Truncated[2], b.Truncated[5] = true, true
		dropTruncated(b)
		g.rollout.counts.Tokens = objective.CountSteps(b)
		_, got, gradient := g.pass(t)
		for _, at := range []int{2, 5} {
			if slices.Max(gradient[at*b.T:(at+1)*b.T]) != 0 || slices.Min(gradient[at*b.T:(at+1)*b.T]) != 0 {
				t.Errorf("%s: truncated completion %d has a gradient", loss, at)
			}
		}
		if !slices.Equal(adv, g.rollout.adv) {
			t.Errorf("%s: the advantages moved", loss)
		}
		left, rest := fx, 0
		left.Rows = nil
		kept := &Phase{opt: g.opt, env: g.env, rollout: &rollout{}}
		for i, row := range fx.Rows {
			if i != 2 && i != 5 {
				left.Rows = append(left.Rows, row)
				kept.rollout.adv = append(kept.rollout.adv, adv[i])
			} else {
				rest++
			}
		}
		want := textbookLoss(kept, left)
		if loss == "grpo" {
			want *= float64(len(left.Rows)) / float64(len(left.Rows)+rest)
		}
		if math.Abs(got-want) > 5e-6 {
			t.Errorf("%s: loss %.9g, want %.9g", loss, got, want)
		}
	}
}

// TestOnlyItsOwnLossesAreFused: a loss that does not say so is never computed by the kernel, and none says so with another formula.
func TestOnlyItsOwnLossesAreFused(t *testing.T) {
	opt, grpo, k3 := DefaultOptions(), Losses()[0], Estimators()[3]
	for _, tc := range []struct {
		loss Loss
		want bool
	}{{grpo, true}, {Losses()[5], true}, {Loss{Name: "toy", Divisor: perCandidate}, false}} {
		if got := (chosen{loss: tc.loss, kl: k3}).fused(opt); got != tc.want {
			t.Errorf("%s: fused %v, want %v", tc.loss.Name, got, tc.want)
		}
	}
	for _, l := range Losses() {
		if l.Kernel && (l.EveryToken || l.MeanRatio) {
			t.Errorf("%s: the kernel has one ratio a candidate, and not the mean", l.Name)
		}
	}
	for _, change := range []func(*Options){func(o *Options) { o.Ratio = "token" }, func(o *Options) { o.EntropyWeight = 0.1 },
		func(o *Options) { o.Correction.Kind = "mask" }} {
		o := DefaultOptions()
		if change(&o); (chosen{loss: grpo, kl: k3}).fused(o) {
			t.Errorf("fused with %+v", o)
		}
	}
	if (chosen{loss: grpo, kl: Estimator{Name: "toy", Sampled: k3.Sampled}}).fused(opt) {
		t.Error("fused with an estimator that the kernel does not have")
	}
}
