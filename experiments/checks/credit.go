package checks

import (
	"slices"

	"fulcrum/experiments/job"
	"fulcrum/phases/grpo"
	"fulcrum/phases/rce"
	"fulcrum/rewardutil/advantage"
	"fulcrum/rewardutil/group"
	"fulcrum/selector"
)

// imitated is preflight.Stage.Credit of phases that imitate; nil where label smoothing makes other gradients.
func imitated(c *job.Config, o rce.Options) func(b *selector.Batch, tau float64) []float64 {
	if c.Selector.Smoothing > 0 || c.Compatible() {
		return nil
	}
	return func(b *selector.Batch, tau float64) []float64 {
		if o.Top1Only {
			w, best := make([]float64, len(b.Valid)), advantage.TopK(b.Rewards, b.Valid, b.B(), b.G, 1)
			for i, ok := range best.Valid {
				if ok {
					w[i/best.K*b.G+best.Index[i]] = 1 // groups of one are all kept, in their places
				}
			}
			return w
		}
		rewards := slices.Clone(b.Rewards)
		if o.Rewards == "normalized" {
			for i := range b.B() {
				var r []float64
				for g := range b.G {
					if b.Valid[i*b.G+g] {
						r = append(r, rewards[i*b.G+g])
					}
				}
				for k, x := range group.Normalize(r, c.Data.Normalize) {
					rewards[i*b.G+nth(b.Valid[i*b.G:(i+1)*b.G], k)] = x
				}
			}
		}
		w, _ := group.Weights(rewards, b.Valid, b.B(), b.G, tau, o.Temperature.Relative)
		return w
	}
}

// nth returns the place of the k-th entry that is true.
func nth(of []bool, k int) int {
	for i, ok := range of {
		if ok {
			if k == 0 {
				return i
			}
			k--
		}
	}
	return -1
}

// drawnAt is preflight.Stage.SampleTemp: 0 where the KL steers the temperature, or draws leave tokens out.
func drawnAt(c *job.Config, temperature float64, steered bool) float64 {
	draws := c.VL.Generation
	switch c.Policy {
	case "pointer":
		draws.TopP, draws.TopK, draws.RepetitionPenalty = 1, 0, 1
	case "seq2seq":
		draws = c.Seq2Seq.Generation
	}
	if steered || draws.TopP < 1 || draws.TopK > 0 || draws.RepetitionPenalty != 1 {
		return 0
	}
	return temperature
}

// compared is preflight.Stage.Credit of GRPO, whose ratios are 1 and whose KL has no gradient in the first step; k1's,
// which pulls at all candidates alike, is not counted, so that such phases are left out where it has a weight.
func compared(o grpo.Options) func(b *selector.Batch, tau float64) []float64 {
	if o.Compat || o.EntropyWeight > 0 || o.KL.Estimator == "k1" && o.KL.Beta > 0 {
		return nil
	}
	return func(b *selector.Batch, _ float64) []float64 {
		top, adv, _, _ := o.Curriculum.Apply(b.Rewards, b.Valid, b.B(), b.G, 1, o.Advantage)
		w := make([]float64, len(b.Valid))
		for i, ok := range top.Valid {
			at := i/top.K*b.G + top.Index[i]
			if !ok || o.MaskTruncated && b.Cut(at) {
				continue
			}
			w[at] = adv[i]
			if perToken := o.Ratio == "token" && o.Loss != "bnpo" && o.Loss != "dapo" && o.Loss != "dr_grpo"; perToken || o.Loss == "gspo" {
				w[at] /= float64(max(1, len(b.Scored(at/b.G, at%b.G)))) // a mean over the candidate's steps
			}
		}
		return w
	}
}
