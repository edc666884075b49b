//go:build !core

package icl

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"

	"fulcrum/beamdata/audit"
)

// Twin is a held-out query and the training record that is nearly the same.
type Twin struct {
	Query, Candidate int // rows
	Similarity       float32
}

// Overlap names what stands on both sides: held-out queries that are training records too, by id, by question and image, or,
// mildly, by image alone.
func (s *Set) Overlap() []audit.Fault {
	queries := func(rows []int) []audit.Query {
		out := make([]audit.Query, len(rows))
		for i, row := range rows {
			r := s.Records.At(row)
			out[i] = audit.Query{ID: r.ID}
			if r.ImageID != 0 {
				words := strings.FieldsFunc(strings.ToLower(r.Question), func(r rune) bool { return strings.ContainsRune(" \t\n?!.,;:'\"", r) })
				out[i].Content = hash(fmt.Sprint(r.ImageID, " ", strings.Join(words, " ")))
				out[i].Group = hash(fmt.Sprint(r.ImageID))
			}
		}
		return out
	}
	return audit.Overlap([]audit.Split{{Name: "training", Trains: true, Of: queries(s.Queries(false))},
		{Name: "held-out", Of: queries(s.Queries(true))}})
}

// hash is never 0, which would mean unknown.
func hash(text string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(text))
	return h.Sum64() | 1
}

// Twins returns, for each of these held-out queries, the training record that is most alike, where the cosine is at least limit.
func (s *Set) Twins(ctx context.Context, v Vectors, queries []int, limit float32) ([]Twin, error) {
	if err := v.Check("", s.Records.Len()); err != nil {
		return nil, err
	}
	near, err := Nearest(ctx, v, queries, s.Queries(false), 1, func(int, int) bool { return false })
	if err != nil {
		return nil, err
	}
	var twins []Twin
	for i, n := range near {
		if len(n) > 0 && n[0].Similarity >= limit {
			twins = append(twins, Twin{Query: queries[i], Candidate: int(n[0].Row), Similarity: n[0].Similarity})
		}
	}
	return twins, nil
}
