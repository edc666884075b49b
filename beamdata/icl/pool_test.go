//go:build !core

package icl

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/rng"
	"fulcrum/internal/stat"
)

// unit draws unit vectors; every fifth is that of the row before it.
func unit(rows, dim int, seed int64) Vectors {
	v := Vectors{Dim: dim, Data: make([]float32, rows*dim)}
	r := rng.New(seed, "test")
	for i := range rows {
		row := v.Data[i*dim : (i+1)*dim]
		if i%5 == 4 {
			copy(row, v.Data[(i-1)*dim:])
			continue
		}
		sum := 0.0
		for k := range row {
			row[k] = float32(r.NormFloat64())
			sum += float64(row[k]) * float64(row[k])
		}
		for k := range row {
			row[k] /= float32(math.Sqrt(sum))
		}
	}
	return v
}

// records are n of them about images of three questions each; every seventh is held out.
func records(n int) *Set {
	s := &Set{Records: new(Table), at: func(row int) string { return fmt.Sprint("row ", row) }}
	for i := range n {
		s.Records.add(Record{ID: int64(1000 + i), ImageID: int64(1 + i/3), Question: "q", Answers: []string{"a"}, HeldOut: i%7 == 6})
	}
	return s
}

// TestNearest compares the blocks with a plain sort of all products.
func TestNearest(t *testing.T) {
	const rows, dim, k = 4700, 6, 9 // three blocks of candidates, two of queries; equal vectors tie
	v := unit(rows, dim, 1)
	var queries, candidates []int
	for i := range rows {
		if i%11 == 0 {
			queries = append(queries, i)
		}
		if i%10 != 3 {
			candidates = append(candidates, i)
		}
	}
	got, err := Nearest(context.Background(), v, queries, candidates, k, func(q, c int) bool { return q == c })
	if err != nil {
		t.Fatal(err)
	}
	for i, q := range queries {
		var want []Neighbour
		for _, c := range candidates {
			if c == q {
				continue
			}
			sum := float32(0)
			for d := range dim {
				sum += v.Data[q*dim+d] * v.Data[c*dim+d]
			}
			want = append(want, Neighbour{int32(c), sum})
		}
		slices.SortStableFunc(want, func(a, b Neighbour) int { return byRank(a, b) })
		for j := range k {
			w, g := want[j], got[i][j]
			if math.Abs(float64(w.Similarity-g.Similarity)) > 1e-6 { // six terms, added in another order
				t.Fatalf("query %d, place %d: %v, want %v", q, j, g, w)
			}
			if j > 0 && g.Similarity == got[i][j-1].Similarity && g.Row < got[i][j-1].Row {
				t.Fatalf("query %d: of equals row %d stands before %d", q, got[i][j-1].Row, g.Row)
			}
		}
	}
}

// TestPools: whatever the sampler, a pool has its size, no record twice, no held-out one and never the query.
func TestPools(t *testing.T) {
	ctx := context.Background()
	s := records(210)
	text, image := unit(210, 8, 2), unit(210, 8, 3)
	for _, kind := range []string{"random", "text", "image", "mix"} {
		p := Sampler{Kind: kind, Candidates: 16, Seed: 5}
		queries := []int{0, 6, 41, 200, 4}
		pools, err := p.Pools(ctx, s, queries, text, image)
		if err != nil {
			t.Fatal(err)
		}
		for i, pool := range pools {
			q := queries[i]
			sorted := slices.Clone(pool)
			slices.Sort(sorted)
			if len(pool) != 16 || len(slices.Compact(sorted)) != 16 {
				t.Errorf("%s: query %d has the pool %v: want 16 different records", kind, q, pool)
			}
			for _, c := range pool {
				if int(c) == q || s.Records.At(int(c)).HeldOut || s.Records.ImageID(int(c)) == s.Records.ImageID(q) {
					t.Errorf("%s: query %d may not have record %d", kind, q, c)
				}
			}
		}
		again, _ := p.Pools(ctx, s, []int{200, 0}, text, image)
		if !slices.Equal(again[0], pools[3]) || !slices.Equal(again[1], pools[0]) {
			t.Errorf("%s: a pool depends on the other queries", kind)
		}
		p.Seed = 6
		reseeded, _ := p.Pools(ctx, s, queries, text, image)
		if differ, want := !slices.Equal(reseeded[0], pools[0]), kind == "random" || kind == "mix"; differ != want {
			t.Errorf("%s: another seed gives another pool: %v, want %v", kind, differ, want)
		}
	}
	mix, _ := Sampler{Kind: "mix", Candidates: 16, Seed: 5}.Pools(ctx, s, []int{0}, text, image)
	byImage, _ := Sampler{Kind: "image", Candidates: 4}.Pools(ctx, s, []int{0}, text, image)
	byText, _ := Sampler{Kind: "text", Candidates: 8}.Pools(ctx, s, []int{0}, text, image)
	if !slices.Equal(mix[0][:4], byImage[0]) || slices.Index(byText[0], mix[0][7]) < 3 {
		t.Errorf("mix %v: want the best 4 by image %v, then 4 by text of %v", mix[0], byImage[0], byText[0])
	}
}

// TestPoolsSmallest: as many candidates as there are, and one more.
func TestPoolsSmallest(t *testing.T) {
	s, v := records(12), unit(12, 4, 1) // row 6 is held out
	for i := range s.Records.Len() {
		s.Records.row(i).imageID = 0 // unknown: a record about the query's image is no candidate
	}
	for _, kind := range []string{"random", "mix"} {
		pools, err := Sampler{Kind: kind, Candidates: 10}.Pools(context.Background(), s, []int{3}, v, v)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(pools[0])
		if want := []int32{0, 1, 2, 4, 5, 7, 8, 9, 10, 11}; !slices.Equal(pools[0], want) {
			t.Errorf("%s: %v, want %v", kind, pools[0], want)
		}
		few, err := Sampler{Kind: kind, Candidates: 3}.Pools(context.Background(), s, []int{3}, v, v)
		if err != nil || len(few[0]) != 3 {
			t.Errorf("%s: %v, %v, want three at random: a quarter of three is none", kind, few, err)
		}
		_, err = Sampler{Kind: kind, Candidates: 11}.Pools(context.Background(), s, []int{3}, v, v)
		if err == nil || !strings.Contains(err.Error(), "row 3 (id 1003): 10 records may be its candidates, want 11") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestPoolsRefuseTables(t *testing.T) {
	s := records(12)
	long := unit(12, 4, 1)
	long.Data[17] = 3
	for want, v := range map[string]Vectors{
		"no text embeddings: make them with task=embed":           {},
		"text embeddings have 11 rows, the records are 12":        unit(11, 4, 1),
		"text embeddings: row 4 has length 3.155, want 1: divide": long,
	} {
		_, err := Sampler{Kind: "text", Candidates: 3}.Pools(context.Background(), s, []int{0}, v, v)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestTwins: a held-out query that repeats a training record is named.
func TestTwins(t *testing.T) {
	s, v := records(14), unit(14, 8, 2) // 6 and 13 are held out
	copy(v.Data[6*8:7*8], v.Data[2*8:])
	twins, err := s.Twins(context.Background(), v, s.Queries(true), 0.98)
	if err != nil || len(twins) != 1 || twins[0].Query != 6 || twins[0].Candidate != 2 {
		t.Errorf("twins %v (%v), want query 6 of record 2", twins, err)
	}
	if _, err = s.Twins(context.Background(), Vectors{}, nil, 0.98); err == nil {
		t.Error("without a table: no error")
	}
}

// BenchmarkNearest: run with -benchtime 1x. 512 queries of 100,000 records of 512 numbers, a 40th of 20,000 queries.
func BenchmarkNearest(b *testing.B) {
	const rows, dim, queries = 100_000, 512, 512
	v := unit(rows, dim, 1)
	all := make([]int, rows)
	for i := range all {
		all[i] = i
	}
	for b.Loop() {
		if _, err := Nearest(context.Background(), v, all[:queries], all, 64, func(q, c int) bool { return q == c }); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(2*rows*dim*queries*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}

// TestOverlap: a held-out question that was trained on is named, an image on both sides is mild.
func TestOverlap(t *testing.T) {
	of := func(question string, image int64) *Set {
		return &Set{Records: TableOf(Record{ID: 1, ImageID: 5, Question: "What is it?"}, Record{ID: 2, ImageID: 6, Question: "x"},
			Record{ID: 3, ImageID: image, Question: question, HeldOut: true})}
	}
	s := of("what is it", 5)
	if f := s.Overlap(); len(f) != 1 || f[0].Mild || !strings.Contains(f[0].Message, "query 3 is query 1") {
		t.Errorf("%+v", f)
	}
	s = of("where?", 5)
	if f := s.Overlap(); len(f) != 1 || !f[0].Mild {
		t.Errorf("%+v, want one mild fault: the image is on both sides", f)
	}
	s = of("where?", 0)
	if f := s.Overlap(); len(f) != 0 {
		t.Errorf("%+v, want none", f)
	}
}

// Who is near does not depend on how many are asked for at once, nor where a candidate stands among others: of equal vectors the lower row
// comes first.
func TestNearestOfEqualVectors(t *testing.T) {
	const n, equal = 2048 + 8, 8 // the last block is a small one
	for _, dim := range []int{512, 33} {
		r := rng.New(1, "test")
		v, all := Vectors{Dim: dim}, stat.Indices(n)
		for range (n - equal) * dim {
			v.Data = append(v.Data, r.Float32()-0.5)
		}
		v.Data = append(v.Data, v.Data[:equal*dim]...) // row 2048+i is row i
		queries := all[300:304]
		near := func(queries, candidates []int) [][]Neighbour {
			out, err := Nearest(context.Background(), v, queries, candidates, n, func(int, int) bool { return false })
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		for i, of := range near(queries, all) {
			if alone := near(queries[i:i+1], all)[0]; !slices.Equal(of, alone) {
				t.Errorf("dim %d: another order for query %d alone", dim, i)
			}
			for k, x := range of {
				if twin := x.Row + n - equal; x.Row < equal && (of[k+1].Row != twin || of[k+1].Similarity != x.Similarity) {
					t.Errorf("dim %d: behind %v comes %v, want its twin, row %d", dim, x, of[k+1], twin)
				}
			}
		}
		if got := near(queries[:1], all[1:])[0]; got[0] != near(queries[:1], all)[0][0] {
			t.Errorf("dim %d: %v is nearest among all but one", dim, got[0])
		}
	}
}

// Images may be counted from 0: that one is an image too, and no query has others about its own image in its pool.
func TestImageZero(t *testing.T) {
	var lines strings.Builder
	for i := range 9 {
		fmt.Fprintf(&lines, `{"id": %d, "question": "q", "answers": ["a"], "image_id": %d}`+"\n", i, i/3)
	}
	path := filepath.Join(t.TempDir(), "records.jsonl")
	if err := os.WriteFile(path, []byte(lines.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	pools, err := Sampler{Kind: "random", Candidates: 6}.Pools(t.Context(), s, []int{1}, Vectors{}, Vectors{})
	if err != nil || slices.Min(pools[0]) < 3 {
		t.Errorf("pool %v (%v) of row 1, want the six about other images", pools, err)
	}
}
