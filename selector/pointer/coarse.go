package pointer

import (
	"fulcrum/internal/option"
	"fulcrum/internal/torchx"
)

// CoarseOptions makes the selection hierarchical (v4-9). A separate bi-encoder scores the pool once for each query. The selector
// shares out the coarse probability of its top M candidates; the others keep theirs:
//
//	π(j) = softmax(coarse)_j                                          j outside the top M
//	π(j) = Σ over the top M of softmax(coarse) · softmax(fine in M)_j   j among them
//
// Both softmaxes are over the candidates not chosen yet. Every candidate keeps a finite log-probability, and both stages learn from
// every choice. As logits: fine_j - LSE_M(fine) + LSE_M(coarse) among the top M, coarse_j outside.
type CoarseOptions struct {
	// candidates that the selector chooses among; at least shot_num; null = the whole pool, no coarse stage
	TopM *int `koanf:"coarse_top_m" range:"[1,inf)" when:"!head=none"`
	// width of the coarse bi-encoder
	Dim int `koanf:"coarse_dim" range:"[1,inf)" constant:"true"`
}

func (o CoarseOptions) validate(all Options) error {
	switch {
	case o.TopM == nil:
		return nil
	case all.ShotNum != nil && *o.TopM < *all.ShotNum:
		return option.Errorf("coarse_top_m", "want at least shot_num = %d, got %d", *all.ShotNum, *o.TopM)
	case all.Taken != "excluded":
		return option.Errorf("coarse_top_m", "want null where a choice may come again, as in the Python reference: the two stages share out the "+
			"probability of the candidates not chosen yet")
	}
	return nil
}

// weights lists the coarse stage's parameters. Both projections start alike: coarse scores are then the cosines of
// randomly projected embeddings.
func (o CoarseOptions) weights(h int) []weight {
	if o.TopM == nil {
		return nil
	}
	return []weight{
		{name: "coarse.query_proj.weight", shape: []int{o.Dim, h}, start: xavier, stream: "coarse"},
		{name: "coarse.cand_proj.weight", shape: []int{o.Dim, h}, start: xavier, stream: "coarse"},
	}
}

// coarseStage scores the pool for projected queries x [B, h] and candidates rows [U, h] (before any attention) and
// picks the top M: e.coarse and e.top.
func (p *Policy) coarseStage(in *inputs, e *encoded, x, rows torchx.Tensor) {
	query := torchx.Normalize(torchx.Linear(x, p.params.Get("coarse.query_proj.weight"), torchx.Tensor{}))  // [B, dim]
	cand := torchx.Normalize(torchx.Linear(rows, p.params.Get("coarse.cand_proj.weight"), torchx.Tensor{})) // [U, dim]
	z := torchx.Scale(products(torchx.Unsqueeze(query, 1), e.perQuery(cand)), 1/p.opt.Temperature)          // [B, 1, K]
	if p.opt.Skip.Enabled {
		z = torchx.Add(torchx.Mul(z, p.params.Get("learned_scale")), e.skip)
	}
	if !e.base.Nil() {
		z = torchx.Add(z, e.base)
	}
	_, best := torchx.TopK(torchx.Detach(z), min(*p.opt.Coarse.TopM, in.k), 2) // [B, 1, M]
	e.coarse = z
	e.top = torchx.Compare(torchx.ScatterValue(torchx.FullLike(z, 0, p.dtype, in.b, 1, in.k), 2, best, 1), "gt", 0.5)
}

// coarseToFine joins the stages. In fine [B, R, K] the taken candidates are already excluded.
func (p *Policy) coarseToFine(e encoded, r rows, fine torchx.Tensor, temperature float64) torchx.Tensor {
	coarse := r.exclude(r.repeated(scaled(e.coarse, temperature)), impossible)
	outside := torchx.Not(e.top)                                                       // [B, 1, K]
	share := torchx.LogSumExp(torchx.MaskedFill(coarse, outside, impossible), 2, true) // [B, R, 1]
	within := torchx.LogSumExp(torchx.MaskedFill(fine, outside, impossible), 2, true)
	return torchx.Where(e.top, torchx.Add(fine, torchx.Sub(share, within)), coarse)
}
