// Package split chooses the validation queries of a set.
package split

import (
	"slices"

	"fulcrum/internal/list"
	"fulcrum/internal/rng"
)

// ByID marks the validation queries of a file: all but floor(trainRatio·n), chosen by seed from
// the ids, so that neither the order of the file nor the training seed moves a query.
func ByID(ids []int64, trainRatio float64, seed int64) map[int64]bool {
	sorted := slices.Sorted(slices.Values(ids))
	r := rng.New(seed, "split")
	r.Shuffle(len(sorted), func(i, j int) { sorted[i], sorted[j] = sorted[j], sorted[i] })
	return list.Set(sorted[int(float64(len(ids))*trainRatio):])
}

// ByImage marks at least ratio·n queries as validation, whole images at a time: two questions
// about one picture never stand on both sides. image returns false where the picture is unknown.
func ByImage(ids []int64, image func(row int) (int64, bool), ratio float64, seed int64) map[int64]bool {
	sorted := slices.Sorted(slices.Values(ids))
	mates := map[int64][]int64{}
	for _, id := range sorted {
		if im, ok := image(int(id)); ok {
			mates[im] = append(mates[im], id)
		}
	}
	r := rng.New(seed, "split")
	r.Shuffle(len(sorted), func(i, j int) { sorted[i], sorted[j] = sorted[j], sorted[i] })
	val := map[int64]bool{}
	want := int(float64(len(ids)) * ratio)
	for _, id := range sorted {
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
