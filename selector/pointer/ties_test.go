package pointer

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"fulcrum/beamdata"
	"fulcrum/internal/tensorfile"
)

// tied is a file of 40 queries over one pool of copies of one example, in two orders.
func tied(t *testing.T, reverse bool, change func(*beamdata.Options)) *Source {
	t.Helper()
	const queries, k, dim = 40, 8, 4
	values := make([]float32, (queries+k)*dim)
	for row := range queries + k {
		values[row*dim] = 1 // a candidate is the first axis
		if row < queries {
			values[row*dim+1] = float32(row)
		}
	}
	var pool []int
	for c := range k {
		pool = append(pool, queries+c)
	}
	if reverse {
		slices.Reverse(pool)
	}
	file := map[string]any{}
	for q := range queries {
		file[fmt.Sprint(q)] = map[string]any{"candidate_pool_ids": pool,
			"pointer_candidates": []any{map[string]any{"pointer": []int{queries, queries + 1}, "vqa_correct": 1, "vqa_acc_score": 1}}}
	}
	text, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	beams, table := filepath.Join(dir, "b.json"), filepath.Join(dir, "e.safetensors")
	if err := os.WriteFile(beams, text, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := tensorfile.WriteSafetensors(table, []tensorfile.Tensor{tensorfile.FromFloat32s("e", []int{queries + k, dim}, values)},
		nil); err != nil {
		t.Fatal(err)
	}
	opt := beamdata.DefaultOptions()
	opt.Name, opt.Beams, opt.Embeddings, opt.TrainRatio = "beams", &beams, &table, 1
	if change != nil {
		change(&opt)
	}
	b, err := beamdata.Load(opt)
	if err != nil {
		t.Fatal(err)
	}
	return NewSource(b.RCE)
}

// Candidates of equal score are drawn by seed and ids: the order of a pool decides nothing, every candidate has its
// chance, and compat takes the first as the reference does.
func TestTiesAreDrawn(t *testing.T) {
	var queries []int
	for q := range 40 {
		queries = append(queries, q)
	}
	decoded := func(src *Source, width int) [][]int32 {
		p := policy(t, DefaultOptions(), src.set.Table.Dim)
		defer p.Free()
		b, _ := p.Decode(src, queries, 2, width)
		out := make([][]int32, len(queries))
		for i := range out {
			for _, a := range b.Chosen(i, 0) {
				out[i] = append(out[i], src.set.Pool(i)[a])
			}
		}
		return out
	}
	similar := func(src *Source) [][]int32 {
		out := beamdata.Similarity(src.set, 2)
		for i := range out {
			for k, p := range out[i] {
				out[i][k] = src.set.Pool(i)[p]
			}
		}
		return out
	}
	other := func(o *beamdata.Options) { o.SplitSeed = 9 }
	compat := func(o *beamdata.Options) { o.Compat = true }
	for name, choose := range map[string]func(*Source) [][]int32{
		"greedy": func(s *Source) [][]int32 { return decoded(s, 1) }, "beam search": func(s *Source) [][]int32 { return decoded(s, 3) },
		"similarity": similar,
	} {
		t.Run(name, func(t *testing.T) {
			got := choose(tied(t, false, nil))
			if !slices.EqualFunc(got, choose(tied(t, true, nil)), slices.Equal) {
				t.Error("the order of the pool decides a tie")
			}
			if slices.EqualFunc(got, choose(tied(t, false, other)), slices.Equal) {
				t.Error("another seed draws the same")
			}
			first := map[int32]int{}
			for _, c := range got {
				first[c[0]]++
			}
			if len(first) < 6 { // 40 draws of 8
				t.Errorf("first choices %v of 8 equal candidates", first)
			}
			for i, c := range choose(tied(t, false, compat)) {
				if c[0] != 40 || c[1] != 41 {
					t.Fatalf("compat: query %d takes %v, want the first two of its pool", i, c)
				}
			}
		})
	}
}

func TestLevel(t *testing.T) {
	pad := float32(impossible)
	for _, tc := range []struct {
		name    string
		logp    []float32
		columns int
		k       int
		want    []float32 // nil: left as it is, and not level
	}{
		{"all equal", []float32{-1, -1, -1}, 3, 3, []float32{-1, -1, -1}},
		{"the last bit is rounding", []float32{-2, math.Nextafter32(-2, 0), -2}, 3, 3, []float32{-2, -2, -2}},
		{"padding does not count", []float32{-1, -1.000001, pad}, 3, 3, []float32{-1, -1, pad}},
		{"stop does not count", []float32{-1, -1, -3}, 3, 2, []float32{-1, -1, -3}},
		{"rows of two beams, one choice taken in each", []float32{pad, -1, -9, -1.000001, pad, -8}, 3, 2, []float32{pad, -1, -9, -1, pad, -8}},
		{"some equal: the earlier position wins", []float32{-1, -1, -2}, 3, 3, nil},
		{"nearly equal", []float32{-1, -1, -1.0001}, 3, 3, nil},
		{"one candidate", []float32{-1, pad}, 2, 2, nil},
	} {
		got := slices.Clone(tc.logp)
		if even := level(got, tc.columns, tc.k); even != (tc.want != nil) {
			t.Errorf("%s: got %v", tc.name, even)
		}
		want := tc.want
		if want == nil {
			want = tc.logp
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", tc.name, got, want)
		}
	}
}
