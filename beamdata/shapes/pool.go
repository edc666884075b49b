package shapes

import (
	"cmp"
	"slices"

	"fulcrum/internal/list"
	"fulcrum/internal/rng"
	"fulcrum/internal/stat"
)

// pool draws a row's candidates: the nearest by question, further nearest by the whole embedding,
// further nearest by image, and random ones, shuffled. Never a question about the same scene.
func (d *Data) pool(row int, c cosines) []int32 {
	size := d.Options.PoolSize
	r := rng.New(d.Options.Seed, "shapes pool", row)
	rows := list.Convert[int32](stat.Indices(d.Options.trainRows()))
	allowed := list.Filter(rows, func(j int32) bool { return d.Items[j].Scene != d.Items[row].Scene })
	// many questions have the same words: ties are broken by lot
	tie := list.Make(d.Options.trainRows(), func(int) uint32 { return r.Uint32() })
	taken := make(map[int32]bool, size)
	var out []int32
	take := func(j int32) {
		if !taken[j] {
			taken[j] = true
			out = append(out, j)
		}
	}
	nearest := func(cos []float64, n int) {
		for _, j := range best(allowed, n+len(out), func(a, b int32) int {
			if v := cmp.Compare(cos[b], cos[a]); v != 0 {
				return v
			}
			return cmp.Or(cmp.Compare(tie[a], tie[b]), cmp.Compare(a, b))
		}) {
			if n > 0 && !taken[j] {
				take(j)
				n--
			}
		}
	}
	nearest(c.question, size*5/16)
	nearest(c.whole, size*5/16)
	nearest(c.image, size/8)
	for len(out) < size {
		take(allowed[r.IntN(len(allowed))])
	}
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// best returns the n first elements of x in the order of less, sorted, without sorting all of x.
func best(x []int32, n int, compare func(a, b int32) int) []int32 {
	n = min(n, len(x))
	top := slices.Clone(x[:n])
	slices.SortFunc(top, compare)
	for _, v := range x[n:] {
		if compare(v, top[n-1]) < 0 {
			at, _ := slices.BinarySearchFunc(top, v, compare)
			copy(top[at+1:], top[at:n-1])
			top[at] = v
		}
	}
	return top
}
