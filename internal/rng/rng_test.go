package rng

import "testing"

func TestStreamsAreIndependentAndRepeatable(t *testing.T) {
	seen := map[uint64]string{}
	for _, purpose := range []string{"shuffle", "rollout"} {
		for seed := int64(0); seed < 3; seed++ {
			for epoch := range 3 {
				for step := range 50 {
					k := Key(seed, purpose, epoch, step)
					if other, dup := seen[k]; dup {
						t.Fatalf("%s seed %d epoch %d step %d repeats the stream of %s", purpose, seed, epoch, step, other)
					}
					seen[k] = purpose
				}
			}
		}
	}
	a, b := New(1, "shuffle", 2), New(1, "shuffle", 2)
	for i := range 10 {
		if x, y := a.Uint64(), b.Uint64(); x != y {
			t.Fatalf("draw %d: %d and %d from equal keys", i, x, y)
		}
	}
}
