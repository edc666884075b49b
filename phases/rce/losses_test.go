package rce

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/testkit/phasetest"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/objective"
	"fulcrum/rewardutil/schedule"
	"fulcrum/selector"
)

// lossesFixture is testdata/losses.json: groups of log-probabilities s, of a reference too, and rewards r; what the formulas of public
// implementations make of them in float64 (allRank's listNet and rankNet, the latter weighted by gaps that add up to 1; the sigmoid loss
// of TRL's DPOTrainer), and the gradient with respect to s by central differences.
type lossesFixture struct {
	Tau, Beta float64
	Groups    []struct{ S, Ref, R []float64 }
	Losses    map[string]struct {
		Loss float64
		Grad [][]float64
	}
}

func readFixture(t *testing.T) (fx lossesFixture) {
	t.Helper()
	text, err := os.ReadFile("testdata/losses.json")
	if err == nil {
		err = json.Unmarshal(text, &fx)
	}
	if err != nil {
		t.Fatal(err)
	}
	return fx
}

// scripted is a policy whose only parameters are the log-probabilities of the steps of its recorded candidates. It is their source too.
type scripted struct {
	selector.Policy
	fx     lossesFixture
	g      int
	params *torchx.Params
}

// newScripted spreads the log-probability of each candidate over two steps.
func newScripted(fx lossesFixture, of func(i int) []float64) scripted {
	p := scripted{fx: fx, g: 5}
	values := make([]float32, len(fx.Groups)*p.g*2)
	for i := range fx.Groups {
		for c, s := range of(i) {
			at := (i*p.g + c) * 2
			values[at], values[at+1] = float32(0.25*s), float32(0.75*s)
		}
	}
	p.params = torchx.NewParams([]torchx.Spec{{Name: "logp", Shape: []int{len(values)}}}, "cpu")
	p.params.SetValues(values)
	return p
}

func (p scripted) Params() *torchx.Params { return p.params }
func (p scripted) Clone() selector.Policy {
	return newScripted(p.fx, func(i int) []float64 { return p.fx.Groups[i].Ref })
}
func (p scripted) Free() {}

// Forward looks candidates up by their action, which is their number.
func (p scripted) Forward(b *selector.Batch, _ selector.ForwardOptions) selector.Output {
	var at []int64
	for i, q := range b.Queries {
		for g := range b.G {
			first := (int64(q*p.g) + b.Actions[(i*b.G+g)*2]) * 2
			at = append(at, first, first+1)
		}
	}
	index := torchx.From(at, len(at))
	logp := torchx.Reshape(torchx.IndexSelect(p.params.Get("logp"), 0, index), b.B(), b.G, 2)
	return selector.Output{LogP: torchx.Mul(logp, objective.Mask(logp, b))}
}

func (p scripted) Name() string   { return "scripted" }
func (p scripted) Len() int       { return len(p.fx.Groups) }
func (p scripted) ID(i int) int64 { return int64(i) }
func (p scripted) Recorded(queries []int) *selector.Batch {
	b := selector.NewBatch(p, queries, p.g, 2)
	for i, q := range queries {
		for c, r := range p.fx.Groups[q].R {
			b.Set(i, c, []int64{int64(c), int64(c)}, r)
		}
	}
	return b
}

// TestLossesAgainstPublicFormulas: loss and gradient of a step are those of the fixture, whole and in micro batches.
func TestLossesAgainstPublicFormulas(t *testing.T) {
	fx := readFixture(t)
	if len(fx.Losses) != len(Losses()) {
		t.Fatalf("%d losses in the fixture, %d in the table", len(fx.Losses), len(Losses()))
	}
	for _, loss := range Losses() {
		for _, micro := range []*int{nil, new(1), new(2)} {
			opt := DefaultOptions()
			opt.Loss, opt.Rewards, opt.Beta, opt.MicroBatch = loss.Name, "raw", fx.Beta, micro
			opt.Temperature.Start, opt.Temperature.End = fx.Tau, fx.Tau
			policy := newScripted(fx, func(i int) []float64 { return fx.Groups[i].S })
			phase := New(opt, phases.DefaultOptimOptions(), schedule.LROptions{Name: "constant"}, policy, 3, 0)
			if err := phase.Begin(&phases.Env{Policy: policy, Initial: policy}, 10); err != nil {
				t.Fatal(err)
			}
			phase.learn.Optimizer.KeepGrad = true
			m, err := phasetest.Row(phase.Step(context.Background(), phases.At{Epoch: 1, Queries: []int{0, 1, 2}}))
			if err != nil {
				t.Fatal(err)
			}
			want := fx.Losses[loss.Name]
			if got := m["loss"].(float64); math.Abs(got-want.Loss) > 2e-6*math.Max(1, math.Abs(want.Loss)) {
				t.Errorf("%s: loss %.8g, want %.8g", loss.Name, got, want.Loss)
			}
			grad := policy.params.Grad().Floats()
			for i, row := range want.Grad {
				for c := range policy.g {
					g := 0.0
					if c < len(row) {
						g = row[c]
					}
					if got := grad[(i*policy.g+c)*2]; math.Abs(got-g) > 2e-6 {
						t.Errorf("%s: group %d, candidate %d has gradient %.8g, want %.8g", loss.Name, i, c, got, g)
					}
				}
			}
			phase.End()
		}
	}
}

// What does not go together is refused by the key.
func TestLossesRefuse(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"loss: want one of":                     func(o *Options) { o.Loss = "pairwize" },
		"average: want sequence with loss=dpo":  func(o *Options) { o.Loss, o.Average = "dpo", "token" },
		"top1_only: want false":                 func(o *Options) { o.Loss, o.Top1Only = "list_net", true },
		"loss: want another with rollout=onlin": func(o *Options) { o.Loss, o.Rollout = "expected_reward", "online" },
		"loss: want expected_reward, list_net":  func(o *Options) { o.Loss, o.Rollout = "pairwise", "enumerated" },
	} {
		o := DefaultOptions()
		if err := o.Validate(); err != nil {
			t.Fatal(err)
		}
		change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestRoundingIsNoGap: rewards that differ by rounding alone teach no pair; a third of such a group's loss would else be noise.
func TestRoundingIsNoGap(t *testing.T) {
	tenth := 0.1
	rewards := []float64{0.3, tenth + 0.2, 0.3 /**/, 0.3, 0.4, 0.3}
	targets, groups := gaps(rewards, slices.Repeat([]bool{true}, 6), 3)
	if groups != 1 || rewards[0] == rewards[1] || !slices.Equal(targets[:9], make([]float64, 9)) || math.Abs(targets[9+3]-0.5) > 1e-12 {
		t.Errorf("%d groups, gaps %v", groups, targets)
	}
}
