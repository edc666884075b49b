package rewardutil

import "math"

// MaxLogRatio bounds log-ratios before they are exponentiated: e^20 is far outside any clip range, and
// e^89 overflows float32.
const MaxLogRatio = 20

// ClampLogRatio cuts d to ±MaxLogRatio and reports whether it had to.
func ClampLogRatio(d float64) (clamped float64, was bool) {
	c := math.Max(-MaxLogRatio, math.Min(MaxLogRatio, d))
	return c, c != d
}

// KLEstimate returns the mean over samples of Schulman's estimator of KL(q ‖ p), where d = log p(x) -
// log q(x) for x drawn from q:
//
//	k1 = -d             unbiased, can be negative
//	k2 = d²/2           biased, never negative; its gradient is that of the exact KL in expectation
//	k3 = e^d - 1 - d    unbiased, never negative
//
// For on-policy samples q is the policy and p the reference: d = logRef - logPolicy. For samples of the
// old policy the reference implementation calls it with d = logNew - logOld, which estimates KL(old ‖
// new); over recorded candidates, which were drawn from neither, all three are only a distance. d is not
// clamped here. The value is 0 for no samples. Source: Schulman, "Approximating KL divergence" (2020).
func KLEstimate(estimator string, d []float64) float64 {
	sum := 0.0
	for _, d := range d {
		switch estimator {
		case "k1":
			sum -= d
		case "k2":
			sum += d * d / 2
		default:
			sum += math.Expm1(d) - d
		}
	}
	return sum / math.Max(1, float64(len(d)))
}

// KLExact returns Σ p·(log p - log q) over the entries of two log-distributions over the same pool.
// Entries of probability 0 under p add nothing; 0 under q alone makes it infinite.
func KLExact(logP, logQ []float64) float64 {
	sum := 0.0
	for i, lp := range logP {
		if p := math.Exp(lp); p > 0 {
			sum += p * (lp - logQ[i])
		}
	}
	return sum
}
