// What the ways of computing attention share.
#pragma once

#include <torch/torch.h>

#include <vector>

// The fields of Go's Span.
struct Span {
  int64_t q, q_len, prefix, prefix_len, own, own_len, causal;
  int64_t keys() const { return prefix_len + own_len; }
  int64_t key(int64_t l) const { return l < prefix_len ? prefix + l : own + l - prefix_len; }      // where the l-th key lies
  int64_t visible(int64_t row) const { return causal ? keys() - q_len + row + 1 : keys(); }  // keys that a row sees: a prefix of all
  int64_t place(int64_t row) const { return keys() - q_len + row; }                          // of a query among the keys: the last row's is the last key's
};

// Where the keys of decoding rows lie, int32 on the device; rows i·N/P … of q share prefix i of P. Starts may have one more
// number than lengths, which is not used.
struct DecodeKeys {
  at::Tensor prefix, prefix_len;  // [P]; undefined: none
  at::Tensor own, own_len;        // [N]
  int64_t max_prefix, max_own;
  bool fast;  // by our own kernel, whose sums have another order
};

// --- attend_parts.cc: own keys and prefixes apart, a few launches whatever the number of spans

bool parts_fit(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, size_t spans);  // whether there is a kernel for them

// spans are in the order of their rows.
at::Tensor attend_parts(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const std::vector<Span> &spans, double scale);

// Never reads the keys' places on the host. Not for float64.
at::Tensor decode_parts(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const DecodeKeys &keys, double scale);

// Scores with a bias, which those kernels do not take: one padded batch for all spans of about one shape.
at::Tensor attend_padded(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const std::vector<Span> &spans, double scale, const at::Tensor &bias, int64_t zero);
