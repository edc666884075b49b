package grpo

import (
	"math"

	"fulcrum/internal/option"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/selector"
)

// CorrectionOptions weighs samples by how much likelier the old policy's forward pass holds them than the sampler did, whose arithmetic is
// another one (truncated and masked importance sampling, as in TRL and verl).
type CorrectionOptions struct {
	// weighs the surrogate by π_old/π_sampler, at most 2; mask: 0 above
	Kind string `koanf:"kind" enum:"none,truncate,mask"`
	// weights of tokens or sequences
	Level string `koanf:"level" enum:"token,sequence" when:"!kind=none"`
	// largest weight
	Clip float64 `koanf:"clip" range:"[1,inf)" constant:"true" also:"vllm_importance_sampling_clip_max,vllm_importance_sampling_cap,tis_imp_ratio_cap"`
}

// on reports whether samples are weighted.
func (o CorrectionOptions) on() bool { return o.Kind != "none" }

// kept has room for a batch's weights; nil without.
func (o CorrectionOptions) kept(b *selector.Batch) []float32 {
	switch {
	case !o.on():
		return nil
	case o.Level == "token":
		return make([]float32, len(b.Mask))
	}
	return make([]float32, len(b.Valid))
}

// corrected is what the correction of a part needs.
type corrected struct {
	sampled, drawn torchx.Tensor // [B, G, T] log-probabilities in the sampler, 1 = a token that it drew; in the first pass
	correction     torchx.Tensor // weights, in later passes
}

// validCorrection refuses a correction of what has no sampling probabilities, and weights of tokens where there are no terms of tokens.
func (o Options) validCorrection(samples bool) error {
	switch {
	case !o.Correction.on():
	case !samples:
		return option.Errorf("correction.kind", "want none with rollout=%s: with which probability recorded candidates were sampled is not known",
			o.Rollout)
	case o.Correction.Level == "token" && o.Ratio == "sequence":
		return option.Errorf("correction.level", "want sequence with ratio=sequence: a candidate has one term in the loss, got token")
	}
	return nil
}

// correctionShape is the shape of a part's weights.
func (g *Phase) correctionShape(in *inputs) []int {
	b := in.part.batch
	if g.opt.Correction.Level == "token" {
		return []int{b.B(), b.G, b.T}
	}
	return g.shape(b, 1)
}

// correctionInput stages the log-probabilities that a part's tokens were sampled with, or the weights of an earlier pass.
func (g *Phase) correctionInput(in *inputs, up *phases.Inputs) {
	b := in.part.batch
	switch {
	case !g.opt.Correction.on():
		return
	case in.part.known:
		torchx.Put(&up.Upload, &in.correction, in.part.correction, g.correctionShape(in)...)
		return
	}
	sampled, drawn := make([]float32, len(b.Mask)), make([]float32, len(b.Mask))
	for at, logp := range b.Sampled {
		if b.Mask[at] != 0 && !math.IsNaN(logp) { // a forced token was not drawn
			sampled[at], drawn[at] = float32(logp), 1
		}
	}
	torchx.Put(&up.Upload, &in.sampled, sampled, b.B(), b.G, b.T)
	torchx.Put(&up.Upload, &in.drawn, drawn, b.B(), b.G, b.T)
}

// correct returns the factors of a part's surrogate, in.weight times the correction, which it returns too where there is one.
func (g *Phase) correct(in *inputs, old view) (weight, correction torchx.Tensor) {
	switch {
	case !g.opt.Correction.on():
		return in.weight, torchx.Tensor{}
	case in.part.known:
		correction = in.correction
	default:
		correction = g.correction(in, old)
	}
	return torchx.Mul(in.weight, correction), correction
}

// correction is exp(log π_old - log π_sampler) of a part, cut or masked. No gradient.
func (g *Phase) correction(in *inputs, old view) torchx.Tensor {
	o := g.opt.Correction
	d := torchx.Mul(torchx.Sub(torchx.Detach(old.steps), in.sampled), in.drawn) // [B, G, T]
	if o.Level == "sequence" {
		d = torchx.Reshape(torchx.Sum(d, 2), g.correctionShape(in)...)
	}
	w := torchx.Exp(d)
	if o.Kind == "mask" {
		return torchx.MaskedFill(w, torchx.Compare(w, "gt", o.Clip), 0)
	}
	return torchx.Clamp(w, 0, o.Clip)
}

// addCorrection counts the weights of a part that were cut or masked, of sampled tokens or of candidates.
func (f *tally) addCorrection(o CorrectionOptions, part rollout, weights []float64) {
	b := part.batch
	width := len(weights) / len(b.Valid)
	for at, w := range weights {
		if !b.Valid[at/width] || width > 1 && (b.Mask[at] == 0 || math.IsNaN(b.Sampled[at])) {
			continue
		}
		f.weights++
		if w == 0 || w >= float64(float32(o.Clip)) {
			f.cut++
		}
	}
}
