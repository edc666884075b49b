package rce

import (
	"context"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/testkit/phasetest"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/rewardutil/schedule"
	"fulcrum/selector"
	"fulcrum/selector/pointer"
	"fulcrum/selector/seq2seq"
)

// TestPartsKeepDropout: with dropout, the gradient and the loss of a step of sft and rce are the same for every micro_batch and every
// number of shards, uneven and empty ones too, for selectors and token policies.
func TestPartsKeepDropout(t *testing.T) {
	for _, policy := range []string{"pointer", "pointer with candidate encoder", "tokens", "tokens in float64"} {
		for _, name := range []string{"sft", "rce"} {
			t.Run(policy+" "+name, func(t *testing.T) {
				p, src := droppingPolicy(t, policy)
				exact := policy == "tokens in float64"
				var want []float64
				var loss float64
				for _, parts := range []struct {
					micro  *int
					shards int
				}{{nil, 1}, {new(1), 1}, {new(2), 1}, {new(3), 1}, {nil, 2}, {nil, 3}, {nil, 7}} {
					var phase *Phase
					sched := schedule.LROptions{Name: "constant"}
					if name == "sft" {
						opt := DefaultSFTOptions()
						opt.Epochs, opt.MicroBatch = 1, parts.micro
						phase = NewSFT(opt, phases.DefaultOptimOptions(), sched, src, 5, 0)
					} else {
						opt := DefaultOptions()
						opt.MicroBatch, opt.Rewards = parts.micro, "raw"
						phase = New(opt, phases.DefaultOptimOptions(), sched, src, 5, 0)
					}
					twin := p.Clone()
					env := &phases.Env{Policy: twin, Initial: p, Seed: 4, Shards: parts.shards}
					var seen seenGradient
					if exact {
						env.Gradients = &seen
					}
					if err := phase.Begin(env, 10); err != nil {
						t.Fatal(err)
					}
					phase.learn.Optimizer.KeepGrad = true
					m, err := stepUnless(&seen, func() (map[string]any, error) {
						return phasetest.Row(phase.Step(context.Background(), phases.At{Epoch: 1, Step: 3, Queries: []int{4, 0, 3, 1, 2}}))
					})
					if err != nil {
						t.Fatal(err)
					}
					grad, near := seen.of, 1e-6 // what is left is the loss, in float32
					if !exact {
						grad, near = twin.Params().Grad().Floats(), 5e-6
					}
					phase.End()
					twin.Free()
					got, _ := m["loss"].(float64)
					if want == nil {
						want, loss = grad, got
						continue
					}
					far, size := 0.0, 0.0
					for i := range grad {
						far, size = math.Max(far, math.Abs(grad[i]-want[i])), math.Max(size, math.Abs(want[i]))
					}
					if far > near*size || size < 1e-4 || math.Abs(got-loss) > 1e-6*math.Abs(loss) {
						t.Errorf("%+v: a gradient is off by %.3g of %.3g, the loss %.8g instead of %.8g", parts, far, size, got, loss)
					}
				}
			})
		}
	}
}

// seenGradient is that of a model in float64, of which the optimizer makes no step: it ends the step.
type seenGradient struct {
	phases.GradientHook
	of []float64
}

func (*seenGradient) Begin(string, *phases.Learner) {}
func (*seenGradient) End(*phases.Learner)           {}
func (s *seenGradient) Backward(l *phases.Learner) {
	s.of = l.Params.Grad().Floats()
	panic(s)
}

// stepUnless makes a step, which ends where seen has the gradient.
func stepUnless(seen *seenGradient, step func() (map[string]any, error)) (m map[string]any, err error) {
	defer func() {
		if why := recover(); why != nil && why != any(seen) {
			panic(why)
		}
	}()
	return step()
}

// droppingPolicy returns a policy that drops much in training, and five queries with recorded candidates.
func droppingPolicy(t *testing.T, kind string) (selector.Policy, selector.Source) {
	t.Helper()
	torchx.Attach(1)
	if !strings.HasPrefix(kind, "tokens") {
		opt := pointer.DefaultOptions()
		opt.HiddenDim, opt.NumHeads, opt.NumLayers, opt.Dropout, opt.AttnDropout = 16, 2, 2, 0.4, 0.3
		if kind != "pointer" {
			opt.CandidateEncoder = pointer.CandidateEncoderOptions{Layers: 1, Heads: 2, FFNDim: 8}
		}
		p, err := pointer.New(opt, 16, 1, "cpu")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Free)
		v := p.Params().Values()
		for i := range v {
			v[i] += float32(0.1 * math.Sin(float64(i)))
		}
		p.Params().SetValues(v)
		return p, phasetest.Ragged(t, 5)
	}
	o := seq2seq.DefaultOptions()
	o.Scratch = seq2seq.ScratchOptions{Model: "t5", Width: 16, FF: 24, Layers: 2, DecoderLayers: 2, Heads: 2, Positions: 48}
	plain, err := seq2seq.New(o, seq2seq.Vocabulary{Size: 40, Pad: 0, EOS: 1}, "cpu", 5)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Free()
	path := filepath.Join(t.TempDir(), "model")
	if err := plain.SaveMerged(path, "float32"); err != nil {
		t.Fatal(err)
	}
	o = seq2seq.DefaultOptions()
	o.Path, o.TuneAll, o.LoRA.Enabled, o.LoRA.Dropout = &path, false, true, 0.4
	if kind != "tokens" {
		o.DType = "float64"
	}
	m, err := seq2seq.Open(o, "cpu", 5, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := seq2seq.NewPolicy(m)
	t.Cleanup(p.Free)
	v := p.Params().Flat().Floats()
	for i := range v {
		v[i] += 0.1 * math.Sin(float64(i))
	}
	torchx.Copy(p.Params().Flat(), torchx.ToLike(torchx.From(v, len(v)), p.Params().Flat()))
	src := &phasetest.Summaries{}
	all := []int{0, 1, 2, 3, 4}
	src.Batch = selector.NewBatch(src, all, 3, 6)
	for i := range all {
		var text []int64
		for k := range 3 + 2*i {
			text = append(text, int64(2+(7*k+i)%38))
		}
		src.Texts = append(src.Texts, append(text, 1))
		for g := range 3 - i%2 {
			var ids []int64
			for k := range 1 + (i+g)%5 {
				ids = append(ids, int64(2+(5*k+3*g+i)%38))
			}
			src.Batch.Set(i, g, append(ids, 1), float64(g)-0.3*float64(i))
		}
	}
	if n := src.Batch.NumValid(); n != 13 {
		t.Fatalf("%d candidates", n)
	}
	return p, src
}
