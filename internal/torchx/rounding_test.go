package torchx

import (
	"math"
	"strings"
	"testing"
)

// TestWideOperations: norms and attention of bfloat16 rows compute in float32 and round once, forward
// and back, so they give float64's result, rounded, but where float32's error crosses a border between two bfloat16 numbers.
// Such borders lie 2⁻⁷ to 2⁻⁸ of a number apart and the error of a hundred roundings of 2⁻²⁴ is 2⁻¹⁷: one number in 500 at the
// most. That is so with any processor's products. PlantRounding gives the operations that round at each step; they must lie far beyond.
// Since libtorch 2.1 Attend is libtorch's fused kernel, which rounds probabilities, and their gradients, to bfloat16 before it multiplies
// with them. Three roundings of at most 2⁻⁹ of a value, the result's own among them, and three more on the way back.
func TestWideOperations(t *testing.T) {
	scoped(t)
	const rows, width = 64, 96
	for _, tc := range []struct {
		name  string
		plant Rounding
		in    [][]int
		f     func(in []Tensor) Tensor
	}{
		{"RMSNorm", RoundNorms, [][]int{{rows, width}}, func(in []Tensor) Tensor { return RMSNorm(in[0], powers(in[0], width), 1e-6) }},
		{"AddRMSNorm", RoundNorms, [][]int{{rows, width}}, func(in []Tensor) Tensor {
			_, y := AddRMSNorm(in[0], Zeros(rows, width).To(in[0].DType()), powers(in[0], width), 1e-6)
			return y
		}},
		{"LayerNorm", RoundNorms, [][]int{{rows, width}}, func(in []Tensor) Tensor {
			return LayerNorm(in[0], powers(in[0], width), Zeros(width).To(in[0].DType()), 1e-6)
		}},
		{"Attend", RoundAttention, [][]int{{rows, 4, 16}, {rows, 2, 16}, {rows, 2, 16}}, func(in []Tensor) Tensor {
			return Attend(in[0], in[1], in[2], []Span{{QLen: rows, OwnLen: rows, Causal: true}}, 0.25)
		}},
		{"AttendBiased", RoundAttention, [][]int{{rows, 4, 16}, {rows, 4, 16}, {rows, 4, 16}}, func(in []Tensor) Tensor {
			bias := Scale(powers(in[0], 4*2*rows), 0.5).To(in[0].DType())
			return AttendBiased(in[0], in[1], in[2], []Span{{QLen: rows, OwnLen: rows}}, 0.25, Reshape(bias, 4, 2*rows), rows)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			defer Scope()()
			all := operands(tc.name, append(tc.in, tc.in[0])...)
			run := func(dtype DType) (out [][]float64) {
				defer Scope()()
				var in []Tensor
				for i, shape := range tc.in {
					in = append(in, RequireGrad(Detach(From(all[i], shape...).To(BFloat16).To(dtype))))
				}
				y := tc.f(in)
				dy := From(all[len(tc.in)], tc.in[0]...).To(BFloat16).To(dtype)
				out = append(out, y.Floats())
				Backward(Sum(Mul(y, Reshape(dy, y.Shape()...))))
				for _, x := range in {
					out = append(out, Grad(x).Floats())
				}
				return out
			}
			exact, healthy := run(Float64), run(BFloat16)
			PlantRounding(tc.plant)
			defer PlantRounding(0)
			planted := run(BFloat16)
			for i, want := range exact {
				want = From(want, len(want)).To(BFloat16).Floats()
				good, bad := differing(healthy[i], want), differing(planted[i], want)
				if fused := tc.name == "Attend" && !strings.HasPrefix(Version(), "1."); fused {
					off, _ := distance(healthy[i], exact[i], len(want))
					t.Logf("result %d: the fused kernel is off by %.2g of its size, planted %.0f %% differ", i, off, 100*bad)
					if !(off <= 6*0x1p-9) || !(bad >= 0.05) {
						t.Errorf("result %d: off by %.2g of its size, want at most %.2g; planted %.4f, want at least 0.05", i, off, 6*0x1p-9, bad)
					}
					continue
				}
				t.Logf("result %d: %.3f %% differ from float64's rounded, planted %.0f %%", i, 100*good, 100*bad)
				if !(good <= 0.01) || !(bad >= 0.05) {
					t.Errorf("result %d: a share of %.4f differs from float64's rounded, want at most 0.01; planted %.4f, want at least 0.05",
						i, good, bad)
				}
			}
		})
	}
}

// TestWideVocabulary: log-probabilities and entropies over the vocabulary keep float32's error, that of 512 terms, beside float64.
// One entry of each row of hidden is 1, so logits are entries of the weight with any processor's products.
func TestWideVocabulary(t *testing.T) {
	scoped(t)
	const rows, vocabulary = 32, 512
	weight := operands("vocabulary", []int{vocabulary, rows})[0]
	hidden, targets := make([]float64, rows*rows), make([]int64, rows)
	for i := range rows {
		hidden[i*rows+i], targets[i] = 1, int64(13*i)
	}
	run := func(dtype DType) []float64 {
		w, h := Scale(From(weight, vocabulary, rows), 3).To(BFloat16).To(dtype), From(hidden, rows, rows).To(dtype)
		logp, entropy := TokenLogp(h, w, From(targets, rows), 1)
		return append(logp.Floats(), entropy.Floats()...)
	}
	exact, healthy := run(Float64), run(BFloat16)
	PlantRounding(RoundVocabulary)
	defer PlantRounding(0)
	planted := run(BFloat16)
	var good, bad float64
	for i := range exact {
		good, bad = max(good, math.Abs(healthy[i]-exact[i])), max(bad, math.Abs(planted[i]-exact[i]))
	}
	t.Logf("off by %.2g, planted %.2g", good, bad)
	if most := vocabulary * 0x1p-24; !(good <= most) || bad < 100*most {
		t.Errorf("off by %.2g, want at most %.2g; planted %.2g", good, most, bad)
	}
}

// powers returns n powers of two, with which products are exact, in the type of like.
func powers(like Tensor, n int) Tensor {
	v := make([]float64, n)
	for i := range v {
		v[i] = math.Ldexp(1, i%4-2)
	}
	return From(v, n).To(like.DType())
}

// differing returns the share of got that is not want.
func differing(got, want []float64) float64 {
	n := 0
	for i := range want {
		if got[i] != want[i] {
			n++
		}
	}
	return float64(n) / float64(len(want))
}
