package rce

import (
	"context"
	"math"
	"slices"
	"testing"

	"fulcrum/internal/testkit/phasetest"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/rewardutil/schedule"
	"fulcrum/selector/pointer"
)

// onDevice returns the toy policy without dropout on a device, before its phase has begun.
func onDevice(t *testing.T, device string) *phases.Env {
	t.Helper()
	torchx.Attach(1)
	opt := pointer.DefaultOptions()
	opt.HiddenDim, opt.Dropout, opt.AttnDropout = 32, 0, 0
	opt.Skip = pointer.SkipOptions{Enabled: true, Scale: 3, LearnedScale: 0.3}
	opt.Relation = pointer.RelationOptions{Scale: new(3.0), Bilinear: "free", GateDim: 3, GateInitial: 2}
	p, err := pointer.New(opt, 8, 1, device)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Free)
	_, val := phasetest.Toy(t)
	env := phasetest.ToyEnv(t, val, &phasetest.Memory{}, t.TempDir())
	env.Policy = p
	return env
}

// train makes steps on batches of 16 and of 8 queries in turns and returns the losses, gradient norms and weights.
func train(t *testing.T, env *phases.Env, steps int) (losses, norms []float64, weights []float32, counted torchx.Counts) {
	t.Helper()
	src, _ := phasetest.Toy(t)
	opt := DefaultOptions()
	opt.LR = 1e-2
	p := New(opt, phases.DefaultOptimOptions(), schedule.LROptions{Name: "cosine", WarmupRatio: 0.2}, src, 16, 0)
	if err := p.Begin(env, steps); err != nil {
		t.Fatal(err)
	}
	defer p.End()
	batch := func(step int) []int { // groups of all sizes
		queries := make([]int, 16-8*(step%2))
		for i := range queries {
			queries[i] = (5*step + i) % src.Len()
		}
		return queries
	}
	for step := range steps {
		before := torchx.Counted()
		at := phases.At{Epoch: 1, Step: step, Queries: batch(step)}
		for later := step + 1; later < min(step+3, steps); later++ {
			at.Next = append(at.Next, phases.At{Epoch: 1, Step: later, Queries: batch(later)})
		}
		func() {
			defer torchx.Scope()()
			m, err := p.Step(context.Background(), at)
			if err != nil {
				t.Fatal(err)
			}
			row := m.Row()
			losses, norms = append(losses, row["loss"].(float64)), append(norms, row["grad_norm"].(float64))
		}()
		if at.Next != nil {
			counted = torchx.Counted().Minus(before)
		}
	}
	return losses, norms, env.Policy.Params().Values(), counted
}

// TestRecordedStepsOnCUDA: steps that a graph makes are the CPU's but for rounding, and with deterministic operations the same in
// every run. Batches of both sizes are recorded.
func TestRecordedStepsOnCUDA(t *testing.T) {
	if !torchx.CUDAAvailable() {
		t.Skip("no CUDA device")
	}
	const steps = 12
	cpuLosses, cpuNorms, cpuWeights, _ := train(t, onDevice(t, "cpu"), steps)
	torchx.SetDeterministic(true)
	defer torchx.SetDeterministic(false)
	losses, norms, weights, counted := train(t, onDevice(t, "cuda:0"), steps)
	t.Logf("a recorded step: %+v", counted)
	if counted.ReadBacks != 1 || counted.Uploads != 1 || counted.Tensors > 10 {
		t.Errorf("a recorded step: %+v, want one upload, one read-back and few tensors: was it recorded?", counted)
	}
	again, _, sameWeights, _ := train(t, onDevice(t, "cuda:0"), steps)
	if !slices.Equal(losses, again) || !slices.Equal(weights, sameWeights) {
		t.Errorf("a second run differs:\nlosses %v\n   then %v\nlargest difference of weights %g", losses, again, largest(weights, sameWeights))
	}
	for i := range losses {
		if math.Abs(losses[i]-cpuLosses[i]) > 1e-4*math.Abs(cpuLosses[i]) || math.Abs(norms[i]-cpuNorms[i]) > 2e-3*cpuNorms[i] {
			t.Errorf("step %d: loss %.8g and gradient norm %.8g, on the CPU %.8g and %.8g", i, losses[i], norms[i], cpuLosses[i], cpuNorms[i])
		}
	}
	if d := largest(weights, cpuWeights); d > 0.02 { // twelve steps of Adam move a weight by up to 0.1, whatever its gradient's size
		t.Errorf("weights differ from the CPU's by up to %g", d)
	}
}

func largest(a, b []float32) float64 {
	d := 0.0
	for i := range a {
		d = math.Max(d, math.Abs(float64(a[i]-b[i])))
	}
	return d
}

// TestEagerStepsOnCUDA: steps made one operation at a time end with the same weights as recorded ones.
func TestEagerStepsOnCUDA(t *testing.T) {
	if !torchx.CUDAAvailable() {
		t.Skip("no CUDA device")
	}
	torchx.SetDeterministic(true)
	defer torchx.SetDeterministic(false)
	src, _ := phasetest.Toy(t)
	var all [2][]float32
	for i := range all {
		env := onDevice(t, "cuda:0")
		opt := DefaultOptions()
		opt.LR = 1e-2
		p := New(opt, phases.DefaultOptimOptions(), schedule.LROptions{Name: "constant"}, src, 16, 0)
		if err := p.Begin(env, 10); err != nil {
			t.Fatal(err)
		}
		for step := range 6 {
			end := torchx.Scope()
			at := phases.At{Step: step, Queries: []int{step, step + 7, step + 14, 40 - step}}
			if _, err := phases.NewSteps[*weighted, *inputs](p.learn, refusing{p, i == 0}, nil).Make(context.Background(), at); err != nil {
				t.Fatal(err)
			}
			end()
		}
		all[i] = env.Policy.Params().Values()
		p.End()
	}
	if !slices.Equal(all[0], all[1]) {
		t.Errorf("recorded steps end with other weights: up to %g", largest(all[0], all[1]))
	}
}

// refusing is a phase whose steps no CUDA graph may hold.
type refusing struct {
	*Phase
	refuse bool
}

func (r refusing) Inputs(of *weighted, span phases.Span, up *phases.Inputs) (*inputs, bool) {
	if r.refuse {
		up.Refuse("to compare with")
	}
	return r.Phase.Inputs(of, span, up)
}

// TestAdamWOnCUDA: the queued step is the CPU's, with and without rates of its own for parameters, and refuses what is not finite.
func TestAdamWOnCUDA(t *testing.T) {
	if !torchx.CUDAAvailable() {
		t.Skip("no CUDA device")
	}
	const n = 10_007
	for _, tc := range []struct {
		name          string
		scaled, keeps bool
		clip          float64
		bad           float32
	}{{name: "clipped", clip: 1}, {name: "not clipped"}, {name: "scaled", scaled: true, clip: 1},
		{name: "keeps the gradient", keeps: true, clip: 1}, {name: "NaN", clip: 1, bad: float32(math.NaN())},
		{name: "infinite, scaled", scaled: true, clip: 1, bad: float32(math.Inf(1))}} {
		t.Run(tc.name, func(t *testing.T) {
			defer torchx.Scope()()
			run := func(device string) (weights, m, grad []float32, steps int) {
				p := torchx.NewParams([]torchx.Spec{{Name: "a", Shape: []int{n - 7}}, {Name: "b", Shape: []int{7}}}, device)
				defer p.Free()
				a := torchx.NewAdamW(p, 0.9, 0.999, 1e-8, 0.1)
				defer a.Free()
				a.KeepGrad = tc.keeps
				if tc.scaled {
					a.ScaleLR(func(name string) float64 { return map[string]float64{"a": 0.5, "b": 0}[name] })
				}
				v, g := make([]float32, n), make([]float32, n)
				for i := range v {
					v[i], g[i] = float32(math.Sin(float64(i))), float32(math.Cos(float64(3*i)))
				}
				p.SetValues(v)
				for step := range 4 {
					if step == 3 && (tc.bad == 0 || device == "cpu") {
						break // a step that was queued before the host knew of the refused one
					}
					if step == 2 && tc.bad != 0 {
						g[5000] = tc.bad
					} else if step == 3 {
						g[5000] = 0
					}
					torchx.Copy(p.Grad(), torchx.From(g, n))
					a.StepClipped(1e-2, tc.clip, torchx.SumSquares(p.Grad()), torchx.ToLike(torchx.From([]float32{1, 2}, 2), p.Flat()), true)
					if step >= 2 && tc.bad != 0 {
						a.Refused()
					}
				}
				m, _, _ = a.State()
				return p.Values(), m, torchx.Data[float32](p.Grad()), a.Steps()
			}
			w, m, g, steps := run("cuda:0")
			cw, cm, cg, csteps := run("cpu")
			if steps != csteps || largest(w, cw) > 1e-6 || largest(m, cm) > 1e-6 || tc.bad == 0 && largest(g, cg) > 0 {
				t.Errorf("%d steps, want %d; weights differ by %g, moments by %g, the gradient by %g", steps, csteps, largest(w, cw),
					largest(m, cm), largest(g, cg))
			}
		})
	}
}
