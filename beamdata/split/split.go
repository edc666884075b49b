// Package split chooses the validation queries of a set.
package split

import (
	"slices"

	"fulcrum/internal/rng"
)

// Image returns the picture of a query, and whether it is known.
type Image func(row int) (int64, bool)

// ByID marks the validation queries of a file: all but floor(trainRatio·n), chosen by seed from the ids, so that neither the order of the
// file nor the training seed moves a query. Of a picture all are marked, so that there may be more.
func ByID(ids []int64, image Image, trainRatio float64, seed int64) map[int64]bool {
	order := shuffled(ids, seed)
	slices.Reverse(order)
	return whole(order, image, len(ids)-int(float64(len(ids))*trainRatio))
}

// ByImage marks at least ratio·n queries as validation.
func ByImage(ids []int64, image Image, ratio float64, seed int64) map[int64]bool {
	return whole(shuffled(ids, seed), image, int(float64(len(ids))*ratio))
}

func shuffled(ids []int64, seed int64) []int64 {
	sorted := slices.Sorted(slices.Values(ids))
	r := rng.New(seed, "split")
	r.Shuffle(len(sorted), func(i, j int) { sorted[i], sorted[j] = sorted[j], sorted[i] })
	return sorted
}

// whole marks the first queries of an order until there are want, whole pictures at a time: two questions about one never stand on both
// sides.
func whole(order []int64, image Image, want int) map[int64]bool {
	mates := map[int64][]int64{}
	for _, id := range order {
		if im, ok := image(int(id)); ok {
			mates[im] = append(mates[im], id)
		}
	}
	val := map[int64]bool{}
	for _, id := range order {
		if len(val) >= want {
			break
		}
		val[id] = true
		if im, ok := image(int(id)); ok {
			for _, mate := range mates[im] {
				val[mate] = true
			}
		}
	}
	return val
}
