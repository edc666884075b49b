package torchx

// #include "csrc/rounding.h"
import "C"

// Rounding names operations that compute in float32 whatever their rows are.
type Rounding int

// The operations that PlantRounding can spoil.
const (
	RoundNorms      Rounding = 1 << iota // RMSNorm, AddRMSNorm, LayerNorm
	RoundAttention                       // Attend: scores, their softmax and what it weighs
	RoundVocabulary                      // TokenLogp: the softmax over the vocabulary
)

// PlantRounding makes operations on a CPU round to the type of their rows at each step, until it is called again: the faults that
// tests of bfloat16 must see. Nothing else calls it.
func PlantRounding(operations Rounding) { C.fc_plant_rounding(C.int(operations)) }
