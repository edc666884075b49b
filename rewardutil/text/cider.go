package text

import (
	"maps"
	"math"
	"slices"
	"strings"

	"fulcrum/internal/list"
)

const (
	ciderN     = 4   // longest n-gram
	ciderSigma = 6.0 // of the penalty for another length, in bigrams
)

// CIDEr scores captions by CIDEr-D (Vedantam et al. 2015, arXiv:1411.5726, as the evaluation of COCO captions computes it): n-grams
// of one to four tokens, weighted by how rare they are among the references, clipped to what the reference has, times a Gaussian
// of the difference in length. 10 is a caption that is its only reference.
type CIDEr struct {
	frequency map[string]float64 // in how many items' references an n-gram stands
	documents float64            // log of the number of items
}

// NewCIDEr counts n-grams in the references of all items of an evaluation.
func NewCIDEr(references [][]string) *CIDEr { return countDocuments(list.Map(references, split)) }

func countDocuments(items [][][]string) *CIDEr {
	c := &CIDEr{frequency: map[string]float64{}, documents: math.Log(float64(len(items)))}
	for _, refs := range items {
		seen := map[string]bool{}
		for _, ref := range refs {
			for _, grams := range gramsOf(ref) {
				for g := range grams {
					seen[g] = true
				}
			}
		}
		for g := range seen {
			c.frequency[g]++
		}
	}
	return c
}

func gramsOf(tokens []string) (counts [ciderN]map[string]float64) {
	for n := range counts {
		counts[n] = map[string]float64{}
		for i := 0; i+n < len(tokens); i++ {
			counts[n][strings.Join(tokens[i:i+n+1], " ")]++
		}
	}
	return counts
}

// weighted is a caption's n-grams as a vector for each n.
type weighted struct {
	of     [ciderN]map[string]float64
	norm   [ciderN]float64
	length float64 // bigrams
}

func (c *CIDEr) weigh(tokens []string) weighted {
	w := weighted{of: gramsOf(tokens)}
	for n, counts := range w.of {
		for _, g := range slices.Sorted(maps.Keys(counts)) { // sums do not depend on the order of a map
			if n == 1 {
				w.length += counts[g]
			}
			counts[g] *= c.documents - math.Log(max(1, c.frequency[g]))
			w.norm[n] += counts[g] * counts[g]
		}
		w.norm[n] = math.Sqrt(w.norm[n])
	}
	return w
}

// Score returns the CIDEr-D of a caption against its references; 0 without any.
func (c *CIDEr) Score(caption string, references []string) float64 {
	return c.scoreTokens(PTBTokens(caption), split(references))
}

func split(captions []string) [][]string { return list.Map(captions, PTBTokens) }

func (c *CIDEr) scoreTokens(caption []string, references [][]string) float64 {
	hyp, total := c.weigh(caption), 0.0
	for _, ref := range references {
		w := c.weigh(ref)
		delta := hyp.length - w.length
		for n := range hyp.of {
			dot := 0.0
			for _, g := range slices.Sorted(maps.Keys(hyp.of[n])) {
				dot += min(hyp.of[n][g], w.of[n][g]) * w.of[n][g]
			}
			if norm := hyp.norm[n] * w.norm[n]; norm != 0 {
				dot /= norm
			}
			total += dot * math.Exp(-delta*delta/(2*ciderSigma*ciderSigma)) / ciderN
		}
	}
	return 10 * total / float64(max(len(references), 1))
}
