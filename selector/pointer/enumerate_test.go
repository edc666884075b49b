package pointer

import (
	"math"
	"strings"
	"testing"

	"fulcrum/beamdata"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

// TestEnumerate: the selections of a query are all different, and a policy's probabilities of them add up to 1: an expected reward over
// them is the policy's own.
func TestEnumerate(t *testing.T) {
	src := scene(t, 8, 2) // pools of 5, 8, 11 …
	b, err := src.Enumerate([]int{0, 1, 2}, 2)
	if err != nil {
		t.Fatal(err)
	}
	if b.G != 110 || b.NumValid() != 20+56+110 {
		t.Fatalf("groups of %d, %d selections, want 110 and 186", b.G, b.NumValid())
	}
	logp := policy(t, DefaultOptions(), 8).Forward(b, selector.ForwardOptions{}).LogP.Floats()
	for i := range b.B() {
		sum, seen := 0.0, map[[2]int64]bool{}
		for g := range b.G {
			if at := i*b.G + g; b.Valid[at] {
				sum += math.Exp(logp[2*at] + logp[2*at+1])
				seen[[2]int64(b.Scored(i, g))] = true
			}
		}
		k := src.Set().PoolSize(i)
		if math.Abs(sum-1) > 1e-5 || len(seen) != k*(k-1) {
			t.Errorf("query %d: probabilities add up to %g over %d selections, want 1 over %d", i, sum, len(seen), k*(k-1))
		}
	}
}

// TestPairsShareFirstChoices: where pairs outnumber the pool their second steps are scored once for each first choice, with the numbers,
// distributions and gradients that the same pairs have a few at a time.
func TestPairsShareFirstChoices(t *testing.T) {
	const few = 10 // below the largest pool of 11
	for _, v := range presets() {
		t.Run(v.name, func(t *testing.T) {
			defer torchx.Scope()()
			src := scene(t, 8, 2)
			b, err := src.Enumerate([]int{0, 1, 2}, 2)
			if err != nil {
				t.Fatal(err)
			}
			p := policy(t, v.opt, 8)
			score := func(b *selector.Batch) (logp, dist []float64) {
				out := p.Forward(b, selector.ForwardOptions{Dist: true})
				weights := make([]float32, b.B()*b.G*b.T)
				for at := range weights {
					weights[at] = float32(b.Actions[at]+1) * b.Mask[at]
				}
				torchx.Backward(torchx.Sum(torchx.Mul(out.LogP, torchx.From(weights, b.B(), b.G, b.T))))
				return out.LogP.Floats(), out.Dist.Floats()
			}
			p.Params().ZeroGrad()
			logp, dist := score(b)
			grad := p.Params().Grad().Floats()
			p.Params().ZeroGrad()
			actions := len(dist) / len(logp)
			for from := 0; from < b.G; from += few {
				part := selector.NewBatch(src, b.Queries, few, 2)
				for i := range b.B() {
					for g := range few {
						if b.Valid[i*b.G+from+g] {
							part.Set(i, g, b.Scored(i, from+g), 0)
						}
					}
				}
				gotP, gotD := score(part)
				for i := range b.B() {
					for n := range 2 * few {
						all, at := 2*(i*b.G+from)+n, 2*i*few+n
						if part.Mask[at] == 0 {
							continue
						}
						if math.Abs(gotP[at]-logp[all]) > 1e-5 {
							t.Fatalf("query %d: %g together, %g a few at a time", i, logp[all], gotP[at])
						}
						for a := range actions {
							if x, y := dist[all*actions+a], gotD[at*actions+a]; math.Abs(math.Exp(x)-math.Exp(y)) > 1e-5 {
								t.Fatalf("query %d: a distribution has %g together, %g a few at a time", i, x, y)
							}
						}
					}
				}
			}
			for i, g := range p.Params().Grad().Floats() {
				if math.Abs(g-grad[i]) > 1e-3*(1+math.Abs(g)) {
					t.Fatalf("gradient %d: %g together, %g a few at a time", i, grad[i], g)
				}
			}
		})
	}
}

func TestEnumerateIsBounded(t *testing.T) {
	var pool []int32
	for i := range int32(150) {
		pool = append(pool, i+1)
	}
	set, err := beamdata.NewSet("train", beamdata.NewTable(151, 2, make([]float32, 302)), 2, []beamdata.Query{{ID: 0, Pool: pool}}, byQuery{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = NewSource(set).Enumerate([]int{0}, 2)
	if err == nil || !strings.Contains(err.Error(), "query 0: 2 of a pool of 150 are more than 20000 selections") {
		t.Errorf("error %v", err)
	}
}
