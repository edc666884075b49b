package pointer

import (
	"fulcrum/internal/torchx"
)

// DiversityOptions adds to each candidate's score its worth beside the examples chosen so far. Score and term are divided
// by the temperature alike; the term starts small.
type DiversityOptions struct {
	// worth beside what is chosen: mmr = minus the largest cosine with it (v4_3), coverage = needed topics still open
	// (v4_6), logdet = log-determinant gain of a DPP (v4_7)
	Kind string `koanf:"diversity" enum:"none,mmr,coverage,logdet" when:"!head=none"`
	// weight of the term at the start: small, as it is learned; mmr has one a step
	Weight float64 `koanf:"diversity_weight" range:"(0,inf)" constant:"true"`
	// topics M (coverage)
	Prototypes int `koanf:"diversity_prototypes" range:"[1,inf)" constant:"true"`
	// ε on the diagonal of the DPP's kernel: the term is never below log ε (logdet)
	Ridge float64 `koanf:"diversity_ridge" range:"(0,inf)" constant:"true"`
}

// diversity is one kind of term. Its memory follows a selection: tensors [B, N, …], empty before the first choice.
type diversity interface {
	// weights lists the parameters.
	weights(opt Options, h int) []weight
	// prepare computes what all steps of a batch share.
	prepare(p *Policy, e *encoded)
	// remember returns the memory after choosing the vectors chosen [B, N, h].
	remember(p *Policy, e encoded, memory []torchx.Tensor, chosen torchx.Tensor) []torchx.Tensor
	// bonus scores the pool [B, N, K] before choice number step; undefined where all candidates are alike.
	bonus(p *Policy, e encoded, memory []torchx.Tensor, step int) torchx.Tensor
}

// diversities lists the kinds; nil is none.
func diversities(kind string) diversity {
	switch kind {
	case "mmr":
		return mmr{}
	case "coverage":
		return coverage{}
	case "logdet":
		return logdet{}
	}
	return nil
}
