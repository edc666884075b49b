package torchx

// #include "csrc/pool.h"
import "C"

// Pool says which rows of a table of candidates [U, D] each query chooses from, for kernels that read the rows where they are. Without
// an Index candidate k of every query is row k.
type Pool struct {
	Index   Tensor // [B, K] int64 rows
	Padding Tensor // [B, K] bool, true = no candidate; no tensor where all pools are full
	Order   Tensor // int32 places b·K + k of row 0, then of row 1, …; with an Index
	Starts  Tensor // [U+1] int32: where in Order each row's places begin
}

// PoolRuns reports whether PoolAttend and PoolScore run on tensors like x: float32 on CUDA.
func PoolRuns(x Tensor) bool { return bool(C.fc_pool_runs(x.c())) }

// PoolAttend attends from queries u [B, H, D] to the candidates of their pools: Σ_k softmax_k(scale·u·c_k) c_k, [B, H, D]. c is [U, D].
func PoolAttend(u, c Tensor, pool Pool, scale float64) Tensor {
	return made("pool_attend", func(out *C.Tensor) *C.char {
		return C.fc_pool_attend(u.c(), c.c(), pool.Index.c(), pool.Padding.c(), pool.Order.c(), pool.Starts.c(), C.double(scale), out)
	}, u, c)
}

// PoolScore multiplies queries q [B, N, D] with the candidates c [U, D] of their pools, which have an Index: [B, N, K].
func PoolScore(q, c Tensor, pool Pool) Tensor {
	return made("pool_score", func(out *C.Tensor) *C.char {
		return C.fc_pool_score(q.c(), c.c(), pool.Index.c(), pool.Order.c(), pool.Starts.c(), out)
	}, q, c, pool.Index)
}
