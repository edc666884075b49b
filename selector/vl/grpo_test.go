package vl

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/tensorfile"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
	"fulcrum/selector/vl/processor"
)

// asked is a source of prompts; query i is asked[i].
type asked []*processor.Prompt

func (a asked) Name() string                            { return "prompts" }
func (a asked) Len() int                                { return len(a) }
func (a asked) ID(i int) int64                          { return int64(i) }
func (a asked) Prompt(i int) (*processor.Prompt, error) { return a[i], nil }
func (a asked) Recorded(queries []int) *selector.Batch  { return selector.NewBatch(a, queries, 0, 1) }

// batchOf returns a batch with these completions of one prompt.
func batchOf(p *processor.Prompt, completions [][]int64) *selector.Batch {
	longest := 0
	for _, c := range completions {
		longest = max(longest, len(c))
	}
	b := selector.NewBatch(asked{p}, []int{0}, len(completions), longest)
	for j, c := range completions {
		b.Set(0, j, c, 0)
	}
	return b
}

// grpoCase is a section of expected.json: grpo.
type grpoCase struct {
	Prompt      string    `json:"prompt"`
	Completions [][]int64 `json:"completion_ids"`
	Rewards     []float64 `json:"rewards"`
	PromptLen   int       `json:"prompt_len"`
	Clip, Beta  float64
	Sample      grpoLoss `json:"sample"`
	Population  grpoLoss `json:"population"`
	SFT         struct{ Loss float64 }
	AdamW       struct {
		LR    float64
		Steps []struct {
			Loss float64
			Norm float64 `json:"grad_norm_before_clip"`
		}
		After float64 `json:"loss_after_3_steps"`
	}
}

type grpoLoss struct {
	Loss       float64
	Policy     float64 `json:"policy_loss"`
	KL         float64
	Clipped    float64   `json:"clipped_fraction"`
	Advantages []float64 `json:"advantages"`
}

func grpoCases(t *testing.T) map[string]grpoCase {
	t.Helper()
	var e struct{ GRPO map[string]json.RawMessage }
	golden.JSON(t, golden.Shared(t, "qwen2_5_vl", "expected.json"), &e)
	out := map[string]grpoCase{}
	for _, name := range []string{"init", "mid"} {
		var c grpoCase
		if err := json.Unmarshal(e.GRPO[name], &c); err != nil {
			t.Fatal(err)
		}
		out[name] = c
	}
	return out
}

// withAdapter opens the tied model with one of the fixtures' adapters.
func withAdapter(t *testing.T, adapter string) *Model {
	t.Helper()
	path := filepath.Dir(golden.Shared(t, "qwen2_5_vl", "adapters", adapter, "adapter_config.json"))
	return openTiny(t, "tiny_tied", func(o *Options) { o.Adapter = &path })
}

// perToken takes the columns of a fixture's log-probabilities [4, S-1] that score completion tokens: [4, T], 0 where a
// completion is shorter.
func perToken(t *testing.T, f *tensorfile.File, name string, c grpoCase, steps int) []float64 {
	t.Helper()
	all, shape := floats(t, f, name)
	var out []float64
	for row, ids := range c.Completions {
		for k := range steps {
			v := 0.0
			if k < len(ids) {
				v = all[row*shape[1]+c.PromptLen-1+k]
			}
			out = append(out, v)
		}
	}
	return out
}

// loss is GRPO's with one ratio a token (spec §10): [scalar], with gradient through logp [1, G, T].
func (c grpoCase) loss(logp torchx.Tensor, old, ref, mask []float32, adv []float64) torchx.Tensor {
	shape := logp.Shape()
	tensor := func(v []float32) torchx.Tensor { return torchx.From(v, shape...) }
	advantage := make([]float32, len(old))
	for i := range advantage {
		advantage[i] = float32(adv[i/shape[2]])
	}
	a, m := tensor(advantage), tensor(mask)
	ratio := torchx.Exp(torchx.Sub(logp, tensor(old)))
	policy := torchx.Neg(torchx.Minimum(torchx.Mul(ratio, a), torchx.Mul(torchx.Clamp(ratio, 1-c.Clip, 1+c.Clip), a)))
	d := torchx.Sub(tensor(ref), logp)
	kl := torchx.AddScalar(torchx.Sub(torchx.Exp(d), d), -1)
	return torchx.Div(torchx.Sum(torchx.Mul(torchx.Add(policy, torchx.Scale(kl, c.Beta)), m)), torchx.Sum(m))
}

// closeGrads compares the gradient of every adapter tensor: 1e-4 absolute or relative to the tensor's norm (spec §2).
func closeGrads(t *testing.T, params *torchx.Params, want *tensorfile.File, prefix string) {
	t.Helper()
	all := params.Grad().Floats()
	seen := 0
	for _, name := range params.Names() {
		lo, hi := params.Range(name)
		expect, _ := floats(t, want, prefix+name)
		norm, worst := 0.0, 0.0
		for i, g := range all[lo:hi] {
			norm += expect[i] * expect[i]
			worst = math.Max(worst, math.Abs(g-expect[i]))
		}
		if limit := 1e-4 * math.Max(1, math.Sqrt(norm)); worst > limit {
			t.Errorf("%s%s: gradients differ by %.2g, want at most %.2g", prefix, name, worst, limit)
		}
		seen++
	}
	if seen != 32 {
		t.Errorf("compared %d gradients, want 32", seen)
	}
}

func TestAdapterLogits(t *testing.T) {
	m := withAdapter(t, "mid")
	want, _ := floats(t, fixture(t, "adapter_logits"), "logits")
	golden.Close(t, promptLogits(t, m, prompt(t, "one_image")), want, 1e-4)
	opt := greedy()
	out, err := m.Generate([]*processor.Prompt{prompt(t, "one_image")}, 1, opt)
	if err != nil {
		t.Fatal(err)
	}
	var e struct {
		GRPO struct {
			Forward struct {
				Greedy []int64 `json:"greedy_16"`
			} `json:"adapter_forward"`
		}
	}
	golden.JSON(t, golden.Shared(t, "qwen2_5_vl", "expected.json"), &e)
	if got := out[0][0].IDs; !slices.Equal(got, e.GRPO.Forward.Greedy) {
		t.Errorf("got %v, want %v", got, e.GRPO.Forward.Greedy)
	}
}

// TestGRPO compares log-probabilities, losses, every adapter gradient, and three clipped AdamW steps with the reference's.
func TestGRPO(t *testing.T) {
	for name, c := range grpoCases(t) {
		t.Run(name, func(t *testing.T) {
			arrays := fixture(t, "grpo_"+name)
			m := withAdapter(t, name)
			policy := NewPolicy(m)
			b := batchOf(prompt(t, c.Prompt), c.Completions)
			forward := func() torchx.Tensor { return policy.Forward(b, selector.ForwardOptions{}).LogP }
			defer torchx.Scope()()

			golden.Close(t, forward().Floats(), perToken(t, arrays, "new_logps", c, b.T), 1e-4)
			plain := openTiny(t, "tiny_tied", nil)
			golden.Close(t, NewPolicy(plain).Forward(b, selector.ForwardOptions{}).LogP.Floats(),
				perToken(t, arrays, "ref_logps", c, b.T), 1e-4)
			if name == "mid" {
				golden.Close(t, NewPolicy(withAdapter(t, "mid_old")).Forward(b, selector.ForwardOptions{}).LogP.Floats(),
					perToken(t, arrays, "old_logps", c, b.T), 1e-4)
			}

			old, ref := narrow(perToken(t, arrays, "old_logps", c, b.T)), narrow(perToken(t, arrays, "ref_logps", c, b.T))
			for kind, want := range map[string]grpoLoss{"sample": c.Sample, "population": c.Population} {
				m.Params().ZeroGrad()
				loss := c.loss(forward(), old, ref, b.Mask, want.Advantages)
				golden.Close(t, []float64{loss.Item()}, []float64{want.Loss}, 1e-5)
				torchx.Backward(loss)
				closeGrads(t, m.Params(), arrays, "grad."+kind+".")
			}

			m.Params().ZeroGrad()
			mask := torchx.From(b.Mask, 1, b.G, b.T)
			sft := torchx.Neg(torchx.Div(torchx.Sum(torchx.Mul(forward(), mask)), torchx.Sum(mask)))
			golden.Close(t, []float64{sft.Item()}, []float64{c.SFT.Loss}, 1e-5)
			torchx.Backward(sft)
			closeGrads(t, m.Params(), arrays, "grad.sft.")

			m.Params().ZeroGrad()
			adam := torchx.NewAdamW(m.Params(), 0.9, 0.999, 1e-8, 0.01)
			defer adam.Free()
			before := m.Params().Values()
			for i, step := range c.AdamW.Steps {
				loss := c.loss(forward(), old, ref, b.Mask, c.Sample.Advantages)
				golden.Close(t, []float64{loss.Item()}, []float64{step.Loss}, 1e-5)
				torchx.Backward(loss)
				norm := m.Params().GradNorm()
				golden.Close(t, []float64{norm}, []float64{step.Norm}, 1e-4*step.Norm)
				adam.Step(c.AdamW.LR, math.Min(1, 1/(norm+1e-6)))
				if i == 1 {
					continue // the fixtures have steps 1 and 3
				}
				values := m.Params().Flat().Floats()
				for _, name := range m.Params().Names() {
					lo, _ := m.Params().Range(name)
					want, _ := floats(t, arrays, fmt.Sprintf("step%d.%s", i+1, name))
					grad, _ := floats(t, arrays, "grad.sample."+name)
					for k, w := range want {
						tol := 2e-5
						if math.Abs(grad[k])/c.AdamW.Steps[0].Norm < 1e-7 { // AdamW's first step is lr·sign(g): its sign is rounding there
							tol = 2 * c.AdamW.LR
						}
						if d := math.Abs(values[lo+k] - w); d > tol {
							t.Errorf("step %d: %s[%d] is off by %.2g, want at most %.2g", i+1, name, k, d, tol)
						}
					}
				}
			}
			golden.Close(t, []float64{c.loss(forward(), old, ref, b.Mask, c.Sample.Advantages).Item()}, []float64{c.AdamW.After}, 1e-5)
			if slices.Equal(before, m.Params().Values()) {
				t.Error("three steps left the adapters where they were")
			}
			for _, name := range m.Params().Names() {
				if !strings.Contains(name, ".lora_") {
					t.Errorf("%s is trained, want adapters alone", name)
				}
			}
		})
	}
}

func narrow(v []float64) []float32 {
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = float32(x)
	}
	return out
}
