package torchx

import "testing"

// BenchmarkCUDAKernels measures the passes between a transformer's products at the sizes of Qwen2.5-1.5B in bfloat16, and the
// copy that is their ceiling. GB/s counts what a pass must read and write. FULCRUM_CUDA_KERNELS=0 measures libtorch's operations:
//
//	go test -run '^$' -bench CUDAKernels -benchtime 20x ./internal/torchx
func BenchmarkCUDAKernels(b *testing.B) {
	onCUDA(b)
	Attach(8)
	defer Scope()()
	const n, hidden, mlp, heads, dim, vocabulary, rank = 16384, 1536, 8960, 12, 128, 151936, 64
	g := NewGenerator(1, "cuda:0")
	defer g.Free()
	like := Zeros().ToDevice("cuda:0")
	random := func(shape ...int) Tensor { return g.Normal(like, 0, 1, shape...).To(BFloat16) }
	x, delta, w, gate, up := random(n, hidden), random(n, hidden), random(hidden), random(n, mlp), random(n, mlp)
	q, table := random(n, heads, dim), Scale(random(vocabulary, hidden), 0.02)
	angle := FullLike(x, 0.6, Float32, n, dim/2)
	targets := From(make([]int64, n), n).ToDevice("cuda:0")
	wide, a, back := random(mlp, hidden), RequireGrad(random(rank, hidden).To(Float32)), RequireGrad(random(mlp, rank).To(Float32))
	const row, wideRow = 2 * n * hidden, 2 * n * mlp // bytes

	run := func(name string, bytes int64, f func()) {
		b.Run(name, func(b *testing.B) {
			f()
			Synchronize()
			b.SetBytes(bytes)
			b.ResetTimer()
			for range b.N { // b.Loop would stop the clock before the device is done
				end := Scope()
				f()
				end()
			}
			Synchronize()
		})
	}
	// both measures f forward, and forward with backward.
	both := func(name string, forward, backwards int64, leaf Tensor, dy Tensor, f func(x Tensor) Tensor) {
		run(name, forward, func() { defer NoGrad()(); f(leaf) })
		run(name+" and back", forward+backwards, func() {
			defer Scope()()
			in := RequireGrad(Detach(leaf))
			backward(f(in), dy, 0)
		})
	}
	run("copy", 2*wideRow, func() { Copy(gate, up) })
	both("rms_norm", 2*row, 3*row, x, x, func(x Tensor) Tensor { return RMSNorm(x, w, 1e-6) })
	both("add_rms_norm", 4*row, 3*row, x, x, func(x Tensor) Tensor { _, y := AddRMSNorm(x, delta, w, 1e-6); return y })
	both("swiglu", 3*wideRow, 5*wideRow, gate, up, func(x Tensor) Tensor { return SwiGLU(x, up) })
	both("rope", 2*row, 2*row, q, q, func(x Tensor) Tensor { return Rope(x, angle, angle) })
	both("lora_linear", row+wideRow, 2*row+wideRow, x, gate, func(x Tensor) Tensor { return LoRALinear(x, wide, Tensor{}, a, back, 1) })
	both("linear", row+wideRow, row+wideRow, x, gate, func(x Tensor) Tensor { return Linear(x, wide, Tensor{}) })
	ones := FullLike(x, 1, Float32, n)
	both("token_logp", 8*n*vocabulary, (8+4+4)*n*vocabulary, x, ones, func(x Tensor) Tensor {
		logp, _ := TokenLogp(x, table, targets, 1)
		return logp
	})
	run("token_kl", 16*n*vocabulary, func() { TokenKL(x, table, x, table) })
	pool, actions := random(512, 65, 64).To(Float32), From(make([]int64, 512*64*2), 512, 64, 2).ToDevice("cuda:0")
	both("pick_logp", 0, 0, pool, FullLike(x, 1, Float32, 512, 64, 2), func(x Tensor) Tensor {
		return PickLogp(x, actions, -100, Tensor{}).LogP
	})
}
