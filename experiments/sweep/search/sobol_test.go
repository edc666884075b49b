package search

import (
	"slices"
	"testing"

	"fulcrum/configs"
)

func cube(n int) *space {
	s := &space{}
	for range n {
		a, _ := newAxis(configs.Dimension{Key: "x", Low: 0, High: 1})
		s.axes = append(s.axes, a)
	}
	return s
}

// The first points of the unscrambled sequence, as in Joe and Kuo's own program and in
// scipy.stats.qmc.Sobol(5, scramble=False).
func TestSobolFirstPoints(t *testing.T) {
	q, err := plainSobol(cube(5))
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range [][]float64{
		{0, 0, 0, 0, 0},
		{0.5, 0.5, 0.5, 0.5, 0.5},
		{0.75, 0.25, 0.25, 0.25, 0.75},
		{0.25, 0.75, 0.75, 0.75, 0.25},
		{0.375, 0.375, 0.625, 0.875, 0.375},
		{0.875, 0.875, 0.125, 0.375, 0.875},
		{0.625, 0.125, 0.875, 0.625, 0.625},
		{0.125, 0.625, 0.375, 0.125, 0.125},
		{0.1875, 0.3125, 0.9375, 0.4375, 0.5625},
	} {
		if got := q.point(uint32(n)); !slices.Equal(got, want) {
			t.Errorf("point %d is %v, want %v", n, got, want)
		}
	}
}

// The first 2^m points, and every later block of 2^m, have one point in each of the 2^m equal parts of every
// axis; in the first two dimensions in every dyadic rectangle of that area. Scrambling keeps this.
func TestSobolIsEven(t *testing.T) {
	plain, err := plainSobol(cube(64))
	if err != nil {
		t.Fatal(err)
	}
	scrambled, err := scrambledSobol(cube(64), 5)
	if err != nil {
		t.Fatal(err)
	}
	other, err := scrambledSobol(cube(64), 6)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Equal(scrambled.point(3), other.point(3)) {
		t.Error("two seeds give the same points")
	}
	for name, q := range map[string]*sobol{"plain": plain, "scrambled": scrambled} {
		const m = 8
		for _, block := range []uint32{0, 3} {
			var points [][]float64
			for n := range uint32(1 << m) {
				points = append(points, q.point(block<<m+n))
			}
			for d := range 64 {
				seen := map[int]bool{}
				for _, p := range points {
					seen[int(p[d]*(1<<m))] = true
				}
				if len(seen) != 1<<m {
					t.Errorf("%s: dimension %d of block %d fills %d of %d parts", name, d+1, block, len(seen), 1<<m)
				}
			}
			for k := range m + 1 {
				seen := map[[2]int]bool{}
				for _, p := range points {
					seen[[2]int{int(p[0] * float64(int(1)<<k)), int(p[1] * float64(int(1)<<(m-k)))}] = true
				}
				if len(seen) != 1<<m {
					t.Errorf("%s: block %d fills %d of %d rectangles of %d columns", name, block, len(seen), 1<<m, 1<<k)
				}
			}
		}
	}
}

// No two dimensions repeat each other, as they would if the direction numbers were read wrong.
func TestSobolDimensionsDiffer(t *testing.T) {
	q, err := plainSobol(cube(64))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[[32]uint32]int{}
	for d, v := range q.directions {
		if first, ok := seen[v]; ok {
			t.Errorf("dimensions %d and %d are the same", first+1, d+1)
		}
		seen[v] = d
	}
}
