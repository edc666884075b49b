package phases

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/rewardutil/schedule"
	"fulcrum/selector"
)

// ofParams is a policy of which only the parameters are asked for.
type ofParams struct {
	selector.Policy
	p *torchx.Params
}

func (p ofParams) Params() *torchx.Params { return p.p }

// The merger and the vision tower learn at rates of their own, all by the phase's schedule; frozen parameters stay.
func TestLearningRatesOfParts(t *testing.T) {
	names := []string{"model.layers.0.mlp.up_proj.weight", "model.visual.merger.mlp.0.weight", "visual.blocks.0.attn.qkv.weight",
		"visual.merger.ln_q.weight"}
	specs := make([]torchx.Spec, len(names))
	for i, name := range names {
		specs[i] = torchx.Spec{Name: name, Shape: []int{1}}
	}
	projector, tower := 4e-3, 1e-3
	for _, tc := range []struct {
		name   string
		opt    func(*OptimOptions)
		freeze []string
		want   []float64 // what the first step of Adam moves each by: its learning rate
	}{
		{"one rate", func(*OptimOptions) {}, nil, []float64{2e-3, 2e-3, 2e-3, 2e-3}},
		{"merger and tower", func(o *OptimOptions) { o.ProjectorLR, o.TowerLR = &projector, &tower }, nil, []float64{2e-3, 4e-3, 1e-3, 4e-3}},
		{"merger alone", func(o *OptimOptions) { o.ProjectorLR = &projector }, nil, []float64{2e-3, 4e-3, 2e-3, 4e-3}},
		{"with a frozen part", func(o *OptimOptions) { o.ProjectorLR = &projector }, []string{"merger.ln_q"}, []float64{2e-3, 4e-3, 2e-3, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := torchx.NewParams(specs, "cpu")
			defer p.Free()
			opt := DefaultOptimOptions()
			opt.WeightDecay, opt.GradClipNorm = 0, 0
			tc.opt(&opt)
			l, err := NewLearner(&Env{Policy: ofParams{p: p}}, "rce", opt, 2e-3, schedule.LROptions{Name: "constant", WarmupRatio: 0.4}, 10,
				tc.freeze)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Free()
			before := p.Values()
			defer torchx.Scope()()
			m, err := NewSteps[none, none](l, filled{p, 1}, nil).Make(context.Background(), At{})
			if err != nil {
				t.Fatal(err)
			}
			moved := make([]float64, len(names))
			for i, x := range p.Values() {
				moved[i] = 4 * float64(before[i]-x) // the first of four steps of warm-up
			}
			golden.Close(t, moved, tc.want, 1e-8) // float32 parameters near 0
			golden.Close(t, []float64{m.LR}, []float64{5e-4}, 1e-15)
			if rate := m.ProjectorLR; (rate != nil) != (opt.ProjectorLR != nil) || rate != nil && math.Abs(*rate-projector/4) > 1e-15 {
				t.Errorf("lr_mm_projector %v, want %v where the merger has a rate of its own", rate, projector/4)
			}
		})
	}
}

// filled is an algorithm whose gradient is the same number everywhere, with one operation.
type filled struct {
	p     *torchx.Params
	value float64
}

type none struct{}

func (filled) Collect(context.Context, At) (none, error) { return none{}, nil }

func (filled) Size(none) int { return 1 }

func (filled) Inputs(none, Span, *Inputs) (none, bool) { return none{}, true }

func (f filled) Loss(none) (torchx.Tensor, []torchx.Tensor) {
	torchx.Copy(f.p.Grad(), torchx.Full(f.value))
	return torchx.Scale(torchx.Sum(f.p.Get(f.p.Names()[0])), 0), nil
}

func TestLearningRateOfAPartThatIsNotTrained(t *testing.T) {
	p := torchx.NewParams([]torchx.Spec{{Name: "model.norm.weight", Shape: []int{2}}}, "cpu")
	defer p.Free()
	opt, rate := DefaultOptimOptions(), 1e-5
	opt.TowerLR = &rate
	_, err := NewLearner(&Env{Policy: ofParams{p: p}}, "rce", opt, 1e-4, schedule.LROptions{Name: "constant"}, 10, nil)
	if want := "optim.vision_tower_lr=1e-05: that part is frozen"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestAStepHasNoOperationForEachParameter: norm, clipping, optimizer and the numbers of the row are as many operations for a thousand
// parameters as for one, with one read-back.
func TestAStepHasNoOperationForEachParameter(t *testing.T) {
	var counted [2]torchx.Counts
	for i, n := range []int{1, 1000} {
		specs := make([]torchx.Spec, n)
		for j := range specs {
			specs[j] = torchx.Spec{Name: fmt.Sprint("weight", j), Shape: []int{3}}
		}
		p := torchx.NewParams(specs, "cpu")
		defer p.Free()
		l, err := NewLearner(&Env{Policy: ofParams{p: p}}, "rce", DefaultOptimOptions(), 1e-3, schedule.LROptions{Name: "constant"}, 10, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Free()
		defer torchx.Scope()()
		before := torchx.Counted()
		m, err := NewSteps[none, none](l, filled{p, 2}, nil).Make(context.Background(), At{})
		if counted[i] = torchx.Counted().Minus(before); err != nil || math.Abs(m.GradNorm-2*math.Sqrt(float64(3*n))) > 1e-9*m.GradNorm {
			t.Fatalf("%d parameters: norm %v, %v", n, m.GradNorm, err)
		}
	}
	if counted[0] != counted[1] || counted[0].ReadBacks != 1 {
		t.Errorf("a step over one parameter %+v, over a thousand %+v: want the same, and one read-back", counted[0], counted[1])
	}
}
