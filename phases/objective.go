package phases

import (
	"math"
	"slices"

	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

// sequence sums log-probabilities over the scored steps: [B, G, T] → [B, G].
func sequence(logp torchx.Tensor) torchx.Tensor { return torchx.Sum(logp, 2) }

// crossEntropy is Σ_t -log π(a_t) of each candidate [B, G]. With smoothing s the target of a step is
// (1-s) on the action and s/A on each of the step's A possible actions.
func crossEntropy(out selector.Output, b *selector.Batch, smoothing float64) torchx.Tensor {
	ce := torchx.Neg(sequence(out.LogP)) // [B, G]
	if smoothing == 0 {
		return ce
	}
	possible := torchx.Compare(out.Dist, "gt", -1e8).To(torchx.Float32)                           // [B, G, T, A] 1 = may be chosen
	uniform := torchx.Div(torchx.Sum(torchx.Mul(out.Dist, possible), 3), torchx.Sum(possible, 3)) // [B, G, T] mean log π
	return torchx.Add(torchx.Scale(ce, 1-smoothing), torchx.Scale(maskedSum(uniform, b), -smoothing))
}

// weighted is Σ over all candidates of weight·value, divided by the number of queries that count.
func weighted(value, weight torchx.Tensor, queries int) torchx.Tensor {
	return torchx.Scale(torchx.Sum(torchx.Mul(value, weight)), 1/float64(max(queries, 1)))
}

// surrogate is PPO's clipped objective to be minimised (Schulman et al. 2017, eq. 7), one ratio per
// sequence: -mean over valid candidates of min(ρ·A, clip(ρ, 1-low, 1+high)·A).
func surrogate(ratio, adv, valid torchx.Tensor, low, high float64, candidates int) torchx.Tensor {
	clipped := torchx.Clamp(ratio, 1-low, 1+high)
	gain := torchx.Minimum(torchx.Mul(ratio, adv), torchx.Mul(clipped, adv)) // [B, G]
	return torchx.Scale(torchx.Sum(torchx.Mul(gain, valid)), -1/float64(max(candidates, 1)))
}

// maskedSum adds what was measured at every scored step: [B, G, T] → [B, G].
func maskedSum(perStep torchx.Tensor, b *selector.Batch) torchx.Tensor {
	if slices.Contains(b.Mask, 0) {
		perStep = torchx.Mul(perStep, maskTensor(perStep, b))
	}
	return torchx.Sum(perStep, 2)
}

// sampledKL estimates KL(π ‖ ref) from one log-ratio a candidate, r = log π - log ref (Schulman 2020,
// "Approximating KL divergence"): k1 = r, k2 = r²/2, k3 = e^-r - 1 + r. k3_reversed is the Python
// reference's e^r - 1 - r, which estimates KL(ref ‖ π) from samples of ref. limit bounds what is
// exponentiated.
func sampledKL(estimator string, logRatio torchx.Tensor, limit float64) torchx.Tensor {
	switch estimator {
	case "k1":
		return logRatio
	case "k2":
		return torchx.Scale(torchx.Square(logRatio), 0.5)
	case "k3_reversed":
		r := clampTo(logRatio, limit)
		return torchx.Sub(torchx.AddScalar(torchx.Exp(r), -1), r)
	default: // k3
		r := clampTo(logRatio, limit)
		return torchx.AddScalar(torchx.Add(torchx.Exp(torchx.Neg(r)), r), -1)
	}
}

// clampTo cuts x to ±limit; an infinite limit cuts nothing, NaN included.
func clampTo(x torchx.Tensor, limit float64) torchx.Tensor {
	if math.IsInf(limit, 1) {
		return x
	}
	return torchx.Clamp(x, -limit, limit)
}

// entropy is the mean over scored steps of -Σ_a π(a) log π(a), in nats; no gradient wanted.
func entropy(dist, mask torchx.Tensor, steps float64) torchx.Tensor {
	perStep := torchx.Neg(torchx.Sum(torchx.Mul(torchx.Exp(dist), torchx.ClampMin(dist, -1e8)), 3))
	return torchx.Scale(torchx.Sum(torchx.Mul(perStep, mask)), 1/max(steps, 1))
}

// read copies several tensors to the host with a single wait for the device. A tensor that is none gives
// nil.
func read(ts ...torchx.Tensor) [][]float64 {
	flat := make([]torchx.Tensor, 0, len(ts))
	out := make([][]float64, len(ts))
	for _, t := range ts {
		if !t.Nil() {
			flat = append(flat, torchx.Reshape(torchx.Detach(t), t.Numel()))
		}
	}
	all := torchx.Cat(0, flat...).Floats() // sync
	for i, t := range ts {
		if !t.Nil() {
			n := t.Numel()
			out[i], all = all[:n], all[n:]
		}
	}
	return out
}

// onDevice moves host values [B*G] to the device of like as [B, G].
func onDevice(like torchx.Tensor, values []float64, b, g int) torchx.Tensor {
	f := make([]float32, len(values))
	for i, v := range values {
		f[i] = float32(v)
	}
	return torchx.ToLike(torchx.From(f, b, g), like)
}

func indicator(valid []bool) []float64 {
	out := make([]float64, len(valid))
	for i, v := range valid {
		if v {
			out[i] = 1
		}
	}
	return out
}

func maskTensor(like torchx.Tensor, b *selector.Batch) torchx.Tensor {
	return torchx.ToLike(torchx.From(b.Mask, b.B(), b.G, b.T), like)
}
