package pointer

import (
	"math"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

// TestFloat32AgainstFloat64: what every variant computes in float32 on the device under test.
func TestFloat32AgainstFloat64(t *testing.T) {
	if golden.Device() != "cpu" && !torchx.CUDAAvailable() {
		t.Skip("this libtorch sees no CUDA device")
	}
	for _, v := range all() {
		t.Run(v.name, func(t *testing.T) {
			exact, b := v.stage(t)
			p, err := New(v.opt, exact.dim, 3, golden.Device())
			if err != nil {
				t.Fatal(err)
			}
			defer p.Free()
			defer torchx.Scope()()
			p.Params().SetValues(torchx.Data[float32](exact.params.Flat().To(torchx.Float32)))
			setFlat(exact, p.Params().Flat().Floats()) // both have values of float32
			compute := func(p *Policy) [3][]float64 {
				p.Params().ZeroGrad()
				out := p.Forward(b, selector.ForwardOptions{Entropy: true})
				torchx.Backward(torchx.Sum(torchx.Add(out.LogP, out.Entropy)))
				return [3][]float64{out.LogP.Floats(), out.Entropy.Floats(), p.Params().Grad().Floats()}
			}
			want, got := compute(exact), compute(p)
			for i, what := range []string{"log-probabilities", "entropies", "gradient"} {
				far, size := 0.0, 0.0
				for k, w := range want[i] {
					far, size = far+(got[i][k]-w)*(got[i][k]-w), size+w*w
				}
				// A rounding is 6e-8. Where there is a determinant of near examples it comes out twenty to a hundred times as large.
				if d, most := math.Sqrt(far/size), []float64{6e-6, 6e-6, 2e-5}[i]; !(d <= most) {
					t.Errorf("%s: float32 is %.2g from float64, relative to their size, want at most %.2g", what, d, most)
				}
			}
		})
	}
}
