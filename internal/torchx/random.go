package torchx

// #include <stdlib.h>
// #include "csrc/fulcrum_torch.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// Generator is a seeded source of random tensors for one purpose. Re-seeding it from (seed, purpose,
// step) before each use makes a resumed run draw what the uninterrupted one would.
type Generator struct{ g C.Generator }

// NewGenerator returns a generator on device ("cpu", "cuda:0"). Call Free when done.
func NewGenerator(seed uint64, device string) *Generator {
	d := C.CString(device)
	defer C.free(unsafe.Pointer(d))
	g := &Generator{}
	check("generator", C.fc_generator(C.uint64_t(seed), d, &g.g))
	return g
}

// Seed restarts the stream.
func (g *Generator) Seed(seed uint64) {
	check("generator", C.fc_generator_seed(g.g, C.uint64_t(seed)))
}

// Uniform returns a float32 tensor with entries from U[lo, hi), on the device of like.
func (g *Generator) Uniform(like Tensor, lo, hi float64, shape ...int) Tensor {
	t := FullLike(like, 0, Float32, shape...)
	check("uniform", C.fc_uniform_(t.c(), C.double(lo), C.double(hi), g.g))
	return t
}

// Normal returns a float32 tensor with entries from N(mean, std²), on the device of like.
func (g *Generator) Normal(like Tensor, mean, std float64, shape ...int) Tensor {
	t := FullLike(like, 0, Float32, shape...)
	check("normal", C.fc_normal_(t.c(), C.double(mean), C.double(std), g.g))
	return t
}

// DropoutRows zeroes entries of x [N, …] with probability p and scales the others by 1/(1-p). The mask of each block of
// rows[i] rows is drawn from the stream of seed(i), whatever the other blocks are.
func (g *Generator) DropoutRows(x Tensor, p float64, rows []int, seed func(i int) uint64) Tensor {
	u, at := FullLike(x, 0, Float32, x.Shape()...), 0
	for i, n := range rows {
		if at+n > x.Shape()[0] {
			break
		}
		if n > 0 {
			g.Seed(seed(i))
			check("uniform", C.fc_uniform_(Narrow(u, 0, at, n).c(), C.double(0), C.double(1), g.g))
		}
		at += n
	}
	if at != x.Shape()[0] {
		panic(opError("dropout", fmt.Sprintf("blocks of %v rows are not those of %v", rows, x.Shape()), []Tensor{x}))
	}
	return Mul(x, Scale(Compare(u, "ge", p).To(Float32), 1/(1-p)))
}

// Gumbel returns standard Gumbel noise -log(-log u), for sampling by arg-max (Kool et al. 2019).
func (g *Generator) Gumbel(like Tensor, shape ...int) Tensor {
	u := g.Uniform(like, 1e-20, 1, shape...)
	return Neg(Log(Neg(Log(Clamp(u, 1e-20, 1-6e-8)))))
}

func (g *Generator) Free() {
	if g.g != nil {
		C.fc_generator_free(g.g)
		g.g = nil
	}
}
