package pointer

import (
	"math"
	"slices"

	"fulcrum/internal/option"
	"fulcrum/internal/torchx"
)

// StopOptions adds an action that ends the selection (v4-10). It is the last column of the logits; selector.Batch and
// predictions call it Stop. Its logit is relative to what is left of the pool, so that stopping is a decision of its own,
// whatever the size of the pool and the scale of the scores:
//
//	logit_stop = LSE(logits of the rest) + s·v / temperature + b,   that is π(stop) = σ(s·v / temperature + b)
//
// Greedy decoding stops where π(stop) beats every single candidate, so the start is a small one: a fresh policy, whose
// distribution over the pool is flat, should not stop at once.
//
// A selection of shot_num examples, or of the whole pool, ends by itself and has no such step.
type StopOptions struct {
	// let the policy end a selection before shot_num examples
	Enabled bool `koanf:"stop" when:"!head=none"`
	// examples before it may stop
	MinShots int `koanf:"min_shots" range:"[1,1000]" when:"stop"`
	// probability of stopping at the start, before each choice where it may
	Initial float64 `koanf:"stop_initial" range:"(0,1)" constant:"true"`
}

// Stop is the action that ends a selection.
const Stop = -1

func (o StopOptions) validate(all Options) error {
	if o.Enabled && all.ShotNum != nil && o.MinShots > *all.ShotNum {
		return option.Errorf("min_shots", "want at most shot_num = %d, got %d", *all.ShotNum, o.MinShots)
	}
	return nil
}

func (o StopOptions) weights(h int) []weight {
	if !o.Enabled {
		return nil
	}
	return []weight{
		{name: "stop.vector", shape: []int{1, h}, start: zeros},
		{name: "stop.bias", shape: []int{1}, start: constant(math.Log(o.Initial / (1 - o.Initial)))},
	}
}

// MayStop reports whether the last action of a distribution is Stop.
func (p *Policy) MayStop() bool { return p.opt.Stop.Enabled }

// withStop appends the column of Stop to the logits of the pool z [B, R, K], where what was taken is excluded already:
// [B, R, K+1].
func (p *Policy) withStop(r rows, query, z torchx.Tensor, temperature float64) torchx.Tensor {
	// [B, 1 | steps | R, 1]
	odds := torchx.Linear(torchx.Scale(query, 1/p.opt.Temperature), p.params.Get("stop.vector"), p.params.Get("stop.bias"))
	stop := torchx.Add(r.repeated(scaled(odds, temperature)), torchx.LogSumExp(z, 2, true)) // [B, R, 1]
	if early := (rows{r.first, min(r.last, p.opt.Stop.MinShots-1), r.n, r.chosen}).total(); early > 0 {
		b, all := stop.Shape()[0], r.total()
		stop = torchx.Cat(1, torchx.FullLike(z, impossible, p.dtype, b, early, 1), torchx.Narrow(stop, 1, early, all-early))
	}
	return torchx.Cat(2, z, stop)
}

// columns are the logits' columns of actions on the host, and the positions that choosing them takes: Stop is column k
// and takes nothing.
func (p *Policy) columns(actions []int64, k int) (column, position []int64) {
	if !p.opt.Stop.Enabled {
		return actions, actions
	}
	column, position = make([]int64, len(actions)), make([]int64, len(actions))
	for i, a := range actions {
		if column[i], position[i] = a, a; a == Stop {
			column[i], position[i] = int64(k), 0
		}
	}
	return column, position
}

// uncolumn is columns' inverse for one selection: its actions up to and with Stop.
func (p *Policy) uncolumn(columns []int64, k int) []int64 {
	for t, c := range columns {
		if c == int64(k) {
			return append(slices.Clone(columns[:t]), Stop)
		}
	}
	return columns
}
