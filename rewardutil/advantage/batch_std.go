package advantage

import "math"

// batchStd divides by one deviation for the whole batch: (r - mean) / √(Σ(r - mean)² / Σ(n - 1)), sums over all groups
// with a signal. It is ours.
func batchStd() Method {
	return Method{
		Name:  "batch_std",
		Group: centre,
		Batch: func(groups [][]float64, o Options) {
			squares, freedom := 0.0, 0.0
			for _, g := range groups {
				for _, a := range g {
					squares += a * a
				}
				freedom += o.freedom(len(g))
			}
			if freedom == 0 {
				return
			}
			scale := math.Sqrt(squares / freedom)
			for _, g := range groups {
				for i := range g {
					g[i] /= scale
				}
			}
		},
		Centred: true, ShiftInvariant: true, ScaleInvariant: true,
	}
}
