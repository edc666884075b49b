package pointer

import (
	"fmt"
	"slices"

	"fulcrum/selector"
)

// mostEnumerated bounds the selections of a query: two of a pool of 128 are 16,256.
const mostEnumerated = 20_000

// Enumerate implements selector.Enumerator: every ordered selection of steps different candidates of a pool.
func (s *Source) Enumerate(queries []int, steps int) (*selector.Batch, error) {
	most := 1
	for _, q := range queries {
		pool, n := s.set.PoolSize(q), 1
		for t := range min(steps, pool) {
			if n *= pool - t; n > mostEnumerated {
				return nil, fmt.Errorf("query %d: %d of a pool of %d are more than %d selections: want rollout=online, fewer examples or a "+
					"smaller data.pool_size", s.ID(q), steps, pool, mostEnumerated)
			}
		}
		most = max(most, n)
	}
	b := selector.NewBatch(s, queries, most, steps)
	for i, q := range queries {
		g, length := 0, min(steps, s.set.PoolSize(q))
		var extend func(chosen []int64)
		extend = func(chosen []int64) {
			if len(chosen) == length {
				b.Set(i, g, chosen, 0)
				g++
				return
			}
			for p := range int64(s.set.PoolSize(q)) {
				if !slices.Contains(chosen, p) {
					extend(append(chosen, p))
				}
			}
		}
		extend(make([]int64, 0, length))
	}
	return b, nil
}
