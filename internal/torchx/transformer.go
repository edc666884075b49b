package torchx

// #include "csrc/fulcrum_torch.h"
import "C"

import "unsafe"

// The operations of a transformer. Rows are packed: N rows of all sequences of a batch, without padding.

// RMSNorm returns weight·x/√(mean(x²)+eps) over the last dimension (Zhang & Sennrich 2019). The statistics
// are float32; x is rounded to its own type before the product with weight [D].
func RMSNorm(x, weight Tensor, eps float64) Tensor {
	return made("rms_norm", func(out *C.Tensor) *C.char { return C.fc_rms_norm(x.c(), weight.c(), C.double(eps), out) }, x, weight)
}

// AddRMSNorm returns x + delta and the RMSNorm of it: a residual connection and the norm after it in one pass.
func AddRMSNorm(x, delta, weight Tensor, eps float64) (total, normed Tensor) {
	must("add_rms_norm", x, delta, weight)
	var t, out C.Tensor
	check("add_rms_norm", C.fc_add_rms_norm(x.c(), delta.c(), weight.c(), C.double(eps), &t, &out), x, delta, weight)
	return adopt(t), adopt(out)
}

// SwiGLU returns silu(gate)·up (Shazeer 2020), both of one shape.
func SwiGLU(gate, up Tensor) Tensor {
	return made("swiglu", func(out *C.Tensor) *C.char { return C.fc_swiglu(gate.c(), up.c(), out) }, gate, up)
}

// Rope rotates the pairs (x[i], x[i+D/2]) of every head of x [N, H, D] by the angles whose cosines and sines
// are given, [N, D/2] float32 (Su et al. 2021, in GPT-NeoX's halves). Computed in float32, returned in x's type.
func Rope(x, cos, sin Tensor) Tensor {
	return made("rope", func(out *C.Tensor) *C.char { return C.fc_rope(x.c(), cos.c(), sin.c(), out) }, x, cos, sin)
}

// Span says which keys some rows of queries see: rows Q … Q+QLen of q see the keys Prefix … Prefix+PrefixLen
// (a prompt that the completions of a group share, say) and Own … Own+OwnLen. With Causal, row i sees its own
// keys up to OwnLen-QLen+i: the last row sees them all.
type Span struct {
	Q, QLen           int
	Prefix, PrefixLen int
	Own, OwnLen       int
	Causal            bool
}

// Attend is grouped-query attention over packed rows: q [N, Hq, D], k and v [M, Hk, D] → [N, Hq, D]. Query head
// h reads key head h·Hk/Hq. Every row of q is in exactly one span. The softmax of scale·q·k is float32. One
// operation serves training with a shared prompt, prefill, decoding (k and v are the cache) and windows.
func Attend(q, k, v Tensor, spans []Span, scale float64) Tensor {
	return AttendBiased(q, k, v, spans, scale, Tensor{}, 0)
}

// AttendBiased is Attend with a bias on the scores, of the query's head and its distance to the key (Raffel et al. 2020):
// bias [Hq, distances], that of a key d places after its query at zero+d. Places count the keys of a span; its last row is
// at the place of its last key. Without a bias it is Attend.
func AttendBiased(q, k, v Tensor, spans []Span, scale float64, bias Tensor, zero int) Tensor {
	must("attend", q, k, v)
	flat := make([]C.int64_t, 0, 7*len(spans)+1)
	for _, s := range spans {
		causal := 0
		if s.Causal {
			causal = 1
		}
		for _, x := range [...]int{s.Q, s.QLen, s.Prefix, s.PrefixLen, s.Own, s.OwnLen, causal} {
			flat = append(flat, C.int64_t(x))
		}
	}
	var out C.Tensor
	check("attend", C.fc_attend(q.c(), k.c(), v.c(), unsafe.SliceData(flat), C.int64_t(len(spans)), C.double(scale), bias.c(),
		C.int64_t(zero), &out), q, k, v, bias)
	return adopt(out)
}

// DecodeSpans says which keys the rows of a decoding step see, one row a sequence. The tensors are int32 where q is. Their
// numbers may be changed in place between replays of a CUDA graph, up to the longest lengths: on a GPU, AttendDecode never
// reads them on the host. A step must be computed once before it is captured. Starts may be one longer than lengths; the last
// number is not used, and a copy a call is saved.
type DecodeSpans struct {
	Prefix, PrefixLen Tensor // [P]: first key and how many, at least one; rows i·N/P … share prefix i. No tensors: no prefix
	Own, OwnLen       Tensor // [N]: first key and how many, at least one
	MaxPrefix, MaxOwn int    // the longest that PrefixLen and OwnLen ever hold
	Fast              bool   // on CUDA by our own kernel, whose sums have another order: 16-bit types, heads of 64 or 128
}

// AttendDecode is Attend of rows that see all their keys: q [N, Hq, D], k and v [M, Hk, D] → [N, Hq, D].
func AttendDecode(q, k, v Tensor, spans *DecodeSpans, scale float64) Tensor {
	return made("attend_decode", func(out *C.Tensor) *C.char {
		return C.fc_attend_decode(q.c(), k.c(), v.c(), spans.Prefix.c(), spans.PrefixLen.c(), spans.Own.c(), spans.OwnLen.c(),
			C.int64_t(spans.MaxPrefix), C.int64_t(spans.MaxOwn), C.bool(spans.Fast), C.double(scale), out)
	}, q, k, v, spans.Own, spans.OwnLen)
}

// LoRALinear returns x·Wᵀ + bias + scale·(x·Aᵀ)·Bᵀ over the last dimension (Hu et al. 2021): weight [out, in],
// bias [out] or no tensor, a [r, in], b [out, r]. weight and bias are frozen, of any float type, or parameters.
func LoRALinear(x, weight, bias, a, b Tensor, scale float64) Tensor {
	must("lora_linear", x, weight, a, b)
	var out C.Tensor
	check("lora_linear", C.fc_lora_linear(x.c(), weight.c(), bias.c(), a.c(), b.c(), C.double(scale), &out), x, weight, bias, a, b)
	return adopt(out)
}

// TokenLogp returns log softmax(hidden·weightᵀ/temperature)[target] of each row and the entropy of the row's
// distribution in nats, [N] float32 each, both with gradient. hidden [N, H], weight [V, H], targets [N] int64. A target
// outside of the vocabulary is an error; on CUDA its log-probability is NaN, as a check would wait for the device.
func TokenLogp(hidden, weight, targets Tensor, temperature float64) (logp, entropy Tensor) {
	must("token_logp", hidden, weight, targets)
	var l, e C.Tensor
	check("token_logp", C.fc_token_logp(hidden.c(), weight.c(), targets.c(), C.double(temperature), &l, &e), hidden, weight, targets)
	return adopt(l), adopt(e)
}

// TokenKL returns the exact KL(π ‖ reference) of each row's distribution over the vocabulary in nats, [N]
// float32 without gradient. hidden and refHidden are [N, H], weight and refWeight [V, H].
func TokenKL(hidden, weight, refHidden, refWeight Tensor) Tensor {
	return made("token_kl", func(out *C.Tensor) *C.char {
		return C.fc_token_kl(hidden.c(), weight.c(), refHidden.c(), refWeight.c(), out)
	}, hidden, weight, refHidden, refWeight)
}

// WriteRowsAt sets dst[rows[i]] to row i of src in place; rows is int64 [n]. Autograd does not see it.
func WriteRowsAt(dst, rows, src Tensor) {
	must("write_rows", dst, rows, src)
	check("write_rows", C.fc_write_rows_at(dst.c(), rows.c(), src.c()), dst, rows, src)
}

// ReplaceRows returns x with row rows[i] replaced by row i of src, with gradient for both; rows (int64 [n])
// names no row twice.
func ReplaceRows(x, rows, src Tensor) Tensor {
	return made("replace_rows", func(out *C.Tensor) *C.char { return C.fc_replace_rows(x.c(), rows.c(), src.c(), out) }, x, rows, src)
}
