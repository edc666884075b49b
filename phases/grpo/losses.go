package grpo

// Losses lists the losses that grpo.loss may name.
func Losses() []Loss {
	return []Loss{lossGRPO(), lossBNPO(), lossDAPO(), lossDrGRPO(), lossGSPO(), lossPPOClip()}
}

// Loss is one way to average the loss of GRPO over candidates i with tokens t, ratio ρ = π/π_old and advantage A:
//
//	Σ_it weight_it · [-min(ρ_it A_i, clip(ρ_it, 1-low, 1+high) A_i) + β·KL_it] / divisor
//
// With ratio=sequence a candidate has one term, whose ratio is Π_t ρ_it and whose weight is 1.
type Loss struct {
	Name string
	// EveryToken weighs every token 1; otherwise the tokens of a candidate share its weight of 1. It needs ratio=token.
	EveryToken bool
	// Divisor returns what the sum is divided by. The counts are those of the whole optimizer batch, whatever
	// micro_batch says.
	Divisor func(Counts) float64
	// MeanRatio replaces the ratios of a candidate by one, exp(mean_t log ρ_it).
	MeanRatio bool
	// NoKL leaves the KL term out. β is adapted and reported all the same.
	NoKL bool
}

func (l Loss) named() string { return l.Name }

// MeanOfSteps reports whether a candidate's loss is a mean over its scored steps: its tokens share a weight of 1, or it has one
// ratio, of their mean.
func (o Options) MeanOfSteps() bool {
	c, err := o.choose()
	return err == nil && (c.loss.MeanRatio || o.Ratio == "token" && !c.loss.EveryToken)
}

// Counts describes an optimizer batch.
type Counts struct {
	Candidates int // the truncated ones that mask_truncated leaves out included
	Tokens     int // scored
	Longest    int // tokens that a candidate may have
}

func perCandidate(n Counts) float64 { return float64(max(n.Candidates, 1)) }
func perToken(n Counts) float64     { return float64(max(n.Tokens, 1)) }

// lossGRPO is the mean over a candidate's tokens, then over candidates: DeepSeekMath (arXiv:2402.03300) eq. 3.
func lossGRPO() Loss { return Loss{Name: "grpo", Divisor: perCandidate} }

// lossBNPO is the mean over all tokens of the batch. TRL's divides every micro-batch by its own tokens, so that its loss
// depends on how much memory there is; this one does not, and equals dapo.
func lossBNPO() Loss { return Loss{Name: "bnpo", EveryToken: true, Divisor: perToken} }

// lossDAPO is the mean over all tokens of the batch: DAPO (arXiv:2503.14476) eq. 8.
func lossDAPO() Loss { return Loss{Name: "dapo", EveryToken: true, Divisor: perToken} }

// lossDrGRPO divides the sum over tokens by candidates and the longest length allowed: Dr. GRPO (arXiv:2503.20783) §3.2.
func lossDrGRPO() Loss {
	return Loss{Name: "dr_grpo", EveryToken: true, Divisor: func(n Counts) float64 { return perCandidate(n) * float64(n.Longest) }}
}

// lossGSPO is grpo with one length-normalised ratio a candidate: GSPO (arXiv:2507.18071) eq. 5.
func lossGSPO() Loss { return Loss{Name: "gspo", Divisor: perCandidate, MeanRatio: true} }

// lossPPOClip is the surrogate of grpo alone.
func lossPPOClip() Loss { return Loss{Name: "ppo_clip", Divisor: perCandidate, NoKL: true} }
