package beamdata

import (
	"fmt"
	"math/big"
	"slices"
	"strings"

	"fulcrum/internal/rng"
)

// splitByID marks the validation queries of a file: all but floor(trainRatio·n), chosen by seed from
// the ids, so that neither the order of the file nor the training seed moves a query.
func splitByID(ids []int64, trainRatio float64, seed int64) map[int64]bool {
	sorted := slices.Sorted(slices.Values(ids))
	r := rng.New(seed, "split")
	r.Shuffle(len(sorted), func(i, j int) { sorted[i], sorted[j] = sorted[j], sorted[i] })
	val := map[int64]bool{}
	for _, id := range sorted[int(float64(len(ids))*trainRatio):] {
		val[id] = true
	}
	return val
}

// splitByImage marks at least ratio·n queries as validation, whole images at a time: two questions
// about one picture never stand on both sides. image returns false where the picture is unknown.
func splitByImage(ids []int64, image func(row int) (int64, bool), ratio float64, seed int64) map[int64]bool {
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

// compatSplit splits keys as the Python reference (parity §1.7): numeric keys sorted by value, the
// first int(n·ratio) train, the rest and every non-numeric key other than _meta validate; both in file
// order. Numeric are keys of digits once - and _ are removed; a key that then is no integer is the
// reference's ValueError.
func compatSplit(keys []string, ratio float64) (train, val []string, err error) {
	type numbered struct {
		key   string
		value *big.Int
	}
	var numeric []numbered
	for _, key := range keys {
		if !looksNumeric(key) {
			continue
		}
		value, ok := pythonInt(key)
		if !ok {
			return nil, nil, fmt.Errorf("key %q is not an integer", key)
		}
		numeric = append(numeric, numbered{key, value})
	}
	slices.SortStableFunc(numeric, func(a, b numbered) int { return a.value.Cmp(b.value) })
	isTrain := map[string]bool{}
	for _, n := range numeric[:int(float64(len(numeric))*ratio)] {
		isTrain[n.key] = true
	}
	for _, key := range keys {
		switch {
		case key == "_meta":
			train, val = append(train, key), append(val, key)
		case isTrain[key]:
			train = append(train, key)
		default:
			val = append(val, key)
		}
	}
	return train, val, nil
}

func looksNumeric(key string) bool {
	rest := strings.NewReplacer("-", "", "_", "").Replace(key)
	return rest != "" && strings.Trim(rest, "0123456789") == ""
}

// pythonInt is int(key): single underscores between digits are allowed.
func pythonInt(key string) (*big.Int, bool) {
	digits := strings.TrimPrefix(key, "-")
	if strings.HasPrefix(digits, "_") || strings.HasSuffix(digits, "_") || strings.Contains(digits, "__") || strings.Contains(digits, "-") {
		return nil, false
	}
	return new(big.Int).SetString(strings.ReplaceAll(key, "_", ""), 10)
}
