package policytest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"fulcrum/beamdata"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
	"fulcrum/selector/clip"
	"fulcrum/selector/pointer"
)

// pointers checks selectors with each kind of encoder, state update, head and end.
func pointers(t *testing.T) {
	const dim = 12
	for name, change := range map[string]func(*pointer.Options){
		"v3":                 func(*pointer.Options) {},
		"heads and layers":   func(o *pointer.Options) { o.NumHeads, o.NumLayers = 2, 3 },
		"skip":               func(o *pointer.Options) { o.Skip = pointer.SkipOptions{Enabled: true, Scale: 4, LearnedScale: 0.5} },
		"taken at minus 100": func(o *pointer.Options) { o.Taken = "minus_100" },
		"no state update":    func(o *pointer.Options) { o.StateUpdate = "none" },
		"gru":                func(o *pointer.Options) { o.StateUpdate = "gru" },
		"additive head":      func(o *pointer.Options) { o.Head = "additive" },
		"stop":               func(o *pointer.Options) { o.Stop.Enabled = true },
		"relation only": func(o *pointer.Options) {
			o.Head, o.Skip = "none", pointer.SkipOptions{Enabled: true, Scale: 4, LearnedScale: 0.5}
			o.Relation = pointer.RelationOptions{Scale: new(3.0), Bilinear: "symmetric", GateDim: 5, ProductDim: 6, GateInitial: 2}
		},
		"adapters of CLIP": func(o *pointer.Options) {
			path := "../../../selector/clip/testdata/quick"
			o.Clip.Path, o.Clip.Modality, o.Clip.LoRA.Rank, o.Clip.LoRA.Dropout = &path, "text", 2, 0.3
			o.Skip = pointer.SkipOptions{Enabled: true, Scale: 4, LearnedScale: 0.5}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := pointer.DefaultOptions()
			o.HiddenDim, o.Dropout, o.AttnDropout = 8, 0.4, 0.1
			change(&o)
			var openClip func(o pointer.ClipOptions) (pointer.Embedder, error)
			var model pointer.Embedder
			if o.Clip.Path != nil {
				openClip = func(o pointer.ClipOptions) (pointer.Embedder, error) {
					return clip.OpenAdapted(o, nil, rowTexts(), "float32", "cpu")
				}
				var err error
				if model, err = openClip(o.Clip); err != nil {
					t.Fatal(err)
				}
			}
			p, err := pointer.NewOver(model, o, dim, 3, "cpu")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Free)
			disturb(p.Params(), 0.1)
			c := testCase{Policy: p, Batch: pools(t, dim, 3).Recorded([]int{4, 0, 5, 2}), Dropout: o.Head != "none",
				Flat: func(string) bool { return true },
				Open: func(file string) (selector.Policy, error) {
					return pointer.Open(file, pointer.OpenOptions{Options: o, Dim: dim, Device: "cpu", Strict: true, Clip: openClip})
				}}
			run(t, c)
			if model != nil {
				t.Run("a clone has adapters of its own", c.adapters)
			}
		})
	}
}

// adapters moves those of a clone alone: it is then another policy, as the policy becomes when its own are moved.
func (c testCase) adapters(t *testing.T) {
	before := c.logp(c.Batch)
	clone := c.Policy.Clone()
	defer clone.Free()
	values := clone.Params().Values()
	for i := range 100 { // the last parameters
		values[len(values)-1-i] += 0.5
	}
	clone.Params().SetValues(values)
	moved := (testCase{Policy: clone}).logp(c.Batch)
	if slices.Equal(moved, before) {
		t.Error("moved adapters change nothing")
	}
	golden.Close(t, c.logp(c.Batch), before, 0)
	old := c.Policy.Params().Values()
	defer c.Policy.Params().SetValues(old)
	c.Policy.Params().SetValues(values)
	golden.Close(t, c.logp(c.Batch), moved, 0)
}

// rowTexts are one for each row of pools.
func rowTexts() []string {
	all := make([]string, poolRows)
	for i := range all {
		all[i] = fmt.Sprintf("is it the %d thing in %d?", i, i*i)
	}
	return all
}

// disturb moves weights away from their start, so that every one matters.
func disturb(params *torchx.Params, by float64) {
	values := params.Values()
	for i := range values {
		values[i] += float32(by * math.Sin(float64(i)))
	}
	params.SetValues(values)
}

// nobody scores nothing.
type nobody struct{}

func (nobody) Score(int, []int32) (float64, float64) { return 0, math.NaN() }

const poolRows = 40 // of the table

// pools is a set with pools of different sizes and random candidates.
func pools(t *testing.T, dim, shots int) *pointer.Source {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	const rows, questions = poolRows, 6
	data := make([]float32, rows*dim)
	for i := range data {
		data[i] = float32(r.NormFloat64())
	}
	queries := make([]beamdata.Query, questions)
	for i := range queries {
		q := beamdata.Query{ID: int64(i)}
		for _, row := range r.Perm(rows - questions)[:5+3*i] {
			q.Pool = append(q.Pool, int32(row+questions))
		}
		for range 2 + i {
			var positions []int32
			for _, at := range r.Perm(len(q.Pool))[:shots] {
				positions = append(positions, int32(at))
			}
			q.Candidates, q.Rewards = append(q.Candidates, positions), append(q.Rewards, r.Float64())
		}
		queries[i] = q
	}
	set, err := beamdata.NewSet("pools", beamdata.NewTable(rows, dim, data), shots, queries, nobody{})
	if err != nil {
		t.Fatal(err)
	}
	return pointer.NewSource(set)
}
