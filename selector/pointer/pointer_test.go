package pointer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"fulcrum/beamdata"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

func TestMain(m *testing.M) {
	if err := torchx.Load(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// scene is a small set with pools of different sizes and random candidates.
func scene(t *testing.T, dim, shots int) *Source {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	const rows = 40
	data := make([]float32, rows*dim)
	for i := range data {
		data[i] = float32(r.NormFloat64())
	}
	queries := make([]beamdata.Query, 6)
	for i := range queries {
		k := 5 + 3*i
		perm := r.Perm(rows - 6)
		pool := make([]int32, k)
		for j := range pool {
			pool[j] = int32(perm[j] + 6)
		}
		q := beamdata.Query{ID: int64(i), Pool: pool}
		for range 2 + i {
			p := r.Perm(k)[:shots]
			pos := make([]int32, shots)
			for s := range pos {
				pos[s] = int32(p[s])
			}
			q.Candidates = append(q.Candidates, pos)
			q.Rewards = append(q.Rewards, r.Float64())
		}
		queries[i] = q
	}
	set, err := beamdata.NewSet("scene", beamdata.NewTable(rows, dim, data), shots, queries, rewardOf{})
	if err != nil {
		t.Fatal(err)
	}
	return NewSource(set)
}

// rewardOf prefers small positions.
type rewardOf struct{}

func (rewardOf) Score(_ int, positions []int32) (float64, float64) {
	s := 0.0
	for _, p := range positions {
		s += 1 / float64(1+p)
	}
	return s, math.NaN()
}

func policy(t *testing.T, opt Options, dim int) *Policy {
	t.Helper()
	torchx.Attach(1)
	p, err := New(opt, dim, 3, "cpu")
	if err != nil {
		t.Fatal(err)
	}
	// away from the initial identity, zeros and ones, so that every parameter matters
	r := rand.New(rand.NewPCG(5, 6))
	v := p.Params().Values()
	for i := range v {
		v[i] += float32(0.1 * r.NormFloat64())
	}
	p.Params().SetValues(v)
	t.Cleanup(p.Free)
	return p
}

func variants() map[string]Options {
	small := DefaultOptions()
	small.HiddenDim = 8
	heads := small
	heads.NumHeads, heads.NumLayers = 2, 3
	skip := small
	skip.Skip = SkipOptions{Enabled: true, Scale: 4, LearnedScale: 0.5}
	compat := small
	compat.Taken = "minus_100"
	none := small
	none.StateUpdate = "none"
	relation := skip
	relation.Relation = RelationOptions{Scale: new(3.0), RowLength: new(2.5), Bilinear: "free", GateDim: 5, ProductDim: 6, GateInitial: 2}
	only := relation
	only.Head, only.Relation.Bilinear = "none", "symmetric"
	square := small // d = h: no input projection
	return map[string]Options{"v3": small, "heads and layers": heads, "skip": skip, "minus_100": compat, "no state update": none,
		"square": square, "relation": relation, "relation only": only}
}

func width(name string) int {
	if name == "square" {
		return 8
	}
	return 12
}

// TestForwardEqualsThePlainModel compares the folded, shared, padded forward pass with the parity spec's
// text written out one query and one candidate at a time in float64.
func TestForwardEqualsThePlainModel(t *testing.T) {
	for name, opt := range variants() {
		t.Run(name, func(t *testing.T) {
			src := scene(t, width(name), 3)
			p := policy(t, opt, width(name))
			defer torchx.Scope()()
			b := src.Recorded([]int{4, 0, 5, 2})
			for _, dist := range []bool{false, true} {
				out := p.Forward(b, selector.ForwardOptions{Dist: dist, Temperature: 1.3})
				got := out.LogP.Floats()
				for i, q := range b.Queries {
					for g := range b.G {
						if !b.Valid[i*b.G+g] {
							continue
						}
						want := plain(p, src, q, actionsOf(b, i, g), 1.3)
						at := (i*b.G + g) * b.T
						golden.Close(t, got[at:at+b.T], want, 3e-5) // float32 logits of size 10: a few 1e-6 a term
					}
				}
			}
		})
	}
}

// TestGradientAlongItself: a small step against the gradient lowers the loss as the gradient's norm
// says. float32 allows 1 %; per-operation gradients are checked in float64 in package torchx.
func TestGradientAlongItself(t *testing.T) {
	for name, opt := range variants() {
		t.Run(name, func(t *testing.T) {
			src := scene(t, width(name), 3)
			p := policy(t, opt, width(name))
			defer torchx.Scope()()
			b := src.Recorded([]int{1, 3, 5})
			loss := func() torchx.Tensor {
				return torchx.Neg(torchx.Mean(p.Forward(b, selector.ForwardOptions{}).LogP))
			}
			p.Params().ZeroGrad()
			torchx.Backward(loss())
			norm := p.Params().GradNorm()
			at, grad := p.Params().Values(), p.Params().Grad().Floats()
			move := func(eps float64) float64 {
				v := append([]float32(nil), at...)
				for i := range v {
					v[i] -= float32(eps * grad[i] / norm)
				}
				p.Params().SetValues(v)
				return loss().Item()
			}
			const eps = 3e-3
			slope := (move(-eps) - move(eps)) / (2 * eps)
			if math.Abs(slope-norm) > 0.01*norm {
				t.Errorf("slope along the gradient %g, want its norm %g", slope, norm)
			}
		})
	}
}

// TestStartIsSimilarity: with the skip term, learned_scale 0 and every part of the relation, the greedy
// selection of an untrained selector is exactly similarity top-S.
func TestStartIsSimilarity(t *testing.T) {
	src := scene(t, 12, 2)
	opt := DefaultOptions()
	opt.HiddenDim, opt.Skip.Enabled = 8, true
	opt.Relation = RelationOptions{Scale: new(20.0), Bilinear: "symmetric", GateDim: 4, ProductDim: 4, GateInitial: 5}
	torchx.Attach(1)
	p, err := New(opt, 12, 1, "cpu")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Free()
	queries := []int{0, 1, 2, 3, 4, 5}
	want := beamdata.Similarity(src.set, 4)
	b, _ := p.Decode(src, queries, 4, 1)
	for i := range queries {
		for s, a := range actionsOf(b, i, 0) {
			if int32(a) != want[i][s] {
				t.Errorf("query %d: selected %v, similarity selects %v", i, actionsOf(b, i, 0), want[i])
				break
			}
		}
	}
}

// TestBeamSearchIsExhaustiveWhenWide: a beam as wide as the pool squared finds the best pair, its score
// is the policy's own log-probability, and width 1 is greedy.
func TestBeamSearchIsExhaustiveWhenWide(t *testing.T) {
	src := scene(t, 12, 2)
	p := policy(t, variants()["v3"], 12)
	defer torchx.Scope()()
	const q = 1
	k := len(src.set.Pool(q))
	b, scores := p.Decode(src, []int{q}, 2, k*(k-1))
	best, bestPair := math.Inf(-1), [2]int64{}
	for i := range k {
		for j := range k {
			if i == j {
				continue
			}
			pair := []int64{int64(i), int64(j)}
			if lp := plain(p, src, q, pair, 1); lp[0]+lp[1] > best {
				best, bestPair = lp[0]+lp[1], [2]int64{pair[0], pair[1]}
			}
		}
	}
	if got := actionsOf(b, 0, 0); got[0] != bestPair[0] || got[1] != bestPair[1] {
		t.Errorf("best beam %v, exhaustive best %v", got, bestPair)
	}
	golden.Close(t, scores[:1], []float64{best}, 3e-5)
	if b.NumValid() != k*(k-1) {
		t.Errorf("%d beams, want all %d ordered pairs", b.NumValid(), k*(k-1))
	}
	greedy, _ := p.Decode(src, []int{q}, 2, 1)
	first := actionsOf(greedy, 0, 0)[0]
	for j := range k {
		if plain(p, src, q, []int64{int64(j)}, 1)[0] > plain(p, src, q, []int64{first}, 1)[0]+1e-6 {
			t.Errorf("greedy took %d, %d is more probable", first, j)
		}
	}
}

// TestSamplesFollowThePolicy: frequencies of sampled pairs agree with the policy's probabilities (χ²).
func TestSamplesFollowThePolicy(t *testing.T) {
	src := scene(t, 12, 2)
	p := policy(t, variants()["v3"], 12)
	const q, n = 0, 20000
	b := p.Sample(src, []int{q}, n, 2, 1.7, 11)
	counts := map[[2]int64]float64{}
	for g := range n {
		a := actionsOf(b, 0, g)
		if a[0] == a[1] {
			t.Fatal("an example was chosen twice")
		}
		counts[[2]int64{a[0], a[1]}]++
	}
	k, chi, cells := int64(len(src.set.Pool(q))), 0.0, 0
	for i := range k {
		for j := range k {
			if i == j {
				continue
			}
			lp := plain(p, src, q, []int64{i, j}, 1.7)
			want := n * math.Exp(lp[0]+lp[1])
			if want < 5 {
				continue
			}
			chi += (counts[[2]int64{i, j}] - want) * (counts[[2]int64{i, j}] - want) / want
			cells++
		}
	}
	// χ² has mean = cells and standard deviation √(2·cells): 5 of them is one false alarm in a million.
	if limit := float64(cells) + 5*math.Sqrt(2*float64(cells)); cells < 10 || chi > limit {
		t.Errorf("χ² = %.1f over %d cells, want at most %.1f", chi, cells, limit)
	}
	again := p.Sample(src, []int{q}, n, 2, 1.7, 11)
	for i := range b.Actions {
		if b.Actions[i] != again.Actions[i] {
			t.Fatal("equal seeds gave different samples")
		}
	}
}

// TestOldLogProbsOfTheReference loads the reference's own checkpoint, embeddings and beams and compares
// the log-probabilities it recorded (parity pack, scenarios with pools of their own).
func TestOldLogProbsOfTheReference(t *testing.T) {
	for _, tc := range []struct {
		scenario, init string
		heads          int
	}{
		{"b_rl_hard_plus_soft", "L1/init.pt", 1},
		{"b_rl_hard_plus_soft", "L1/init.ckpt", 1},
		{"c_layers3", "L3/init.pt", 1},
		{"e_shots4_heads4_fixed", "L1/init.pt", 4},
	} {
		t.Run(tc.scenario+" "+filepath.Base(tc.init), func(t *testing.T) {
			var want struct {
				Config struct {
					Files map[string]string `json:"files"`
				} `json:"config"`
				Old []any `json:"old_log_probs"`
			}
			golden.JSON(t, golden.Shared(t, "parity", "scenarios", tc.scenario, "expected.json"), &want)
			opt := beamdata.DefaultOptions()
			opt.Name = "beams"
			beams, emb := golden.Shared(t, "parity", want.Config.Files["beams"]), golden.Shared(t, "parity", want.Config.Files["emb"])
			opt.Beams, opt.Embeddings, opt.TrainRatio = &beams, &emb, 1
			bundle, err := beamdata.Load(opt)
			if err != nil {
				t.Fatal(err)
			}
			set := bundle.RCE
			sel := DefaultOptions()
			sel.NumHeads, sel.Taken = tc.heads, "minus_100"
			torchx.Attach(1)
			p, err := Open(golden.Shared(t, "parity", "inits", tc.init),
				OpenOptions{Options: sel, Dim: set.Table.Dim, Device: "cpu", Strict: true})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Free()
			index := map[int64]int{}
			for i, id := range set.IDs {
				index[id] = i
			}
			src, seen := NewSource(set), 0
			for _, entry := range want.Old {
				pair := entry.([]any)
				q, ok := index[int64(pair[0].(float64))]
				if !ok {
					t.Fatalf("query %v was not loaded", pair[0])
				}
				func() {
					defer torchx.Scope()()
					got := torchx.Sum(p.Forward(src.Recorded([]int{q}), selector.ForwardOptions{}).LogP, 2).Floats()
					var beams []float64
					for _, x := range pair[1].([]any) {
						beams = append(beams, x.(float64))
					}
					golden.Close(t, got, beams, 2e-5) // the pack's tolerance
				}()
				seen++
			}
			if seen < 10 {
				t.Errorf("only %d queries compared", seen)
			}
		})
	}
}
