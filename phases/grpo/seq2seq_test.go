package grpo

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/tensorfile"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/phasetest"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/rce"
	"fulcrum/rewardutil/schedule"
	"fulcrum/selector"
	"fulcrum/selector/seq2seq"
)

// recipe is the summarisation recipe's GRPO: ε = 0.1, β = 0.04 with k3, one ratio a token, averaged over all tokens.
func recipe(o *Options) {
	o.Ratio, o.Loss, o.Clip.Epsilon = "token", "bnpo", 0.1
	o.KL.Estimator, o.KL.Beta, o.KL.Controller = "k3", 0.04, "fixed"
	o.Advantage.Std, o.Advantage.MinStd, o.Advantage.Clip = "sample", 0, math.Inf(1)
}

// TestSummaryLossFixtures compares the recipe's loss and its gradient with the reference's on made-up numbers.
func TestSummaryLossFixtures(t *testing.T) {
	torchx.Attach(1)
	f, err := tensorfile.ReadSafetensors(golden.Shared(t, "seq2seq", "fixtures", "grpo_unit.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
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
	for key, want := range e.Unit {
		t.Run(want.Kind, func(t *testing.T) {
			get := func(what string) []float64 {
				x, _ := f.Get(key + "." + what)
				v, err := x.Float64s()
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
			mask := get("mask")
			fx := lossFixture{Groups: want.Groups, GroupSize: 5, Rewards: get("rewards")}
			fx.Rows = make([]lossRow, len(fx.Rewards))
			width := len(mask) / len(fx.Rewards)
			for i := range fx.Rows {
				cut := func(v []float64) (kept []float64) { // tokens with mask 0 count nowhere
					for k := i * width; k < (i+1)*width; k++ {
						if mask[k] != 0 {
							kept = append(kept, v[k])
						}
					}
					return kept
				}
				fx.Rows[i].New, fx.Rows[i].Old, fx.Rows[i].Ref, fx.Rows[i].GradSample = cut(get("new")), cut(get("old")), cut(get("ref")),
					cut(get("grad_new"))
			}
			g := scriptedGRPO(t, fx, "sample", recipe)
			golden.Close(t, g.rollout.adv, get("advantages"), 1e-6)
			m, loss, gradient := g.pass(t)
			golden.Close(t, []float64{loss, m["ppo_loss"].(float64), m["kl_loss"].(float64) / 0.04}, []float64{want.Loss, want.Policy, want.KL},
				2e-6)
			golden.Close(t, []float64{m["clip_fraction_low"].(float64) + m["clip_fraction_high"].(float64)}, []float64{want.Clipped}, 1e-6)
			for i, row := range fx.Rows {
				at := i * g.rollout.batch.T
				golden.Close(t, gradient[at:at+len(row.GradSample)], row.GradSample, 2e-6)
			}
		})
	}
}

type summaryCase struct {
	Lengths   []int `json:"completion_lengths"`
	Scenarios map[string]struct {
		Passes []struct {
			Loss, KL float64
			Policy   float64 `json:"policy_loss"`
			Norm     float64 `json:"grad_norm"`
		} `json:"losses_before_each_pass_and_after_the_last"`
	}
}

func openSummaries(t *testing.T, model string) (*phasetest.Summaries, summaryCase) {
	t.Helper()
	var e struct {
		T5   struct{ GRPO summaryCase } `json:"tiny_t5"`
		V11  struct{ GRPO summaryCase } `json:"tiny_t5_v11"`
		BART struct{ GRPO summaryCase } `json:"tiny_bart"`
	}
	golden.JSON(t, golden.Shared(t, "seq2seq", "expected.json"), &e)
	c := map[string]summaryCase{"tiny_t5": e.T5.GRPO, "tiny_t5_v11": e.V11.GRPO, "tiny_bart": e.BART.GRPO}[model]
	f, err := tensorfile.ReadSafetensors(golden.Shared(t, "seq2seq", "fixtures", model+".grpo.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	read := func(name string) (v []int64, width int) {
		x, _ := f.Get(name)
		if v, err = x.Int64s(); err != nil {
			t.Fatal(err)
		}
		return slices.Clone(v), x.Shape[1] // the file is unmapped
	}
	ids, longest := read("input_ids")
	mask, _ := read("attention_mask")
	labels, steps := read("labels")
	x, _ := f.Get("rewards")
	rewards, err := x.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	s := &phasetest.Summaries{}
	for row := 0; row < len(c.Lengths); row += 5 {
		n := 0
		for ; n < longest && mask[row*longest+n] != 0; n++ {
		}
		s.Texts = append(s.Texts, ids[row*longest:row*longest+n])
	}
	s.Batch = selector.NewBatch(s, []int{0, 1}, 5, steps)
	for i, n := range c.Lengths {
		s.Batch.Set(i/5, i%5, labels[i*steps:i*steps+n], rewards[i])
	}
	return s, c
}

// openSummaryPolicy opens a fixture model with all parameters trained, or its adapter.
func openSummaryPolicy(t *testing.T, model, mode string) *seq2seq.Policy {
	t.Helper()
	path := filepath.Dir(golden.Shared(t, "seq2seq", model, "config.json"))
	opt := seq2seq.DefaultOptions()
	opt.Path, opt.DType, opt.LoRA.Enabled, opt.TuneAll = &path, "float32", false, mode == "full"
	if mode == "lora" {
		adapter := filepath.Dir(golden.Shared(t, "seq2seq", "adapters", model, "adapter_config.json"))
		opt.Adapter = &adapter
	}
	m, err := seq2seq.Open(opt, "cpu", 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Free)
	return seq2seq.NewPolicy(m)
}

// moved is a clone whose parameters are multiplied as the fixtures' perturbed copies are; an eps of 0 switches
// adapters off instead.
func moved(t *testing.T, p *seq2seq.Policy, eps, phase float64) *seq2seq.Policy {
	t.Helper()
	q := p.Clone().(*seq2seq.Policy)
	t.Cleanup(q.Free)
	values := q.Params().Values()
	for _, name := range q.Params().Names() {
		lo, hi := q.Params().Range(name)
		for i := lo; i < hi; i++ {
			switch {
			case eps != 0:
				values[i] = float32(float64(values[i]) * (1 + eps*math.Sin(float64(i-lo)+phase)))
			case strings.HasSuffix(name, "lora_B.weight"):
				values[i] = 0
			}
		}
	}
	q.Params().SetValues(values)
	return q
}

// TestSummaryGRPO drives the phase itself through the reference's four passes with AdamW over one batch: every pass's
// loss, its terms and the gradient's norm. Both versions of the recipe make these passes: one rollout scored once and
// four inner passes (old_policy=batch), and an old policy that stays as it was (every_n); and so does an old policy that
// differs from the start (init).
func TestSummaryGRPO(t *testing.T) {
	torchx.Attach(1)
	for _, model := range []string{"tiny_t5", "tiny_t5_v11", "tiny_bart"} {
		src, c := openSummaries(t, model)
		for _, mode := range []string{"full", "lora"} {
			for _, run := range []struct {
				scenario, old string
				passes        int
			}{{"first", "batch", 4}, {"first", "every_n", 1}, {"mid", "init", 4}, {"mid", "init", 1}} {
				t.Run(fmt.Sprintf("%s/%s.%s/%s passes=%d", model, mode, run.scenario, run.old, run.passes), func(t *testing.T) {
					policy := openSummaryPolicy(t, model, mode)
					base := policy.Params().Values()
					reference := moved(t, policy, 0, 0)
					if mode == "full" {
						reference = moved(t, policy, 0.05, 0.5)
					}
					opt := DefaultOptions()
					recipe(&opt)
					opt.Epochs, opt.LR, opt.OldPolicy, opt.NumIterations, opt.UpdateOldAfter = 1, 1e-4, run.old, run.passes, 1000
					env := &phases.Env{Policy: policy, Initial: reference, Seed: 1, Rec: &phasetest.Memory{},
						Data: phases.Data{Shots: src.Batch.T, Advantage: opt.Advantage}}
					if opt.KL.Reference = "init"; run.scenario == "mid" { // the phase starts at the reference, and the policy moves before its first step
						opt.KL.Reference = "phase_start"
						policy.Params().CopyFrom(reference.Params())
						old := openSummaryPolicy(t, model, mode)
						env.Initial = moved(t, old, map[string]float64{"full": 0.03, "lora": 0.5}[mode], 2)
					}
					optim := phases.DefaultOptimOptions()
					optim.GradClipNorm = 0
					phase := New("grpo", opt, optim, schedule.LROptions{Name: "constant"}, src, 2)
					if err := phase.Begin(env, 4); err != nil {
						t.Fatal(err)
					}
					defer phase.End()
					policy.Params().SetValues(base)
					phase.BeginEpoch(1)
					want := c.Scenarios[mode+"."+run.scenario].Passes
					for i := range 4 {
						m, err := phasetest.Row(phase.Step(context.Background(), phases.At{Epoch: 1, Step: i, Pass: i % run.passes, Queries: []int{0, 1}}))
						if err != nil {
							t.Fatal(err)
						}
						golden.Close(t, []float64{m["loss"].(float64), m["ppo_loss"].(float64), m["kl_loss"].(float64)},
							[]float64{want[i].Loss, want[i].Policy, 0.04 * want[i].KL}, 1e-5)
						golden.Close(t, []float64{m["grad_norm"].(float64)}, []float64{want[i].Norm}, 2e-4*want[i].Norm)
					}
				})
			}
		}
	}
}

// TestSummaryStepsWaitOnce: a step of a T5 or BART copies to the host once and uploads equally often, whatever the batch.
func TestSummaryStepsWaitOnce(t *testing.T) {
	torchx.Attach(1)
	for _, model := range []string{"tiny_t5", "tiny_bart"} {
		src, _ := openSummaries(t, model)
		policy := openSummaryPolicy(t, model, "lora")
		opt := DefaultOptions()
		recipe(&opt)
		opt.Epochs, opt.LR, opt.OldPolicy, opt.Hooks.AnySignal = 1, 1e-4, "phase_start", true
		env := &phases.Env{Policy: policy, Initial: moved(t, policy, 0, 0), Seed: 1, Rec: &phasetest.Memory{},
			Data: phases.Data{Shots: src.Batch.T, Advantage: opt.Advantage}}
		optim, constant := phases.DefaultOptimOptions(), schedule.LROptions{Name: "constant"}
		sft := rce.NewSFT(rce.DefaultSFTOptions(), optim, constant, src, 2, 0)
		for _, phase := range []phases.Phase{New("grpo", opt, optim, constant, src, 2), sft} {
			if err := phase.Begin(env, 4); err != nil {
				t.Fatal(err)
			}
			phases.BeginEpoch(phase, 1)
			phasetest.WaitsOnce(t, phase, []int{1}, []int{0, 1}, 80)
			phase.End()
		}
	}
}
