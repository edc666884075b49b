// Package rng derives independent random streams from (seed, purpose, counters), so that no stream
// depends on how much another was used, and a resumed run restores every stream from its counters.
package rng

import (
	"hash/fnv"
	"math/rand/v2"
)

// Key mixes a seed, a purpose ("shuffle", "rollout", "dropout") and counters (epoch, step) into 64 bits.
func Key(seed int64, purpose string, counters ...int) uint64 {
	h := fnv.New64a()
	h.Write([]byte(purpose))
	x := mix(uint64(seed) ^ h.Sum64())
	for _, c := range counters {
		x = mix(x ^ uint64(c)*0x9E3779B97F4A7C15)
	}
	return x
}

// New returns the stream of Key(seed, purpose, counters...).
func New(seed int64, purpose string, counters ...int) *rand.Rand {
	k := Key(seed, purpose, counters...)
	return rand.New(rand.NewPCG(k, mix(k)))
}

// Uniform returns number i of the stream of a key, in [0, 1): no state, so that any part of a stream can be drawn alone.
func Uniform(key uint64, i int) float64 {
	return float64(mix(key^uint64(i)*0xD1342543DE82EF95)>>11) / (1 << 53)
}

// mix is the finaliser of SplitMix64 (Steele et al. 2014): every input bit reaches every output bit.
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
