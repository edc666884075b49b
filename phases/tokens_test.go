package phases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/golden"
	"fulcrum/internal/torchx"
	"fulcrum/phases/doctor"
	"fulcrum/rewardutil/advantage"
	"fulcrum/rewardutil/schedule"
	"fulcrum/selector"
)

// A tiny token policy: the next token's logits are a row for the kind of question plus a row for the token
// before it. Token 0 ends a completion. The questions of four kinds want their kind's token twice, then the
// end.
const (
	toyKinds = 4
	toyVocab = 6
	toyMost  = 5 // tokens of a completion
)

type tokenSource struct {
	name string
	ids  []int64
}

func (s *tokenSource) Name() string   { return s.name }
func (s *tokenSource) Len() int       { return len(s.ids) }
func (s *tokenSource) ID(i int) int64 { return s.ids[i] }
func (s *tokenSource) kind(i int) int { return int(s.ids[i]) % toyKinds }
func (s *tokenSource) CanScore() bool { return true }

func (s *tokenSource) Recorded(queries []int) *selector.Batch {
	b := selector.NewBatch(s, queries, 2, 3)
	b.Truncated = make([]bool, len(b.Valid))
	for i, q := range queries {
		own := int64(s.kind(q) + 1)
		b.Set(i, 0, []int64{own, own, 0}, 1)
		b.Set(i, 1, []int64{own%toyKinds + 1, 0}, 0)
	}
	return b
}

// Score: 0.5 for each of the first two tokens that is right, 0.5 for ending after them.
func (s *tokenSource) Score(b *selector.Batch) error {
	right, ended := make([]float64, len(b.Valid)), make([]float64, len(b.Valid))
	b.Texts = make([]string, len(b.Valid))
	for at, ok := range b.Valid {
		if !ok {
			continue
		}
		tokens := b.Scored(at/b.G, at%b.G)
		for t, x := range tokens {
			if t < 2 && x == int64(s.kind(b.Queries[at/b.G])+1) {
				right[at] += 0.5
			}
		}
		if len(tokens) == 3 && tokens[2] == 0 {
			ended[at] = 1
		}
		b.Rewards[at] = right[at] + 0.5*ended[at]
		b.Texts[at] = strings.Trim(fmt.Sprint(tokens), "[]")
	}
	b.Terms = map[string][]float64{"right": right, "ended": ended}
	return nil
}

func (s *tokenSource) Accuracy(b *selector.Batch) ([]float64, error) {
	err := s.Score(b)
	return b.Terms["right"], err
}

type tokenPolicy struct {
	params   *torchx.Params
	forwards *int // of this policy and its clones' counters are their own
}

func newTokenPolicy(t *testing.T) *tokenPolicy {
	t.Helper()
	torchx.Attach(1)
	p := &tokenPolicy{torchx.NewParams([]torchx.Spec{{Name: "kind", Shape: []int{toyKinds, toyVocab}}, {Name: "before", Shape: []int{toyVocab + 1, toyVocab}}}, "cpu"), new(int)}
	r := rand.New(rand.NewPCG(3, 3))
	v := make([]float32, p.params.Numel())
	for i := range v {
		v[i] = float32(0.3 * r.NormFloat64())
	}
	p.params.SetValues(v)
	t.Cleanup(p.Free)
	return p
}

func (p *tokenPolicy) Params() *torchx.Params      { return p.params }
func (p *tokenPolicy) Metadata() map[string]string { return map[string]string{"kind": "toy"} }
func (p *tokenPolicy) Free()                       { p.params.Free() }

func (p *tokenPolicy) Clone() selector.Policy {
	specs := []torchx.Spec{}
	for _, name := range p.params.Names() {
		specs = append(specs, torchx.Spec{Name: name, Shape: p.params.Shape(name)})
	}
	c := &tokenPolicy{torchx.NewParams(specs, "cpu"), new(int)}
	c.params.CopyFrom(p.params)
	return c
}

// dist is the log-distribution of every step [B, G, T, V].
func (p *tokenPolicy) dist(b *selector.Batch, temperature float64) torchx.Tensor {
	src := b.Source.(*tokenSource)
	kinds, before := make([]int64, len(b.Actions)), make([]int64, len(b.Actions))
	for at := range b.Actions {
		kinds[at] = int64(src.kind(b.Queries[at/(b.G*b.T)]))
		before[at] = toyVocab
		if at%b.T > 0 {
			before[at] = b.Actions[at-1]
		}
	}
	shape := []int{b.B(), b.G, b.T}
	logits := torchx.Add(torchx.Embedding(p.params.Get("kind"), torchx.From(kinds, shape...)), torchx.Embedding(p.params.Get("before"), torchx.From(before, shape...)))
	if temperature == 0 {
		temperature = 1
	}
	return torchx.LogSoftmax(torchx.Scale(logits, 1/temperature), 3)
}

func (p *tokenPolicy) Forward(b *selector.Batch, opt selector.ForwardOptions) selector.Output {
	if opt.Dist || !opt.Reference.Nil() {
		panic("a token policy was asked for distributions")
	}
	*p.forwards++
	dist := p.dist(b, opt.Temperature)
	picked := torchx.Squeeze(torchx.Gather(dist, 3, torchx.From(b.Actions, b.B(), b.G, b.T, 1)), 3)
	entropy := torchx.Neg(torchx.Sum(torchx.Mul(torchx.Exp(dist), dist), 3))
	if !opt.Entropy {
		entropy = torchx.Detach(entropy)
	}
	return selector.Output{LogP: torchx.Mul(picked, maskTensor(picked, b)), Entropy: entropy}
}

// KL implements selector.TokenPolicy.
func (p *tokenPolicy) KL(b *selector.Batch, reference selector.Policy) torchx.Tensor {
	d, r := p.dist(b, 1), reference.(*tokenPolicy).dist(b, 1)
	return torchx.Sum(torchx.Mul(torchx.Exp(d), torchx.Sub(d, r)), 3)
}

// HalfPrecision implements selector.TokenPolicy.
func (p *tokenPolicy) HalfPrecision() bool { return false }

func (p *tokenPolicy) Sample(s selector.Source, queries []int, g, t int, temperature float64, seed uint64) *selector.Batch {
	r := rand.New(rand.NewPCG(seed, 1))
	return p.generate(s, queries, g, t, func(logits []float64) int {
		total, most := 0.0, slices.Max(logits)
		for i, x := range logits {
			logits[i] = math.Exp((x - most) / temperature)
			total += logits[i]
		}
		u := r.Float64() * total
		for i, x := range logits {
			if u -= x; u < 0 {
				return i
			}
		}
		return len(logits) - 1
	})
}

func (p *tokenPolicy) Decode(s selector.Source, queries []int, t, _ int) (*selector.Batch, []float64) {
	return p.generate(s, queries, 1, t, func(logits []float64) int { return slices.Index(logits, slices.Max(logits)) }), make([]float64, len(queries))
}

// generate makes batches as wide as their longest completion.
func (p *tokenPolicy) generate(s selector.Source, queries []int, g, t int, choose func([]float64) int) *selector.Batch {
	kind, before := p.params.Get("kind").Floats(), p.params.Get("before").Floats()
	var all [][]int64
	longest := 1
	for _, q := range queries {
		for range g {
			var tokens []int64
			last := toyVocab
			for len(tokens) < t && last != 0 {
				logits := make([]float64, toyVocab)
				for v := range logits {
					logits[v] = kind[s.(*tokenSource).kind(q)*toyVocab+v] + before[last*toyVocab+v]
				}
				last = choose(logits)
				tokens = append(tokens, int64(last))
			}
			all = append(all, tokens)
			longest = max(longest, len(tokens))
		}
	}
	b := selector.NewBatch(s, queries, g, longest)
	b.Truncated = make([]bool, len(b.Valid))
	for at, tokens := range all {
		b.Set(at/g, at%g, tokens, 0)
		b.Truncated[at] = tokens[len(tokens)-1] != 0
	}
	return b
}

var _ selector.TokenPolicy = (*tokenPolicy)(nil)

func toyQuestions(name string, first, n int) *tokenSource {
	s := &tokenSource{name: name}
	for i := range n {
		s.ids = append(s.ids, int64(first+i))
	}
	return s
}

func tokenEnv(t *testing.T, rec Recorder, dir string) *Env {
	p := newTokenPolicy(t)
	initial := p.Clone()
	t.Cleanup(initial.Free)
	return &Env{Policy: p, Initial: initial, Seed: 4, Rec: rec, Dir: dir, ConfigHash: "hash", Data: Data{
		Val: toyQuestions("val", 100, 10), Shots: toyMost, Shuffle: true, EvalBatch: 4, Advantage: advantage.DefaultOptions(),
		ValLoss: ValLoss{Temperature: 0.1, PerToken: true}}}
}

// tokenGRPO is online GRPO on the toy questions.
func tokenGRPO(change func(*GRPOOptions)) *GRPO {
	opt := DefaultGRPOOptions()
	opt.Epochs, opt.LR, opt.Rollout, opt.OldPolicy, opt.Ratio, opt.Loss = 2, 0.05, "online", "batch", "token", "dapo"
	opt.KL.Estimator, opt.KL.Beta, opt.GroupSize = "k3", 0.01, 6
	if change != nil {
		change(&opt)
	}
	return NewGRPO("grpo", opt, DefaultOptimOptions(), schedule.LROptions{Name: "constant"}, toyQuestions("train", 0, 24), 8)
}

func tokenRCE(change func(*RCEOptions)) *RCE {
	opt := DefaultRCEOptions()
	opt.Epochs, opt.LR, opt.Rollout, opt.Rewards, opt.Average = 2, 0.05, "online", "raw", "token"
	opt.Temperature.Start, opt.Temperature.End = 0.5, 0.1
	if change != nil {
		change(&opt)
	}
	return NewRCE(opt, DefaultOptimOptions(), schedule.LROptions{Name: "constant"}, toyQuestions("train", 0, 24), 8, 0)
}

func tokenSFT() *RCE {
	opt := DefaultSFTOptions()
	opt.Epochs, opt.LR, opt.Average = 1, 0.05, "token"
	return NewSFT(opt, DefaultOptimOptions(), schedule.LROptions{Name: "constant"}, toyQuestions("train", 0, 24), 8, 0)
}

// tokenPlan has every phase and every kind of state that token policies have.
func tokenPlan() Plan {
	return Plan{Checkpoint: DefaultCheckpointOptions(), Doctor: nosy(), Phases: []Phase{tokenSFT(), tokenRCE(nil), tokenGRPO(func(o *GRPOOptions) {
		o.NumIterations, o.MicroBatch, o.KL.SyncSteps, o.KL.SyncMix, o.ZeroVariance = 4, intp(3), intp(5), 0.6, "resample"
		o.Completions.EverySteps, o.EntropyWeight, o.KL.Reference = intp(4), 0.01, "init"
	})}}
}

// steps returns the metrics of the step rows of a phase.
func (m *memory) steps(t *testing.T, phase string) []map[string]any {
	t.Helper()
	var out []map[string]any
	for _, row := range m.rows {
		if strings.HasPrefix(row, "step "+phase+" ") {
			f := map[string]any{}
			if err := json.Unmarshal([]byte(row[strings.Index(row, "{"):]), &f); err != nil {
				t.Fatal(err)
			}
			out = append(out, f)
		}
	}
	return out
}

// TestTokenPhasesLearn: SFT on references, RCE on samples and on recorded completions, and GRPO under every
// loss, ratio, estimator and number of passes raise the reward of held-out questions.
func TestTokenPhasesLearn(t *testing.T) {
	long := func(o *GRPOOptions) { o.Epochs = 12 }
	phases := map[string]Phase{"rce online": tokenRCE(func(o *RCEOptions) { o.Epochs = 12 }),
		"rce recorded": tokenRCE(func(o *RCEOptions) { o.Epochs, o.Rollout, o.MicroBatch = 12, "offline", intp(3) }),
		"rce sequence": tokenRCE(func(o *RCEOptions) { o.Epochs, o.Average = 12, "sequence" }),
		"leave one out, filtered": tokenGRPO(func(o *GRPOOptions) {
			long(o)
			o.Advantage.Method, o.ZeroVariance = "leave_one_out", "filter"
		}),
		"early top 2": tokenGRPO(func(o *GRPOOptions) { long(o); o.Curriculum.EarlyEpochs, o.Curriculum.EarlyTopK = 4, 2 }),
		"recorded groups": tokenGRPO(func(o *GRPOOptions) {
			long(o)
			o.Rollout, o.OldPolicy = "offline", "epoch_start"
		}),
	}
	for _, ratio := range []string{"sequence", "token"} {
		for _, loss := range []string{"grpo", "bnpo", "dapo", "dr_grpo", "gspo", "ppo_clip"} {
			for i, estimator := range []string{"k1", "k2", "k3"} {
				if testing.Short() && i != len(loss)%3 {
					continue // one estimator for each loss
				}
				change := func(o *GRPOOptions) {
					long(o)
					o.Ratio, o.Loss, o.KL.Estimator, o.NumIterations = ratio, loss, estimator, 1+3*(i%2)
					o.MaskTruncated = i == 2
				}
				o := DefaultGRPOOptions()
				if change(&o); o.Validate() == nil || o.OldPolicy != "batch" && (ratio == "token" || loss == "grpo" || loss == "gspo" || loss == "ppo_clip") {
					phases[fmt.Sprintf("%s %s %s", ratio, loss, estimator)] = tokenGRPO(change)
				}
			}
		}
	}
	want := 6 + 3*(3+6)
	if testing.Short() {
		want = 6 + 3 + 6
	}
	if len(phases) != want {
		t.Fatalf("%d phases, want %d", len(phases), want)
	}
	checkpoint := DefaultCheckpointOptions()
	checkpoint.EveryEpochs = 100
	for name, phase := range phases {
		t.Run(name, func(t *testing.T) {
			rec := &memory{}
			env := tokenEnv(t, rec, t.TempDir())
			before, err := Validate(env.Initial, env.Initial, env.Data.Val, env.Data)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Run(context.Background(), Plan{Checkpoint: checkpoint, Phases: []Phase{phase}}, env, nil); err != nil {
				t.Fatal(err)
			}
			after, err := Validate(env.Policy, env.Initial, env.Data.Val, env.Data)
			if err != nil {
				t.Fatal(err)
			}
			if after.Reward < before.Reward+0.4 || after.KL <= 0 || before.KL != 0 {
				t.Errorf("reward %.3f → %.3f, KL %.3g → %.3g: want a gain of at least 0.4, and a KL from 0", before.Reward, after.Reward, before.KL, after.KL)
			}
		})
	}
}

// TestEpochsWithoutSignalAreReported: sampled groups whose rewards never differ teach nothing, and the run says so.
func TestEpochsWithoutSignalAreReported(t *testing.T) {
	for precision, want := range map[float64]int{10: 1, 0: 0} { // rewards lie within 1.5 of each other
		rec := &memory{}
		phase := tokenGRPO(func(o *GRPOOptions) { o.Epochs, o.Advantage.Precision = 7, precision }) // 21 steps: a shorter phase is only warned
		_, err := Run(context.Background(), Plan{Checkpoint: DefaultCheckpointOptions(), Doctor: doctor.DefaultOptions(), Phases: []Phase{phase}}, tokenEnv(t, rec, t.TempDir()), nil)
		var stop *doctor.StopError
		if errors.As(err, &stop) != (want > 0) || want == 0 && err != nil {
			t.Fatalf("precision %v: error %v", precision, err)
		}
		found := 0
		for _, row := range rec.rows {
			if strings.HasPrefix(row, "event ") && strings.Contains(row, "no_signal") {
				found++
			}
		}
		if found != want {
			t.Errorf("precision %v: %d findings, want %d:\n%s", precision, found, want, strings.Join(rec.rows, "\n"))
		}
	}
}

// TestTokenResumeIsExact stops the plan of all phases at every step.
func TestTokenResumeIsExact(t *testing.T) {
	resumesExactlyIn(t, func() Plan { return tokenPlan() }, 3*(1+2+2*4), func(rec Recorder, dir string) *Env { return tokenEnv(t, rec, dir) })
}

// TestTokenMetrics: a run's rows carry what a reader of token GRPO looks for, and consistent numbers.
func TestTokenMetrics(t *testing.T) {
	rec := &memory{}
	if _, err := Run(context.Background(), tokenPlan(), tokenEnv(t, rec, t.TempDir()), nil); err != nil {
		t.Fatal(err)
	}
	steps := rec.steps(t, "grpo")
	if len(steps) != 2*3*4 {
		t.Fatalf("%d steps", len(steps))
	}
	for i, m := range steps {
		get := func(name string) float64 {
			x, ok := m[name].(float64)
			if !ok {
				t.Fatalf("step %d: no %s", i+1, name)
			}
			return x
		}
		if first := i%4 == 0; first != (get("mean_ratio") == 1) {
			t.Errorf("step %d: mean ratio %v; the first pass over a batch, and no other, has exactly 1", i+1, get("mean_ratio"))
		}
		if get("completion_length_min") > get("completion_length") || get("completion_length") > get("completion_length_max") || get("completion_length_max") > toyMost {
			t.Errorf("step %d: lengths %v", i+1, m)
		}
		if d := get("reward_right") + 0.5*get("reward_ended") - get("mean_reward"); math.Abs(d) > 1e-12 {
			t.Errorf("step %d: the terms are off the reward by %g", i+1, d)
		}
		if d := get("kl_per_token")*get("tokens") - get("kl")*get("items"); math.Abs(d) > 1e-9 {
			t.Errorf("step %d: KL per token and per sequence differ by %g", i+1, d)
		}
		for _, name := range []string{"entropy", "reward_std", "truncated_share", "reward_right_std", "clip_fraction_low", "clip_fraction_high", "resampled_groups", "kl_loss"} {
			get(name)
		}
	}
	var epoch map[string]any
	for _, row := range rec.rows {
		if strings.HasPrefix(row, "epoch grpo 2 ") {
			if err := json.Unmarshal([]byte(row[strings.Index(row, "{"):]), &epoch); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range []string{"val_loss", "val_kl", "val_reward", "val_reward_right", "val_reward_ended", "val_completion_length", "val_truncated_share", "val_accuracy"} {
		if _, ok := epoch[name].(float64); !ok {
			t.Errorf("the epoch has no %s", name)
		}
	}
	// rce: 2 epochs; grpo: its first pass of steps 1 and 13, and every fourth step is a first pass.
	if n := 2*2*8 + 6*2*6; len(rec.completions) != n {
		t.Errorf("%d completions were kept, want %d", len(rec.completions), n)
	}
}

// TestPassesKeepLogProbs: of four passes over a batch only the first asks the reference.
func TestPassesKeepLogProbs(t *testing.T) {
	env := tokenEnv(t, &memory{}, t.TempDir())
	phase := tokenGRPO(func(o *GRPOOptions) { o.NumIterations, o.Epochs = 4, 1 })
	*env.Initial.(*tokenPolicy).forwards = 0
	if err := phase.Begin(env, 12); err != nil {
		t.Fatal(err)
	}
	defer phase.End()
	reference := phase.Reference().(*tokenPolicy)
	want := env.Policy.Clone() // the policy that sampled
	defer want.Free()
	for pass := range 4 {
		if _, err := phase.Step(context.Background(), 1, pass, pass, []int{0, 1, 2}); err != nil {
			t.Fatal(err)
		}
		if *reference.forwards != 1 {
			t.Errorf("after pass %d the reference was asked %d times", pass, *reference.forwards)
		}
		end := torchx.Scope()
		logp := want.Forward(phase.hand.batch, selector.ForwardOptions{}).LogP.Floats()
		end()
		for _, kept := range [][]float32{phase.hand.old, phase.hand.ref} { // both start as the policy
			if !slices.Equal(kept, rounded(logp)) {
				t.Fatalf("pass %d: kept %v, want %v", pass, kept, logp)
			}
		}
	}
}

// TestRCELoss: the losses of SFT and RCE are their definitions, for both averages, in one piece or in several.
func TestRCELoss(t *testing.T) {
	queries := []int{0, 1, 2, 3, 6}
	for _, average := range []string{"sequence", "token"} {
		for _, top1 := range []bool{false, true} {
			for _, micro := range []*int{nil, intp(2)} {
				env := tokenEnv(t, nil, t.TempDir())
				r := tokenRCE(func(o *RCEOptions) {
					o.Rollout, o.Average, o.Top1Only, o.MicroBatch = "offline", average, top1, micro
				})
				b := r.src.Recorded(queries)
				end := torchx.Scope()
				logp := env.Policy.Forward(b, selector.ForwardOptions{}).LogP.Floats()
				end()
				good := 1 / (1 + math.Exp(-2)) // rewards 1 and 0 at the first step's τ of 0.5
				if top1 {
					good = 1
				}
				loss, tokens := 0.0, 0.0
				for at, x := range logp {
					w := good
					if at/b.T%2 == 1 {
						w = 1 - good
					}
					loss -= w * x
					tokens += w * float64(b.Mask[at])
				}
				want := loss / float64(len(queries))
				if average == "token" {
					want = loss / tokens
				}
				if err := r.Begin(env, 10); err != nil {
					t.Fatal(err)
				}
				m, err := r.Step(context.Background(), 1, 0, 0, queries)
				if err != nil {
					t.Fatal(err)
				}
				r.End()
				if got := m["loss"].(float64); math.Abs(got-want) > 1e-6 {
					t.Errorf("average=%s top1=%v micro=%v: loss %.9g, want %.9g", average, top1, micro != nil, got, want)
				}
			}
		}
	}
}

// TestZeroVariance: groups without a signal leave the batch, and others are drawn for them: the same ones
// for the same seed and step.
func TestZeroVariance(t *testing.T) {
	collect := func(mode string, rounds int, step int) (*GRPO, []int) {
		env := tokenEnv(t, nil, t.TempDir())
		env.Policy.Params().Set("before", slices.Repeat([]float32{0}, (toyVocab+1)*toyVocab))
		kind := make([]float32, toyKinds*toyVocab)
		kind[1*toyVocab] = 30 // questions of kind 1 end at once: all rewards are 0
		env.Policy.Params().Set("kind", kind)
		g := tokenGRPO(func(o *GRPOOptions) { o.ZeroVariance, o.MaxResamples = mode, rounds; o.GroupSize = 24 })
		if err := g.Begin(env, 1); err != nil {
			t.Fatal(err)
		}
		if err := g.collect(1, step, []int{0, 1, 5, 9}); err != nil {
			t.Fatal(err)
		}
		g.End2(t)
		return g, g.hand.batch.Queries
	}
	if g, q := collect("keep", 1, 0); !slices.Equal(q, []int{0, 1, 5, 9}) || g.hand.info["signal_share"] != 0.25 {
		t.Errorf("keep: queries %v, signal %v", q, g.hand.info["signal_share"])
	}
	if g, q := collect("filter", 1, 0); !slices.Equal(q, []int{0}) || g.hand.candidates != 24 || g.hand.info["signal_share"] != 0.25 {
		t.Errorf("filter: queries %v, %d candidates, signal %v", q, g.hand.candidates, g.hand.info["signal_share"])
	}
	g, first := collect("resample", 8, 0)
	if len(first) != 4 || first[0] != 0 || g.hand.info["resampled_groups"].(int) < 3 {
		t.Errorf("resample: queries %v after %v more groups", first, g.hand.info["resampled_groups"])
	}
	for _, q := range first[1:] {
		if q%toyKinds == 1 || slices.Contains([]int{0, 1, 5, 9}, q) {
			t.Errorf("resample drew query %d", q)
		}
	}
	if _, again := collect("resample", 8, 0); !slices.Equal(again, first) {
		t.Errorf("resampled %v, then %v", first, again)
	}
	if _, other := collect("resample", 8, 1); slices.Equal(other, first) {
		t.Errorf("another step drew the same %v", other)
	}
}

// End2 ends the phase but leaves the batch in hand to look at.
func (g *GRPO) End2(t *testing.T) {
	hand := g.hand
	g.End()
	g.hand = hand
}

// TestNothingLeft: a batch of which nothing is left makes a step without a gradient.
func TestNothingLeft(t *testing.T) {
	env := tokenEnv(t, nil, t.TempDir())
	kind := make([]float32, toyKinds*toyVocab)
	for k := range toyKinds {
		kind[k*toyVocab] = 60
	}
	env.Policy.Params().Set("kind", kind)
	for _, mode := range []string{"filter", "resample"} {
		g := tokenGRPO(func(o *GRPOOptions) { o.ZeroVariance = mode })
		if err := g.Begin(env, 1); err != nil {
			t.Fatal(err)
		}
		m, err := g.Step(context.Background(), 1, 0, 0, []int{0, 1})
		if err != nil || m["loss"] != 0.0 || m["grad_norm"] != 0.0 || m["items"] != 0 {
			t.Errorf("%s: %v, %v", mode, m, err)
		}
		g.End()
	}
}

// TestTokenStepsFreeTheirTensors: no step leaves a tensor behind.
func TestTokenStepsFreeTheirTensors(t *testing.T) {
	env := tokenEnv(t, nil, t.TempDir())
	for _, phase := range []Phase{tokenRCE(func(o *RCEOptions) { o.MicroBatch = intp(1) }), tokenGRPO(func(o *GRPOOptions) {
		o.NumIterations, o.MicroBatch, o.KL.SyncSteps, o.KL.SyncMix, o.EntropyWeight = 2, intp(1), intp(3), 0.5, 0.01
	})} {
		if err := phase.Begin(env, 100); err != nil {
			t.Fatal(err)
		}
		live := 0
		for step := range 20 {
			if _, err := phase.Step(context.Background(), 1, step, step%phase.Passes(), []int{0, 1, 2}); err != nil {
				t.Fatal(err)
			}
			if step == 1 {
				live = torchx.Live()
			}
		}
		if torchx.Live() != live {
			t.Errorf("%s: %d tensors after 2 steps, %d after 20", phase.Name(), live, torchx.Live())
		}
		phase.End()
	}
}

// TestCompletionsDue: one batch may serve several steps.
func TestCompletionsDue(t *testing.T) {
	for _, tc := range []struct {
		o           CompletionOptions
		first       bool
		step, steps int
		want        bool
	}{
		{CompletionOptions{Groups: 2}, true, 7, 1, true},
		{CompletionOptions{Groups: 2}, false, 0, 1, false},
		{CompletionOptions{EverySteps: intp(1)}, true, 0, 1, false},
		{CompletionOptions{Groups: 1, EverySteps: intp(3)}, false, 3, 1, true},
		{CompletionOptions{Groups: 1, EverySteps: intp(3)}, false, 4, 1, false},
		{CompletionOptions{Groups: 1, EverySteps: intp(3)}, false, 4, 2, false},
		{CompletionOptions{Groups: 1, EverySteps: intp(3)}, false, 4, 4, true},
	} {
		if got := tc.o.due(tc.first, tc.step, tc.steps); got != tc.want {
			t.Errorf("%+v: %v, want %v", tc, got, tc.want)
		}
	}
}

// TestReferenceSync: the reference moves after every so many steps, a share of the way.
func TestReferenceSync(t *testing.T) {
	for _, mix := range []float64{1, 0.6} {
		for _, from := range []string{"init", "phase_start"} {
			env := tokenEnv(t, nil, t.TempDir())
			g := tokenGRPO(func(o *GRPOOptions) { o.KL.Reference, o.KL.SyncSteps, o.KL.SyncMix = from, intp(2), mix })
			if err := g.Begin(env, 3); err != nil {
				t.Fatal(err)
			}
			start := env.Initial.Params().Values()
			want := slices.Clone(start)
			for step := range 4 {
				if _, err := g.Step(context.Background(), 1, step, 0, []int{0, 1, 2, 3}); err != nil {
					t.Fatal(err)
				}
				if step%2 == 1 {
					for i, p := range env.Policy.Params().Values() {
						want[i] = float32(mix)*p + float32(1-mix)*want[i]
					}
				}
				var a, b []float64
				for i, x := range g.Reference().Params().Values() {
					a, b = append(a, float64(x)), append(b, float64(want[i]))
				}
				golden.Close(t, a, b, 1e-6)
			}
			if !slices.Equal(env.Initial.Params().Values(), start) {
				t.Error("the initial policy moved")
			}
			if g.ReferenceName() != "synced" {
				t.Errorf("the reference is called %s", g.ReferenceName())
			}
			g.End()
		}
	}
}

// TestTokenValidation: val_loss is the mean over tokens of the weighted candidates, val_kl that of the greedy
// completions.
func TestTokenValidation(t *testing.T) {
	env := tokenEnv(t, nil, t.TempDir())
	other := newTokenPolicy(t)
	v := other.params.Values()
	for i := range v {
		v[i] += float32(i%5) / 10
	}
	other.params.SetValues(v)
	got, err := Validate(other, env.Initial, env.Data.Val, env.Data)
	if err != nil {
		t.Fatal(err)
	}
	defer torchx.Scope()()
	all := make([]int, env.Data.Val.Len())
	for i := range all {
		all[i] = i
	}
	b := env.Data.Val.Recorded(all)
	logp := other.Forward(b, selector.ForwardOptions{}).LogP.Floats()
	right, wrong := 1/(1+math.Exp(-10)), 1/(1+math.Exp(10)) // rewards 1 and 0 at τ = 0.1
	loss, tokens := 0.0, 0.0
	for at, x := range logp {
		w := right
		if at/b.T%2 == 1 {
			w = wrong
		}
		loss -= w * x
		tokens += w * float64(b.Mask[at])
	}
	golden.Close(t, []float64{got.Loss}, []float64{loss / tokens}, 1e-6)
	greedy, _ := other.Decode(env.Data.Val, all, toyMost, 1)
	kl := torchx.Sum(maskedSum(other.KL(greedy, env.Initial), greedy)).Item() / float64(len(all))
	golden.Close(t, []float64{got.KL}, []float64{kl}, 1e-6)
	if len(got.Texts) != len(all) || got.Texts[0] == "" || len(got.Terms) != 2 {
		t.Errorf("texts %q, terms %v", got.Texts, got.Terms)
	}
}

// TestTokenOptions: what can't be is refused by its key.
func TestTokenOptions(t *testing.T) {
	for _, tc := range []struct {
		change func(*GRPOOptions)
		want   string
	}{
		{func(o *GRPOOptions) { o.Ratio = "sequence" }, "loss: want grpo, gspo or ppo_clip with ratio=sequence: dapo averages over tokens (ratio=token)"},
		{func(o *GRPOOptions) { o.OldPolicy = "phase_start" }, "old_policy: want batch, every_n or epoch_start with rollout=online (the old policy samples the groups and has to follow), got phase_start"},
		{func(o *GRPOOptions) { o.OldPolicy = "init" }, "old_policy: want batch, every_n or epoch_start with rollout=online (the old policy samples the groups and has to follow), got init"},
		{func(o *GRPOOptions) { o.Rollout, o.ZeroVariance = "offline", "resample" }, "zero_variance: want keep or filter with rollout=offline: there are no other groups than the recorded ones"},
		{func(o *GRPOOptions) { o.KL.Estimator = "exact" }, "kl.estimator: want k1, k2 or k3 with a token policy: the exact KL over a vocabulary has no gradient here"},
		{func(o *GRPOOptions) { o.KL.Reference, o.KL.SyncSteps = "epoch_start", intp(3) }, "sync_steps: want null with reference=epoch_start, which refreshes the reference by the epoch"},
		{func(o *GRPOOptions) { o.Advantage.Std = "populatoin" }, `std: want one of sample, population, got "populatoin" (did you mean population?)`},
	} {
		g := tokenGRPO(tc.change)
		err := g.opt.Validate()
		for _, more := range []func() error{g.opt.ValidateTokens, g.opt.KL.Validate, g.opt.Advantage.Validate} {
			if err == nil {
				err = more()
			}
		}
		if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "=", ": "), strings.ReplaceAll(tc.want, "=", ": ")) {
			t.Errorf("%v, want %s", err, tc.want)
		}
	}
	env := tokenEnv(t, nil, t.TempDir())
	if err := tokenGRPO(func(o *GRPOOptions) { o.KL.Estimator = "exact" }).Begin(env, 1); err == nil || !strings.Contains(err.Error(), "grpo.kl.estimator") {
		t.Errorf("an exact KL over tokens begins: %v", err)
	}
}
