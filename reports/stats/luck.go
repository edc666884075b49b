package stats

import "gonum.org/v1/gonum/stat/distuv"

// LuckOf is the expected largest of n standard normal values (Blom 1958).
func LuckOf(n int) float64 {
	return distuv.UnitNormal.Quantile((float64(n) - 0.375) / (float64(n) + 0.25))
}
