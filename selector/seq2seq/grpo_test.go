package seq2seq

import (
	"math"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/tensorfile"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
	"fulcrum/selector/lora"
)

// asked is a source of texts to encode; query i is asked[i].
type asked [][]int64

func (a asked) Name() string                           { return "texts" }
func (a asked) Len() int                               { return len(a) }
func (a asked) ID(i int) int64                         { return int64(i) }
func (a asked) Prompt(i int) ([]int64, error)          { return a[i], nil }
func (a asked) Recorded(queries []int) *selector.Batch { return selector.NewBatch(a, queries, 0, 1) }

// grpoCase is a model's section grpo of expected.json.
type grpoCase struct {
	Lengths   []int `json:"completion_lengths"`
	Scenarios map[string]struct {
		Advantages []float64
		GradNorms  map[string]float64 `json:"grad_norms"`
		Zero       []string           `json:"mathematically_zero_gradients"`
		Passes     []struct {
			Loss        float64
			Policy      float64 `json:"policy_loss"`
			KL          float64
			Clipped     float64 `json:"clipped_fraction"`
			Outside     float64 `json:"ratio_outside_fraction"`
			PerSequence float64 `json:"loss_if_mean_per_sequence_first"`
			Norm        float64 `json:"grad_norm"`
		} `json:"losses_before_each_pass_and_after_the_last"`
	}
	Full struct{ Reference, Old struct{ Eps, Phase float64 } }
	LoRA struct {
		Trainable int `json:"num_trainable"`
	} `json:"lora"`
}

const (
	groupSize = 5
	clip      = 0.1
	beta      = 0.04
)

// grpoBatch are the fixture's prompts with their five completions each.
func grpoBatch(t *testing.T, f *tensorfile.File, c grpoCase) *selector.Batch {
	t.Helper()
	labels := ints(t, f, "labels")
	var texts asked
	for i, ids := range unpadded(t, f) {
		if i%groupSize == 0 {
			texts = append(texts, ids)
		}
	}
	b := selector.NewBatch(texts, []int{0, 1}, groupSize, len(labels[0]))
	rewards, _ := floats(t, f, "rewards")
	for i, n := range c.Lengths {
		b.Set(i/groupSize, i%groupSize, labels[i][:n], rewards[i])
	}
	return b
}

// terms are GRPO's with one ratio a token, averaged over all tokens (spec §9).
type terms struct {
	loss, policy, kl              torchx.Tensor // scalars, with gradient through logp
	clipped, outside, perSequence float64
}

// lossOf returns the loss of log-probabilities logp [2, 5, T].
func lossOf(b *selector.Batch, logp torchx.Tensor, old, ref, advantages []float64) terms {
	tensor := func(v []float64) torchx.Tensor { return torchx.From(narrow(v), b.B(), b.G, b.T) }
	each := make([]float64, len(b.Mask))
	for i := range each {
		each[i] = advantages[i/b.T]
	}
	a, m := tensor(each), torchx.From(b.Mask, b.B(), b.G, b.T)
	ratio := torchx.Exp(torchx.Sub(logp, tensor(old)))
	free, held := torchx.Mul(ratio, a), torchx.Mul(torchx.Clamp(ratio, 1-clip, 1+clip), a)
	policy := torchx.Neg(torchx.Minimum(free, held))
	d := torchx.Sub(tensor(ref), logp)
	kl := torchx.AddScalar(torchx.Sub(torchx.Exp(d), d), -1)
	mean := func(x torchx.Tensor) torchx.Tensor {
		return torchx.Div(torchx.Sum(torchx.Mul(x, m)), torchx.Sum(m))
	}
	out := terms{policy: mean(policy), kl: mean(kl)}
	out.loss = torchx.Add(out.policy, torchx.Scale(out.kl, beta))
	f, h, r := free.Floats(), held.Floats(), ratio.Floats()
	one := torchx.Add(policy, torchx.Scale(kl, beta)).Floats()
	tokens := 0.0
	for i := range b.Valid {
		row, n := 0.0, 0.0
		for k := i * b.T; k < (i+1)*b.T; k++ {
			if b.Mask[k] == 0 {
				continue
			}
			row, n = row+one[k], n+1
			if h[k] < f[k] {
				out.clipped++
			}
			if math.Abs(r[k]-1) > clip {
				out.outside++
			}
		}
		out.perSequence += row / n / float64(len(b.Valid))
		tokens += n
	}
	out.clipped, out.outside = out.clipped/tokens, out.outside/tokens
	return out
}

// samplesOf are the entries that the fixtures keep of a tensor: at floor(j·n/16), all when there are fewer.
func samplesOf(values []float64) []float64 {
	n := len(values)
	if n < 16 {
		return values
	}
	out := make([]float64, 16)
	for j := range out {
		out[j] = values[j*n/16]
	}
	return out
}

// TestGRPO compares log-probabilities, losses, gradients and four AdamW passes with the reference's: all parameters
// and adapters, from ratio 1 and with an old policy that has moved away.
func TestGRPO(t *testing.T) {
	each(t, func(t *testing.T, model string) {
		for _, mode := range []string{"full", "lora"} {
			for _, scenario := range []string{"first", "mid"} {
				t.Run(mode+"."+scenario, func(t *testing.T) { checkGRPO(t, model, mode, scenario) })
			}
		}
	})
}

func checkGRPO(t *testing.T, model, mode, scenario string) {
	f, e := fixture(t, model+".grpo"), expectations(t, model).GRPO
	c := e.Scenarios[mode+"."+scenario]
	m := openTiny(t, model, func(o *Options) { o.TuneAll = true })
	if mode == "lora" {
		m = withAdapter(t, model)
		if n := m.Params().Numel(); n != e.LoRA.Trainable {
			t.Errorf("%d parameters are trained, want %d", n, e.LoRA.Trainable)
		}
	}
	policy, b := NewPolicy(m), grpoBatch(t, f, e)
	defer torchx.Scope()()
	forward := func(m *Model) torchx.Tensor { return NewPolicy(m).Forward(b, selector.ForwardOptions{}).LogP }
	matches := func(name string, m *Model) []float64 {
		end := torchx.NoGrad()
		defer end()
		want, _ := floats(t, f, name)
		got := forward(m).Floats()
		golden.Close(t, got, want, 1e-4)
		return got
	}
	moved := func(eps, phase float64) *Model {
		copied := m.Clone().(*Model)
		t.Cleanup(copied.Free)
		perturb(copied, eps, phase)
		return copied
	}
	// The policy, the reference and the old policy are those of the fixtures.
	base := matches(map[string]string{"full": "base_logps", "lora": "lora.base_logps"}[mode], m)
	var old, ref []float64
	if mode == "full" {
		ref = matches("ref_logps", moved(0.05, 0.5))
		old = matches("old_logps_mid", moved(0.03, 2))
	} else {
		ref = matches("base_logps", openTiny(t, model, nil))
		old = matches("lora.old_logps_mid", moved(0.5, 2))
	}
	if scenario == "first" {
		old = base
	}

	adam := torchx.NewAdamW(m.Params(), 0.9, 0.999, 1e-8, 0.01)
	defer adam.Free()
	prefix := mode + "." + scenario + "."
	m.Params().ZeroGrad()
	for i, want := range c.Passes {
		logp := policy.Forward(b, selector.ForwardOptions{}).LogP
		got := lossOf(b, logp, old, ref, c.Advantages)
		golden.Close(t, []float64{got.loss.Item(), got.policy.Item(), got.kl.Item(), got.perSequence},
			[]float64{want.Loss, want.Policy, want.KL, want.PerSequence}, 1e-5)
		// a token at the clip's edge may fall to either side
		golden.Close(t, []float64{got.clipped, got.outside}, []float64{want.Clipped, want.Outside}, 1.5/215)
		if i == 0 {
			new, _ := floats(t, f, prefix+"new_logps")
			golden.Close(t, logp.Floats(), new, 1e-4)
		}
		if i == len(c.Passes)-1 {
			break
		}
		torchx.Backward(got.loss)
		golden.Close(t, []float64{m.Params().GradNorm()}, []float64{want.Norm}, 1e-4*want.Norm)
		if i == 0 {
			closeGradients(t, m, f, prefix, mode, c.GradNorms)
		}
		adam.Step(1e-4, 1)
		if i == 0 || i == 3 {
			values := m.Params().Flat().Floats()
			for _, n := range m.Params().Names() {
				if slices.Contains(c.Zero, n) {
					continue // rounding, which AdamW turns into steps of any direction
				}
				lo, hi := m.Params().Range(n)
				want, _ := floats(t, f, name("%sstep%d_samples.%s", prefix, i+1, n))
				for k, v := range samplesOf(values[lo:hi]) {
					if d := math.Abs(v - want[k]); d > 2e-5 {
						t.Errorf("pass %d: sample %d of %s is off by %.2g", i+1, k, n, d)
					}
				}
			}
		}
	}
	for _, n := range m.Params().Names() {
		if strings.Contains(n, ".lora_") != (mode == "lora") {
			t.Errorf("%s is trained in mode %s", n, mode)
		}
	}
}

// closeGradients compares the gradient of every parameter: its norm, and its entries (all of an adapter's, samples of
// the others) to 1e-4 of that norm.
func closeGradients(t *testing.T, m *Model, f *tensorfile.File, prefix, mode string, norms map[string]float64) {
	t.Helper()
	all := m.Params().Grad().Floats()
	if len(norms) != len(m.Params().Names()) {
		t.Errorf("%d parameters are trained, the fixture has gradients of %d", len(m.Params().Names()), len(norms))
	}
	for _, n := range m.Params().Names() {
		lo, hi := m.Params().Range(n)
		got, norm := all[lo:hi], 0.0
		for _, g := range got {
			norm += g * g
		}
		want, ok := norms[n]
		limit := math.Max(1e-4*want, 1e-7) // below: rounding of what is mathematically zero
		if !ok || math.Abs(math.Sqrt(norm)-want) > limit {
			t.Errorf("%s: gradient norm %.7g, want %.7g", n, math.Sqrt(norm), want)
		}
		key := prefix + "grad." + n
		if mode == "full" {
			key, got = prefix+"grad_samples."+n, samplesOf(got)
		}
		entries, _ := floats(t, f, key)
		for k, g := range got {
			if d := math.Abs(g - entries[k]); d > limit {
				t.Errorf("%s[%d]: gradient is off by %.2g, want at most %.2g", n, k, d, limit)
				break
			}
		}
	}
}

// TestLoss compares the loss alone, and its gradient with respect to the log-probabilities, on made-up numbers.
func TestLoss(t *testing.T) {
	f := fixture(t, "grpo_unit")
	var e struct {
		Unit map[string]struct {
			Kind    string
			Groups  int
			Loss    float64
			Policy  float64 `json:"policy_loss"`
			KL      float64
			Clipped float64 `json:"clipped_fraction"`
		} `json:"grpo_unit"`
	}
	golden.JSON(t, golden.Shared(t, "seq2seq", "expected.json"), &e)
	if len(e.Unit) != 5 {
		t.Fatalf("%d cases", len(e.Unit))
	}
	for key, c := range e.Unit {
		t.Run(c.Kind, func(t *testing.T) {
			defer torchx.Scope()()
			get := func(what string) []float64 { v, _ := floats(t, f, key+"."+what); return v }
			new, mask := get("new"), get("mask")
			steps := len(new) / (c.Groups * groupSize)
			b := selector.NewBatch(nil, make([]int, c.Groups), groupSize, steps)
			b.Mask = narrow(mask)
			params := torchx.NewParams([]torchx.Spec{{Name: "logp", Shape: []int{c.Groups, groupSize, steps}}}, "cpu")
			defer params.Free()
			params.SetValues(narrow(new))
			params.ZeroGrad()
			got := lossOf(b, params.Get("logp"), get("old"), get("ref"), get("advantages"))
			golden.Close(t, []float64{got.loss.Item(), got.policy.Item(), got.kl.Item()}, []float64{c.Loss, c.Policy, c.KL}, 1e-6)
			golden.Close(t, []float64{got.clipped}, []float64{c.Clipped}, 1e-6)
			torchx.Backward(got.loss)
			golden.Close(t, params.Grad().Floats(), get("grad_new"), 1e-6)
		})
	}
}

// TestAdapterLogits compares the logits with the adapter on, and with it merged into the weights.
func TestAdapterLogits(t *testing.T) {
	each(t, func(t *testing.T, model string) {
		m, f := withAdapter(t, model), fixture(t, model+".grpo")
		b := grpoBatch(t, f, expectations(t, model).GRPO)
		want, _ := floats(t, f, "lora.logits_row0")
		ids := b.Scored(0, 0)
		group := Group{Prompt: b.Source.(asked)[0], Completions: [][]int64{ids}}
		golden.Close(t, logitsOf(t, m, group), want[:len(ids)*m.cfg.Vocab], 1e-4)
		merged, adapter := t.TempDir(), t.TempDir()
		if err := m.SaveMerged(merged, ""); err != nil {
			t.Fatal(err)
		}
		golden.Close(t, logitsOf(t, openTiny(t, model, func(o *Options) { o.Path = &merged }), group), want[:len(ids)*m.cfg.Vocab], 1e-4)
		if err := m.SaveAdapter(adapter, model); err != nil {
			t.Fatal(err)
		}
		if config := readFile(t, adapter+"/adapter_config.json"); !strings.Contains(config, `"task_type": "SEQ_2_SEQ_LM"`) {
			t.Errorf("adapter_config.json: %s", config)
		}
		again := openTiny(t, model, func(o *Options) { o.Adapter = &adapter })
		golden.Close(t, logitsOf(t, again, group), logitsOf(t, m, group), 0)
	})
}

// logitsOf returns the logits [tokens, V] of a group's completions.
func logitsOf(t *testing.T, m *Model, g Group) []float64 {
	t.Helper()
	defer torchx.Scope()()
	defer torchx.NoGrad()()
	hidden, _, err := m.Hidden([]Group{g}, &lora.Pass{})
	if err != nil {
		t.Fatal(err)
	}
	return m.Logits(hidden).Floats()
}
