package pointer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"fulcrum/beamdata"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

// variant is a selector and the data to try it on.
type variant struct {
	name   string
	opt    Options
	shots  int
	shared bool // one pool for all queries
	square bool // d = h: no input projection
}

// presets are configs/conf/selector/v*.yaml at a small size.
func presets() []variant {
	v := func(name string, shots int, edit func(*Options)) variant {
		opt := DefaultOptions()
		opt.Variant, opt.HiddenDim = name, 4
		edit(&opt)
		return variant{name: name, opt: opt, shots: shots}
	}
	kind := func(k string) func(*Options) {
		return func(o *Options) { o.Diversity.Kind, o.Diversity.Prototypes = k, 3 }
	}
	four := 4
	return []variant{
		v("v0", 3, func(o *Options) {
			o.NumLayers, o.StateUpdate, o.Transformer = 0, "transformer", TransformerOptions{Layers: 2, Heads: 2, FFNDim: 5}
		}),
		v("v1", 2, func(o *Options) { o.NumLayers, o.StateUpdate = 0, "scalar_gate" }),
		v("v2", 2, func(o *Options) { o.StateUpdate = "none" }),
		v("v3", 2, func(*Options) {}),
		v("v4_2", 3, func(o *Options) { o.StateUpdate = "gru" }),
		v("v4_3", 3, kind("mmr")),
		v("v4_4", 2, func(o *Options) { o.CandidateEncoder = CandidateEncoderOptions{Layers: 1, Heads: 2, FFNDim: 5} }),
		v("v4_5", 2, func(o *Options) { o.Head = "additive" }),
		v("v4_5_bilinear", 2, func(o *Options) { o.Head = "bilinear" }),
		v("v4_6", 3, kind("coverage")),
		v("v4_7", 3, kind("logdet")),
		v("v4_8", 3, func(o *Options) { o.Decoder, o.StateUpdate = "slots", "none" }),
		v("v4_9", 2, func(o *Options) { o.Coarse = CoarseOptions{TopM: &four, Dim: 3} }),
		v("features", 3, func(o *Options) {
			o.Head, o.Skip, o.Features = "none", SkipOptions{Enabled: true, Scale: 4}, someFeatures("similarity", "chosen_similarity", "rank")
		}),
		v("features alone", 2, func(o *Options) { o.Head, o.Features = "none", someFeatures("similarity_1_4", "crowding_max") }),
		v("v4_10", 3, func(o *Options) { o.Stop.Enabled = true }),
	}
}

// someFeatures are features with a scaling that is not theirs.
func someFeatures(names ...string) FeatureOptions {
	o := FeatureOptions{Names: names, Dim: 6}
	for i := range o.list().Columns() + o.list().BesideColumns() {
		o.Scaling.Mean, o.Scaling.Scale = append(o.Scaling.Mean, 0.1*float64(i)), append(o.Scaling.Scale, 0.3+0.2*float64(i))
	}
	return o
}

// factors are the choices that combine freely, each a list of edits.
func factors() [][]func(*variant) {
	var out [][]func(*variant)
	factor := func(edits ...func(*variant)) { out = append(out, edits) }
	update := func(s string) func(*variant) { return func(v *variant) { v.opt.StateUpdate = s } }
	diversity := func(s string) func(*variant) { return func(v *variant) { v.opt.Diversity.Kind = s } }
	head := func(s string) func(*variant) { return func(v *variant) { v.opt.Head = s } }
	keep := func(*variant) {}
	factor(update("none"), update("scalar_gate"), update("gate"), update("gru"), update("transformer"))
	factor(diversity("none"), diversity("mmr"), diversity("coverage"), diversity("logdet"))
	factor(keep, func(v *variant) { v.opt.CandidateEncoder.Layers = 1 }, func(v *variant) { v.opt.CandidateEncoder.Layers = 2 })
	factor(head("cosine"), head("bilinear"), head("additive"))
	factor(keep, func(v *variant) { v.opt.Decoder = "slots" })
	factor(keep, func(v *variant) { m := v.shots + 1; v.opt.Coarse.TopM = &m })
	factor(keep, func(v *variant) { v.opt.Stop.Enabled = true },
		func(v *variant) { v.opt.Stop.Enabled, v.opt.Stop.MinShots = true, min(2, v.shots) })
	factor(keep, func(v *variant) { v.opt.Skip = SkipOptions{Enabled: true, Scale: 4, LearnedScale: 0.5} }, func(v *variant) {
		v.opt.Skip = SkipOptions{Enabled: true, Scale: 4, LearnedScale: 0.5}
		v.opt.Relation = RelationOptions{Scale: new(3.0), Bilinear: "symmetric", GateDim: 2, ProductDim: 3, GateInitial: 2}
	})
	factor(keep, func(v *variant) { v.opt.Features = someFeatures("crowding_mean", "chosen_similarity") })
	factor(func(v *variant) { v.opt.NumLayers = 0 }, keep, func(v *variant) { v.opt.NumLayers = 2 })
	factor(keep, func(v *variant) { v.opt.NumHeads = 2 })
	factor(keep, func(v *variant) { v.shared = true })
	factor(keep, func(v *variant) { v.square = true })
	factor(keep, func(v *variant) { v.opt.DistinctSteps = 2 })
	return out
}

// covering returns variants in which every pair of choices of two factors occurs, and shot counts 1 to 8 beside
// them: a greedy covering array, the same every time.
func covering() []variant {
	all := factors()
	type pair struct{ f, a, g, b int }
	missing := map[pair]bool{}
	for f := range all {
		for g := range f {
			for a := range all[f] {
				for b := range all[g] {
					missing[pair{f, a, g, b}] = true
				}
			}
		}
	}
	covered := func(row []int) (pairs []pair) {
		for f := range all {
			for g := range f {
				if p := (pair{f, row[f], g, row[g]}); missing[p] {
					pairs = append(pairs, p)
				}
			}
		}
		return pairs
	}
	r := rand.New(rand.NewPCG(7, 8))
	var out []variant
	for len(missing) > 0 {
		var best []int
		for range 200 {
			row := make([]int, len(all))
			for f := range row {
				row[f] = r.IntN(len(all[f]))
			}
			if best == nil || len(covered(row)) > len(covered(best)) {
				best = row
			}
		}
		for _, p := range covered(best) {
			delete(missing, p)
		}
		opt := DefaultOptions()
		opt.HiddenDim, opt.Diversity.Prototypes, opt.Coarse.Dim = 4, 3, 3
		opt.Transformer = TransformerOptions{Layers: 1, Heads: 2, FFNDim: 5}
		opt.CandidateEncoder = CandidateEncoderOptions{Heads: 2, FFNDim: 5}
		v := variant{opt: opt, shots: []int{1, 2, 3, 4, 8}[len(out)%5]}
		for f, choice := range best {
			all[f][choice](&v)
		}
		o := v.opt
		v.name = fmt.Sprintf("%02d %s %s enc%d %s %s coarse=%v stop=%v/%d skip=%v layers=%dx%d shared=%v shots=%d", len(out),
			o.StateUpdate, o.Diversity.Kind, o.CandidateEncoder.Layers, o.Head,
			o.Decoder, o.Coarse.TopM != nil, o.Stop.Enabled, o.Stop.MinShots, o.Skip.Enabled, o.NumLayers, o.NumHeads, v.shared, v.shots)
		out = append(out, v)
	}
	return out
}

// stage makes a float64 policy away from its start, so that every parameter matters, and a batch of three queries with
// candidates of the variant's shots; where they may stop, of fewer shots too.
func (v variant) stage(t *testing.T) (*Policy, *selector.Batch) {
	t.Helper()
	torchx.Attach(1)
	dim := 5
	if v.square {
		dim = v.opt.HiddenDim
	}
	if err := v.opt.Validate(); err != nil {
		t.Fatal(err)
	}
	p, err := newPolicy(nil, v.opt, dim, 3, "cpu", torchx.Float64)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Free)
	r := rand.New(rand.NewPCG(5, 6))
	values := p.params.Flat().Floats()
	for i := range values {
		values[i] += 0.2 * r.NormFloat64()
	}
	setFlat(p, values)

	const rows = 40
	data := make([]float32, rows*dim)
	for i := range data {
		data[i] = float32(r.NormFloat64())
	}
	sizes := []int{max(v.shots, 5), v.shots + 4, v.shots + 2}
	queries := make([]beamdata.Query, len(sizes))
	for i := range queries {
		perm := r.Perm(rows - 6)
		pool := make([]int32, sizes[i])
		for j := range pool {
			pool[j] = int32(perm[j] + 6)
		}
		if v.shared && i > 0 {
			pool = queries[0].Pool
		}
		queries[i] = beamdata.Query{ID: int64(i), Pool: pool}
	}
	set, err := beamdata.NewSet("stage", beamdata.NewTable(rows, dim, data), v.shots, queries, rewardOf{})
	if err != nil {
		t.Fatal(err)
	}
	src := NewSource(set)
	const g = 3
	b := selector.NewBatch(src, []int{0, 1, 2}, g, v.shots)
	for i, q := range queries {
		for j := range g - i%2 {
			actions := make([]int64, v.shots)
			for s, a := range r.Perm(len(q.Pool))[:v.shots] {
				actions[s] = int64(a)
			}
			if n := v.opt.Stop.MinShots + j - 1; v.opt.Stop.Enabled && j > 0 && n < v.shots {
				actions = append(actions[:n], Stop)
			}
			b.Set(i, j, actions, 0)
		}
	}
	return p, b
}

func setFlat(p *Policy, values []float64) {
	defer torchx.Scope()()
	torchx.Copy(p.params.Flat(), torchx.From(values, len(values)))
}

func all() []variant { return append(presets(), covering()...) }

// TestVariantsEqualTheirFormulas compares every preset and every pair of choices with the formulas written out plainly, in
// float64: log π of recorded selections, whole distributions (which sum to 1), the entropy, greedy decoding.
func TestVariantsEqualTheirFormulas(t *testing.T) {
	variants := all()
	if len(variants) < 13+16 {
		t.Fatalf("only %d variants", len(variants))
	}
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			p, b := v.stage(t)
			defer torchx.Scope()()
			const temperature, tol = 1.3, 1e-9 // float64 logits of size 30, and skip cosines rounded to float32 in both
			src := b.Source.(*Source)
			out := p.Forward(b, selector.ForwardOptions{Dist: true, Temperature: temperature})
			logp, dist, entropy := out.LogP.Floats(), out.Dist.Floats(), out.Entropy.Floats()
			columns := out.Dist.Shape()[3]
			for i, q := range b.Queries {
				for g := range b.G {
					if !b.Valid[i*b.G+g] {
						continue
					}
					want := plain(p, src, q, actionsOf(b, i, g), temperature)
					at := (i*b.G + g) * b.T
					golden.Close(t, logp[at:at+len(want)], want, tol)
					for s := range want {
						total, h := 0.0, 0.0
						row := dist[(at+s)*columns : (at+s+1)*columns]
						for _, lp := range row {
							total += math.Exp(lp)
							if lp > -1e8 {
								h -= math.Exp(lp) * lp
							}
						}
						a := actionsOf(b, i, g)[s]
						if a == Stop {
							a = int64(columns - 1)
						}
						golden.Close(t, []float64{total, h, row[a]}, []float64{1, entropy[at+s], logp[at+s]}, tol)
					}
					for s := len(want); s < b.T; s++ {
						if logp[at+s] != 0 {
							t.Errorf("log π %g behind the end of a selection", logp[at+s])
						}
					}
				}
			}
			greedy, scores := p.Decode(src, b.Queries, v.shots, 1)
			again := torchx.Sum(p.Forward(greedy, selector.ForwardOptions{}).LogP, 2).Floats()
			golden.Close(t, scores, again, 3e-6) // Decode adds float32 log-probabilities
		})
	}
}

// TestVariantGradients compares analytic gradients of Σ weight·log π with central differences of fourth order in
// float64: for every module along a random direction; of the presets for every parameter, and in single
// entries.
func TestVariantGradients(t *testing.T) {
	for i, v := range all() {
		single := i < len(presets()) // combinations: one random direction a module only
		t.Run(v.name, func(t *testing.T) {
			p, b := v.stage(t)
			defer torchx.Scope()()
			r := rand.New(rand.NewPCG(9, 10))
			weights := make([]float64, b.B()*b.G*b.T)
			for i := range weights {
				weights[i] = r.NormFloat64()
			}
			loss := func() torchx.Tensor {
				logp := p.Forward(b, selector.ForwardOptions{Temperature: 0.8}).LogP
				return torchx.Sum(torchx.Mul(logp, torchx.From(weights, b.B(), b.G, b.T)))
			}
			p.params.ZeroGrad()
			torchx.Backward(loss())
			grad, at := p.params.Grad().Floats(), p.params.Flat().Floats()
			value := func(direction map[int]float64, step float64) float64 {
				defer torchx.Scope()()
				defer torchx.NoGrad()()
				x := slices.Clone(at)
				for i, d := range direction {
					x[i] += step * d
				}
				setFlat(p, x)
				return loss().Item()
			}
			norm := 0.0
			for _, g := range grad {
				norm = math.Max(norm, math.Abs(g))
			}
			modules, checked := map[string]map[int]float64{}, 0
			var directions []map[int]float64
			for _, name := range p.params.Names() {
				lo, hi := p.params.Range(name)
				module, _, _ := strings.Cut(name, ".")
				if single {
					module = name
					for range min(3, hi-lo) {
						directions = append(directions, map[int]float64{lo + r.IntN(hi-lo): 1})
					}
				}
				if modules[module] == nil {
					modules[module] = map[int]float64{}
					directions = append(directions, modules[module])
				}
				for i := lo; i < hi; i++ {
					modules[module][i] = r.NormFloat64()
				}
			}
			for _, d := range directions {
				analytic := 0.0
				for i, x := range d {
					analytic += grad[i] * x
				}
				const h = 2e-4
				numeric := (value(d, -2*h) - 8*value(d, -h) + 8*value(d, h) - value(d, 2*h)) / (12 * h)
				// 1e-6 relative; below a thousandth of the largest entry, relative to that.
				if limit := 1e-6 * math.Max(math.Abs(analytic), 1e-3*norm); !(math.Abs(numeric-analytic) <= limit) {
					t.Errorf("%s: gradient %.9g, central difference %.9g", p.params.Names()[parameterOf(p, d)], analytic, numeric)
				}
				checked++
			}
			setFlat(p, at)
			if checked < len(modules) || len(modules) < 2 {
				t.Errorf("%d checks of %d modules", checked, len(modules))
			}
		})
	}
}

// parameterOf is the first parameter that a direction moves.
func parameterOf(p *Policy, direction map[int]float64) int {
	return slices.IndexFunc(p.params.Names(), func(name string) bool {
		lo, hi := p.params.Range(name)
		for i := range direction {
			if lo <= i && i < hi {
				return true
			}
		}
		return false
	})
}

// TestFreshVariantsLearn: from the start of every variant, gradients reach every parameter within three steps.
func TestFreshVariantsLearn(t *testing.T) {
	for _, v := range all() {
		t.Run(v.name, func(t *testing.T) {
			_, b := v.stage(t)
			p, err := New(v.opt, b.Source.(*Source).set.Table.Dim, 3, "cpu")
			if err != nil {
				t.Fatal(err)
			}
			defer p.Free()
			adam := torchx.NewAdamW(p.params, 0.9, 0.999, 1e-8, 0)
			defer adam.Free()
			reached := map[string]bool{}
			for range 3 {
				end := torchx.Scope()
				p.params.ZeroGrad()
				torchx.Backward(torchx.Neg(torchx.Mean(p.Forward(b, selector.ForwardOptions{}).LogP)))
				grad := p.params.Grad().Floats()
				for _, name := range p.params.Names() {
					lo, hi := p.params.Range(name)
					reached[name] = reached[name] || slices.ContainsFunc(grad[lo:hi], func(g float64) bool { return g != 0 })
				}
				adam.Step(1e-2, 1)
				end()
			}
			for _, name := range p.params.Names() {
				later := strings.HasPrefix(name, "query_update") || strings.HasPrefix(name, "scalar_update") ||
					strings.HasPrefix(name, "state_gru") || strings.HasPrefix(name, "state_transformer") ||
					strings.HasPrefix(name, "step_emb") || strings.HasPrefix(name, "features.chosen") ||
					name == "diversity.weight" && v.opt.Diversity.Kind != "coverage"
				if v.shots == 1 && later || name == "stop.vector" && v.shots <= v.opt.Stop.MinShots || name == "stop.bias" &&
					v.shots <= v.opt.Stop.MinShots {
					continue // matters from the second choice on
				}
				if !reached[name] {
					t.Errorf("no gradient reaches %s", name)
				}
			}
		})
	}
}

// selections lists every selection of up to shots of k candidates, those that end with Stop included.
func selections(k, shots int, stop bool, minShots int) [][]int64 {
	var out [][]int64
	var extend func(prefix []int64)
	extend = func(prefix []int64) {
		if len(prefix) == min(shots, k) {
			out = append(out, slices.Clone(prefix))
			return
		}
		if stop && len(prefix) >= minShots {
			out = append(out, append(slices.Clone(prefix), Stop))
		}
		for j := range int64(k) {
			if !slices.Contains(prefix, j) {
				extend(append(slices.Clone(prefix), j))
			}
		}
	}
	extend(nil)
	return out
}

// TestVariantsSampleAndSearch: over all selections of a small pool the probabilities sum to 1, samples have these
// frequencies (χ²), a wide beam search finds the best one, and its scores are log-probabilities.
func TestVariantsSampleAndSearch(t *testing.T) {
	for _, v := range all() {
		if v.shots > 3 {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			p, b := v.stage(t)
			defer torchx.Scope()()
			src := b.Source.(*Source)
			k := len(src.set.Pool(0)) // 5
			every := selections(k, v.shots, v.opt.Stop.Enabled, v.opt.Stop.MinShots)
			score := func(temperature float64) []float64 {
				all := selector.NewBatch(src, []int{0}, len(every), v.shots)
				for i, s := range every {
					all.Set(0, i, s, 0)
				}
				return torchx.Sum(p.Forward(all, selector.ForwardOptions{Temperature: temperature}).LogP, 2).Floats()
			}
			logp, total, best := score(1), 0.0, 0
			for i, lp := range logp {
				if total += math.Exp(lp); lp > logp[best] {
					best = i
				}
			}
			golden.Close(t, []float64{total}, []float64{1}, 1e-9)

			wide, scores := p.Decode(src, []int{0}, v.shots, len(every))
			if wide.NumValid() != len(every) {
				t.Errorf("%d beams, want all %d selections", wide.NumValid(), len(every))
			}
			if got := wide.Scored(0, 0); !slices.Equal(got, every[best]) {
				t.Errorf("best beam %v, best selection %v", got, every[best])
			}
			golden.Close(t, scores[:1], logp[best:best+1], 3e-6)

			const n = 8000
			samples := p.Sample(src, []int{0}, n, v.shots, 2, 11)
			counts := map[string]float64{}
			for g := range n {
				counts[fmt.Sprint(samples.Scored(0, g))]++
			}
			chi, cells, seen := 0.0, 0, 0.0
			for i, lp := range score(2) {
				seen += counts[fmt.Sprint(every[i])]
				if want := n * math.Exp(lp); want >= 5 {
					d := counts[fmt.Sprint(every[i])] - want
					chi += d * d / want
					cells++
				}
			}
			if seen != n {
				t.Errorf("%g of %d samples are selections", seen, n)
			}
			if limit := float64(cells) + 5*math.Sqrt(2*float64(cells)); chi > limit {
				t.Errorf("χ² = %.1f over %d cells, want at most %.1f", chi, cells, limit)
			}
		})
	}
}

// actionsOf returns the T steps of candidate g of query i, scored or not.
func actionsOf(b *selector.Batch, i, g int) []int64 {
	at := (i*b.G + g) * b.T
	return b.Actions[at : at+b.T]
}

// TestVariantCheckpoints: a checkpoint rebuilds every variant, whatever is configured, and contradicting it is an error.
func TestVariantCheckpoints(t *testing.T) {
	for _, v := range all() {
		t.Run(v.name, func(t *testing.T) {
			_, b := v.stage(t)
			dim := b.Source.(*Source).set.Table.Dim
			p := policy(t, v.opt, dim)
			q, err := Open(saved(t, p, p.Metadata()), OpenOptions{Options: DefaultOptions(), Dim: dim, Device: "cpu", Strict: true})
			if err != nil {
				t.Fatal(err)
			}
			defer q.Free()
			defer torchx.Scope()()
			want := p.Forward(b, selector.ForwardOptions{}).LogP.Floats()
			clone := p.Clone().(*Policy)
			defer clone.Free()
			golden.Close(t, q.Forward(b, selector.ForwardOptions{}).LogP.Floats(), want, 0)
			golden.Close(t, clone.Forward(b, selector.ForwardOptions{}).LogP.Floats(), want, 0)
			if v.name == "v3" {
				return
			}
			if err := p.FitsReference(); err == nil {
				t.Error("fits the reference's layouts")
			}
		})
	}
}
