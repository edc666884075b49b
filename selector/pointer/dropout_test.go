package pointer

import (
	"math"
	"slices"
	"testing"

	"fulcrum/internal/rng"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

// TestDropoutBelongsToQueries: with dropout, log-probabilities and gradients of a batch are those of its queries one by
// one, for every preset and every pair of choices, in float64. So micro_batch changes no mask.
func TestDropoutBelongsToQueries(t *testing.T) {
	silent := 0
	for _, v := range all() {
		t.Run(v.name, func(t *testing.T) {
			v.opt.Dropout, v.opt.AttnDropout = 0.4, 0.3
			p, b := v.stage(t)
			run := func(train bool, seed uint64, parts ...*selector.Batch) (logp, grad []float64) {
				defer torchx.Scope()()
				p.params.ZeroGrad()
				for _, part := range parts {
					out := p.Forward(part, selector.ForwardOptions{Train: train, DropoutSeed: seed}).LogP
					logp = append(logp, out.Floats()...)
					torchx.Backward(torchx.Sum(out))
				}
				return logp, p.params.Grad().Floats()
			}
			logp, grad := run(true, 7, b)
			for _, parts := range [][]*selector.Batch{{b.Part(0, 1), b.Part(1, 2), b.Part(2, 3)}, {b.Part(0, 2), b.Part(2, 3)},
				{b.Groups([]int{2}), b.Groups([]int{1, 0})}} {
				got, gradient := run(true, 7, parts...)
				if parts[0].Queries[0] == 2 { // in another order
					n := b.G * b.T
					got = slices.Concat(got[2*n:], got[n:2*n], got[:n])
				}
				golden.Close(t, got, logp, 1e-8) // float64, and skip cosines rounded to float32
				golden.Close(t, gradient, grad, 1e-6)
			}
			plain, _ := run(false, 7, b)
			other, _ := run(true, 8, b)
			if v.opt.encodes() && (slices.Equal(logp, plain) || slices.Equal(logp, other)) {
				silent++
				t.Log("dropout changes nothing")
			}
		})
	}
	if silent > 0 {
		t.Errorf("dropout changes nothing, or the same for two seeds, in %d selectors", silent)
	}
}

// TestDropoutRate: entries are dropped at the rate, independently of their neighbours in a row and a column.
func TestDropoutRate(t *testing.T) {
	const rows, width, rate = 400, 100, 0.3
	dropped, pairs, below := 0.0, 0.0, 0.0
	out := func(i, j int) float64 {
		if kept(rng.Key(5, "state", 0, i), j, rate) == 0 {
			return 1
		}
		return 0
	}
	for i := range rows {
		for j := range width {
			dropped += out(i, j)
			pairs += out(i, j) * out(i, j+1)
			below += out(i, j) * out(i+1, j)
		}
	}
	const n = rows * width
	for _, c := range []struct{ got, want float64 }{{dropped / n, rate}, {pairs / n, rate * rate}, {below / n, rate * rate}} {
		if math.Abs(c.got-c.want) > 4*math.Sqrt(c.want*(1-c.want)/n)*1.3 { // 1.3: neighbouring pairs share an entry
			t.Errorf("share %.4f, want %.4f", c.got, c.want)
		}
	}
	if k := kept(1, 1, rate); k != 0 && k != float32(1/(1-rate)) {
		t.Errorf("kept entries are multiplied by %g", k)
	}
}
