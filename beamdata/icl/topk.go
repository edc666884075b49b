//go:build !core

package icl

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

// Vectors is a table of unit vectors, row-major [records, Dim].
type Vectors struct {
	Dim  int
	Data []float32
}

// Check refuses a table of another number of rows, or with rows that are not of unit length.
func (v Vectors) Check(what string, records int) error {
	if v.Dim == 0 {
		return fmt.Errorf("no %sembeddings: make them with task=embed", what)
	}
	if rows := len(v.Data) / v.Dim; rows != records {
		return fmt.Errorf("the %sembeddings have %d rows, the records are %d: row i must belong to record i", what, rows, records)
	}
	for row := 0; row < records; row++ {
		sum := 0.0
		for _, x := range v.Data[row*v.Dim : (row+1)*v.Dim] {
			sum += float64(x) * float64(x)
		}
		if !(math.Abs(sum-1) < 0.02) { // bfloat16 tables are within 0.01
			return fmt.Errorf("the %sembeddings: row %d has length %.4g, want 1: divide every row by its length", what, row, math.Sqrt(sum))
		}
	}
	return nil
}

// Neighbour is a candidate and its cosine similarity.
type Neighbour struct {
	Row        int32
	Similarity float32
}

// Nearest returns the k most similar candidates of each query, the most similar first, of equals the one with the lower row.
// skip says which candidates a query may not have; a query with fewer than k gets those there are. The result is exact and
// depends on nothing but the vectors: products are made block by block (2 MB), whatever the number of records.
func Nearest(ctx context.Context, v Vectors, queries, candidates []int, k int,
	skip func(query, candidate int) bool) ([][]Neighbour, error) {
	// Of rows that begin where 16 bytes do, gonum adds up the same way in products of any size if it gets deep columns at a time.
	const wide, tall, deep = 2048, 256, 64  // candidates and queries of a block, columns
	dim := (v.Dim + deep - 1) / deep * deep // zeros behind a row
	gather := func(dst []float32, rows []int) {
		for i, r := range rows {
			copy(dst[i*dim:], v.Data[r*v.Dim:(r+1)*v.Dim])
		}
	}
	out := make([][]Neighbour, len(queries))
	if k == 0 { // as a quarter of three candidates is
		return out, nil
	}
	q, c, products := make([]float32, tall*dim), make([]float32, wide*dim), make([]float32, tall*wide)
	for from := 0; from < len(queries); from += tall {
		qs := queries[from:min(from+tall, len(queries))]
		gather(q, qs)
		for at := 0; at < len(candidates); at += wide {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			cs := candidates[at:min(at+wide, len(candidates))]
			gather(c, cs)
			for d := 0; d < dim; d += deep {
				gonum.Implementation{}.Sgemm(blas.NoTrans, blas.Trans, len(qs), len(cs), deep, 1, q[d:], dim, c[d:], dim, float32(min(d, 1)),
					products, wide)
			}
			for i, query := range qs {
				out[from+i] = merge(out[from+i], products[i*wide:i*wide+len(cs)], cs, k, func(r int) bool { return skip(query, r) })
			}
		}
	}
	return out, nil
}

// merge puts the candidates of a block into the list of the best, which stays sorted.
func merge(best []Neighbour, similarity []float32, rows []int, k int, skip func(row int) bool) []Neighbour {
	for i, s := range similarity {
		if len(best) == k && s < best[k-1].Similarity {
			continue
		}
		n := Neighbour{Row: int32(rows[i]), Similarity: s}
		at, _ := slices.BinarySearchFunc(best, n, byRank)
		if at == k || skip(rows[i]) {
			continue
		}
		if len(best) == k {
			best = best[:k-1]
		}
		best = slices.Insert(best, at, n)
	}
	return best
}

func byRank(a, b Neighbour) int {
	return cmp.Or(cmp.Compare(b.Similarity, a.Similarity), cmp.Compare(a.Row, b.Row))
}
