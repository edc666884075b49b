package torchx

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"fulcrum/internal/testkit/golden"
)

// TestKeptMass: what SampleTokens says it draws from is Σ min(p, q) of the row's own distribution p and the one that is
// drawn from q, here from the definitions of the processors: 1 without any, and the mass of the kept tokens where tokens
// are only left out.
func TestKeptMass(t *testing.T) {
	Attach(1)
	const size = 40
	r := rand.New(rand.NewPCG(1, 2))
	z := make([]float32, size)
	for i := range z {
		z[i] = float32(3 * r.NormFloat64())
	}
	z[7], z[8] = 60, 59 // a penalty on these two leaves hardly anything of the row's own distribution
	for _, tc := range []struct {
		name     string
		opt      SampleOptions
		seen     []int64
		suppress []int64
	}{
		{"all", SampleOptions{}, nil, nil},
		{"temperature", SampleOptions{Temperature: 0.02}, nil, nil},
		{"top-p", SampleOptions{Temperature: 20, TopP: 0.9}, nil, nil},
		{"top-k", SampleOptions{Temperature: 20, TopK: 5}, nil, nil},
		{"top-k and top-p", SampleOptions{Temperature: 20, TopK: 20, TopP: 0.7}, nil, nil},
		{"min-p", SampleOptions{Temperature: 20, MinP: 0.3}, nil, nil},
		{"min-p after top-p", SampleOptions{Temperature: 20, TopP: 0.8, MinP: 0.05}, nil, nil},
		{"suppressed", SampleOptions{Temperature: 20}, nil, []int64{7, 3}},
		{"penalty", SampleOptions{Temperature: 20, RepetitionPenalty: 1.3}, []int64{7, 7, 2, 9}, nil},
		{"a penalty that moves everything", SampleOptions{Temperature: 0.01, RepetitionPenalty: 2}, []int64{7, 8}, nil},
		{"all of it", SampleOptions{Temperature: 15, TopK: 30, TopP: 0.8, RepetitionPenalty: 1.2}, []int64{7, 11, 3}, []int64{3, 20}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			defer Scope()()
			var seen [][]int64
			if tc.seen != nil {
				seen = [][]int64{tc.seen}
			}
			ids, kept, logp := SampleTokens(From(append([]float32(nil), z...), 1, size), tc.opt, seen, [][]int64{tc.suppress}, []float64{0.4})
			p, q := softmaxOf(z, tc.opt.Temperature), keptTokens(z, tc.opt, tc.seen, tc.suppress)
			want, mass := 0.0, 0.0
			for i := range p {
				want += math.Min(p[i], q[i])
				if q[i] > 0 {
					mass += p[i]
				}
			}
			golden.Close(t, kept, []float64{want}, 1e-6) // float32 logits times a penalty
			golden.Close(t, logp, []float64{math.Log(p[ids[0]])}, 1e-9)
			if tc.seen == nil && math.Abs(mass-want) > 1e-9 {
				t.Errorf("kept %g, but the tokens have the mass %g", want, mass)
			}
			if tc.opt.TopP == 0 && tc.opt.TopK == 0 && tc.opt.MinP == 0 && tc.seen == nil && tc.suppress == nil && kept[0] != 1 {
				t.Errorf("kept %g of an unchanged distribution", kept[0])
			}
		})
	}
	defer Scope()()
	if _, kept, logp := SampleTokens(From(z, 1, size), SampleOptions{TopK: 3}, nil, nil, nil); kept != nil || logp != nil {
		t.Errorf("greedy: kept %v, log-probabilities %v, want nothing", kept, logp)
	}
}

func softmaxOf(z []float32, temperature float64) []float64 {
	if temperature == 0 {
		temperature = 1
	}
	top, total := math.Inf(-1), 0.0
	for _, x := range z {
		top = math.Max(top, float64(x))
	}
	p := make([]float64, len(z))
	for i, x := range z {
		p[i] = math.Exp((float64(x) - top) / temperature)
		total += p[i]
	}
	for i := range p {
		p[i] /= total
	}
	return p
}

// keptTokens is the distribution that tokens are drawn from, processor by processor.
func keptTokens(z []float32, opt SampleOptions, seen, suppress []int64) []float64 {
	z = append([]float32(nil), z...)
	done := map[int64]bool{}
	for _, id := range seen {
		if !done[id] {
			if done[id] = true; z[id] < 0 {
				z[id] *= float32(opt.RepetitionPenalty)
			} else {
				z[id] /= float32(opt.RepetitionPenalty)
			}
		}
	}
	for _, id := range suppress {
		z[id] = float32(math.Inf(-1))
	}
	rank := func(p []float64, i int) (better int, mass float64) {
		for _, x := range p {
			if x > p[i] {
				better, mass = better+1, mass+x
			}
		}
		return better, mass
	}
	p := softmaxOf(z, opt.Temperature)
	for _, rule := range []func(better int, mass float64) bool{
		func(better int, _ float64) bool { return opt.TopK > 0 && better >= opt.TopK },
		func(_ int, mass float64) bool { return opt.TopP > 0 && opt.TopP < 1 && mass >= opt.TopP },
		nil, // min-p
	} {
		next, total := append([]float64(nil), p...), 0.0
		for i := range p {
			if rule != nil && rule(rank(p, i)) || rule == nil && p[i] < opt.MinP*slices.Max(p) {
				next[i] = 0
			}
			total += next[i]
		}
		for i := range next {
			next[i] /= total
		}
		p = next
	}
	return p
}

// BenchmarkSampleTokens draws from rows of a vocabulary, as rollouts do.
func BenchmarkSampleTokens(b *testing.B) {
	Attach(1)
	r := rand.New(rand.NewPCG(1, 2))
	z := make([]float32, 8*151936)
	for i := range z {
		z[i] = float32(3 * r.NormFloat64())
	}
	logits := From(z, 8, 151936)
	for _, opt := range []SampleOptions{{}, {TopP: 0.9}, {TopK: 50}} {
		b.Run(fmt.Sprint(opt), func(b *testing.B) {
			for range b.N {
				SampleTokens(logits, opt, nil, slices.Repeat([][]int64{{1, 2}}, 8), make([]float64, 8))
			}
		})
	}
}
