package shapes

import (
	"cmp"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/rng"
	"fulcrum/internal/stat"
)

const (
	questionDim = 120
	hashBuckets = 1 << 12
)

// textModel embeds questions: TF-IDF of hashed word 1-2-grams and character 3-4-grams, then a fixed
// random projection. Document frequencies are fitted on training questions only.
type textModel struct {
	idf  []float64 // [hashBuckets]
	sign []int8    // [hashBuckets*questionDim] of the projection
}

// words splits as [a-z0-9]+ of the lower-cased text.
func words(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
}

// Head returns a question's first two words, lower-cased: what the reader's prior looks at.
func Head(text string) string {
	w := words(text)
	return strings.Join(w[:min(2, len(w))], " ")
}

type term struct {
	bucket int
	weight float64
}

// terms are a question's hashed features in order of their buckets, with weights 1 + ln(count) for words
// and charWeight times that for characters.
func terms(text string) []term {
	const charWeight = 0.6
	counts := map[int]float64{}
	add := func(prefix, s string) {
		h := fnv.New32a()
		h.Write([]byte(prefix + s))
		counts[int(h.Sum32()%hashBuckets)]++
	}
	w := words(text)
	for i := range w {
		add("w", w[i])
		if i > 0 {
			add("w", w[i-1]+" "+w[i])
		}
	}
	isWord := list.Set(slices.Collect(maps.Keys(counts)))
	for _, x := range w {
		x = " " + x + " "
		for n := 3; n <= 4; n++ {
			for i := 0; i+n <= len(x); i++ {
				add("c", x[i:i+n])
			}
		}
	}
	out := make([]term, 0, len(counts))
	for b, n := range counts {
		weight := 1 + math.Log(n)
		if !isWord[b] {
			weight *= charWeight
		}
		out = append(out, term{b, weight})
	}
	slices.SortFunc(out, func(a, b term) int { return cmp.Compare(a.bucket, b.bucket) })
	return out
}

func newTextModel(seed int64, train []string) *textModel {
	m := &textModel{idf: make([]float64, hashBuckets), sign: make([]int8, hashBuckets*questionDim)}
	for _, text := range train {
		for _, t := range terms(text) {
			m.idf[t.bucket]++
		}
	}
	for b, n := range m.idf {
		m.idf[b] = 1 + math.Log(float64(1+len(train))/(1+n))
	}
	r := rng.New(seed, "shapes text projection")
	for i := range m.sign {
		m.sign[i] = int8(r.IntN(2)*2 - 1)
	}
	return m
}

// embed returns the unit question block [questionDim].
func (m *textModel) embed(text string) []float64 {
	out := make([]float64, questionDim)
	for _, t := range terms(text) {
		w := t.weight * m.idf[t.bucket]
		for d, s := range m.sign[t.bucket*questionDim : (t.bucket+1)*questionDim] {
			out[d] += w * float64(s)
		}
	}
	return unit(out)
}

// unit scales x to length 1 in place; zeros stay zeros.
func unit(x []float64) []float64 {
	if sum := stat.Squares(x, 0); sum > 0 {
		for i := range x {
			x[i] *= 1 / math.Sqrt(sum)
		}
	}
	return x
}
