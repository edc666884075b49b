//go:build !core

package icl

import (
	"context"
	"fmt"
	"slices"

	"fulcrum/internal/list"
	"fulcrum/internal/rng"
)

// Sampler draws pools of candidates, as Lever-LM does (Yang et al. 2023, arXiv:2312.10104): at random, or those most similar to
// the query by its question, by its image, or some of each. Pools depend on the seed, the query's id and the records alone.
type Sampler struct {
	Kind       string // random, text, image or mix
	Candidates int    // of a pool
	Seed       int64
}

// Pools returns the pool of each query as rows, without the query itself and without a record twice. Of text and image come the
// most similar first. mix takes a quarter by image, a quarter by question and the rest at random, each passing over what is
// there. Tables that a kind does not need may be empty.
func (p Sampler) Pools(ctx context.Context, s *Set, queries []int, text, image Vectors) ([][]int32, error) {
	candidates := s.Candidates()
	byImage := list.Tally(list.Map(candidates, s.Records.ImageID))
	for _, q := range queries {
		if n := eligible(s, q, len(candidates), byImage); n < p.Candidates {
			return nil, fmt.Errorf("%s: %d records may be its candidates, want %d: give more records or fewer candidates", s.At(q), n, p.Candidates)
		}
	}
	var shares []share
	switch p.Kind {
	case "text":
		shares = []share{{"text", text, p.Candidates}}
	case "image":
		shares = []share{{"image", image, p.Candidates}}
	case "mix":
		shares = []share{{"image", image, p.Candidates / 4}, {"text", text, p.Candidates / 4}}
	}
	pools := make([][]int32, len(queries))
	taken := 0 // by the shares before
	for _, share := range shares {
		if err := share.vectors.Check(share.name+" ", s.Records.Len()); err != nil {
			return nil, err
		}
		near, err := Nearest(ctx, share.vectors, queries, candidates, taken+share.count, func(q, c int) bool { return !may(s, q, c) })
		if err != nil {
			return nil, err
		}
		for i := range pools {
			pools[i] = appendNew(pools[i], near[i], share.count)
		}
		taken += share.count
	}
	for i, q := range queries {
		pools[i] = p.fill(pools[i], s, q, candidates)
	}
	return pools, nil
}

// share is so many of a pool's candidates by the similarity of vectors.
type share struct {
	name    string
	vectors Vectors
	count   int
}

// may says whether a record may be a candidate of a query: none is about the query's own image, as a held-out query has none either.
func may(s *Set, query, candidate int) bool {
	own := s.Records.ImageID(query)
	return query != candidate && (own == 0 || own != s.Records.ImageID(candidate))
}

func eligible(s *Set, query, candidates int, byImage map[int64]int) int {
	own := s.Records.ImageID(query)
	switch {
	case own != 0:
		return candidates - byImage[own]
	case !s.Records.row(query).heldOut && s.Records.Answered(query):
		return candidates - 1
	}
	return candidates
}

// appendNew adds the first n neighbours that the pool does not hold yet.
func appendNew(pool []int32, near []Neighbour, n int) []int32 {
	for _, c := range near {
		if n == 0 {
			break
		}
		if !slices.Contains(pool, c.Row) {
			pool, n = append(pool, c.Row), n-1
		}
	}
	return pool
}

// fill draws what is missing of a pool, each record with the same probability.
func (p Sampler) fill(pool []int32, s *Set, query int, candidates []int) []int32 {
	if len(pool) == p.Candidates {
		return pool
	}
	draw := rng.New(p.Seed, "pool", int(s.Records.ID(query)))
	in := list.Set(pool)
	for len(pool) < p.Candidates { // ends: there are enough that may be drawn
		c := int32(candidates[draw.IntN(len(candidates))])
		if !in[c] && may(s, query, int(c)) {
			in[c] = true
			pool = append(pool, c)
		}
	}
	return pool
}
