// The operations of a transformer over packed rows: N rows of all sequences of a batch, without padding.
#include <algorithm>

#include "guard.h"

namespace {

// Rows of q see keys Prefix and Own; the fields of Go's Span.
struct Span {
  int64_t q, q_len, prefix, prefix_len, own, own_len, causal;
};

at::Tensor rms_norm_composed(const at::Tensor &x, const at::Tensor &weight, double eps) {
  at::Tensor f = x.to(at::kFloat);
  if (x.scalar_type() == at::kDouble) f = x;
  at::Tensor y = f * (f.square().mean(-1, true) + eps).rsqrt();
  return weight * y.to(x.scalar_type());
}

at::Tensor rope_composed(const at::Tensor &x, const at::Tensor &cos, const at::Tensor &sin) {
  const int64_t half = x.size(2) / 2;
  at::Tensor f = x.scalar_type() == at::kDouble ? x : x.to(at::kFloat), c = cos.unsqueeze(1), s = sin.unsqueeze(1);
  at::Tensor a = f.narrow(2, 0, half), b = f.narrow(2, half, half);
  return at::cat({a * c - b * s, b * c + a * s}, 2).to(x.scalar_type());
}

at::Tensor attend_composed(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const std::vector<Span> &spans, double scale) {
  const int64_t heads = q.size(1), kv = k.size(1), d = q.size(2), group = heads / kv;
  const at::ScalarType type = q.scalar_type();
  std::vector<at::Tensor> rows;
  for (const Span &s : spans) {
    auto keys = [&](const at::Tensor &x) {  // [Hk, L, D]
      at::Tensor own = x.narrow(0, s.own, s.own_len);
      return (s.prefix_len == 0 ? own : at::cat({x.narrow(0, s.prefix, s.prefix_len), own})).transpose(0, 1);
    };
    const int64_t length = s.prefix_len + s.own_len;
    at::Tensor qs = q.narrow(0, s.q, s.q_len).view({s.q_len, kv, group, d}).permute({1, 2, 0, 3}).reshape({kv, group * s.q_len, d});
    at::Tensor scores = at::bmm(qs, keys(k).transpose(1, 2)).mul(scale).view({kv, group, s.q_len, length});
    if (type != at::kDouble) scores = scores.to(at::kFloat);
    if (s.causal && s.q_len > 1) {
      at::Tensor hidden = at::ones({s.q_len, length}, scores.options().dtype(at::kBool)).triu(length - s.q_len + 1);
      scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
    }
    at::Tensor p = scores.softmax(-1).to(type).view({kv, group * s.q_len, length});
    rows.push_back(at::bmm(p, keys(v)).view({heads, s.q_len, d}).transpose(0, 1));
  }
  return rows.size() == 1 ? rows[0].contiguous() : at::cat(rows);
}

// The spans in the order of their rows, which they must tile.
std::vector<Span> checked(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const int64_t *data, int64_t n) {
  TORCH_CHECK(q.dim() == 3 && k.dim() == 3 && k.sizes() == v.sizes() && q.size(2) == k.size(2) && k.size(1) > 0 && q.size(1) % k.size(1) == 0,
              "attend: q ", q.sizes(), ", k ", k.sizes(), ", v ", v.sizes(), ": want [N, Hq, D] and twice [M, Hk, D], Hq a multiple of Hk");
  std::vector<Span> spans(n);
  for (int64_t i = 0; i < n; i++) {
    const int64_t *d = data + 7 * i;
    spans[i] = Span{d[0], d[1], d[2], d[3], d[4], d[5], d[6]};
    const Span &s = spans[i];
    auto inside = [&](int64_t at, int64_t len) { return at >= 0 && len >= 0 && at + len <= k.size(0); };
    TORCH_CHECK(s.q_len > 0 && inside(s.prefix, s.prefix_len) && inside(s.own, s.own_len) && s.prefix_len + s.own_len > 0, "attend: span ", i, " lies outside of ", k.size(0), " keys");
    TORCH_CHECK(!s.causal || s.own_len >= s.q_len, "attend: causal span ", i, " has ", s.q_len, " rows and only ", s.own_len, " own keys");
  }
  std::sort(spans.begin(), spans.end(), [](const Span &a, const Span &b) { return a.q < b.q; });
  int64_t row = 0;
  for (const Span &s : spans) {
    TORCH_CHECK(s.q == row, "attend: row ", row, " of q is in no span, or in two");
    row += s.q_len;
  }
  TORCH_CHECK(row == q.size(0), "attend: spans cover ", row, " of ", q.size(0), " rows of q");
  return spans;
}

at::Tensor scores(const at::Tensor &hidden, const at::Tensor &weight) {
  at::Tensor z = at::linear(hidden, weight.scalar_type() == hidden.scalar_type() ? weight : weight.to(hidden.scalar_type()));
  return z.scalar_type() == at::kDouble ? z : z.to(at::kFloat);
}

}  // namespace

extern "C" {

const char *fc_rms_norm(Tensor x, Tensor weight, double eps, Tensor *out) {
  return guard([&] { *out = wrap(rms_norm_composed(*x, *weight, eps)); });
}

const char *fc_swiglu(Tensor gate, Tensor up, Tensor *out) {
  return guard([&] { *out = wrap(at::silu(*gate) * *up); });
}

const char *fc_rope(Tensor x, Tensor cos, Tensor sin, Tensor *out) {
  return guard([&] { *out = wrap(rope_composed(*x, *cos, *sin)); });
}

const char *fc_attend(Tensor q, Tensor k, Tensor v, const int64_t *spans, int64_t n, double scale, Tensor *out) {
  return guard([&] { *out = wrap(attend_composed(*q, *k, *v, checked(*q, *k, *v, spans, n), scale)); });
}

const char *fc_lora_linear(Tensor x, Tensor weight, Tensor bias, Tensor a, Tensor b, double scale, Tensor *out) {
  return guard([&] {
    const at::ScalarType type = x->scalar_type();
    at::Tensor w = weight->scalar_type() == type ? *weight : weight->to(type);
    at::Tensor y = bias == nullptr ? at::linear(*x, w) : at::linear(*x, w, bias->scalar_type() == type ? *bias : bias->to(type));
    at::Tensor low = at::linear(x->scalar_type() == a->scalar_type() ? *x : x->to(a->scalar_type()), *a);
    *out = wrap(y + at::linear(low, *b).mul(scale).to(type));
  });
}

const char *fc_token_logp(Tensor hidden, Tensor weight, Tensor targets, double temperature, Tensor *logp, Tensor *entropy) {
  return guard([&] {
    at::Tensor z = scores(*hidden, *weight).div(temperature).log_softmax(-1);
    *logp = wrap(z.gather(1, targets->unsqueeze(1)).squeeze(1));
    *entropy = wrap(-(z.exp() * z).sum(-1));
  });
}

const char *fc_token_kl(Tensor hidden, Tensor weight, Tensor ref_hidden, Tensor ref_weight, Tensor *out) {
  return guard([&] {
    at::NoGradGuard no_grad;
    std::vector<at::Tensor> parts;
    for (int64_t i = 0; i < hidden->size(0); i += 128) {
      const int64_t n = std::min<int64_t>(128, hidden->size(0) - i);
      at::Tensor p = scores(hidden->narrow(0, i, n), *weight).log_softmax(-1), r = scores(ref_hidden->narrow(0, i, n), *ref_weight).log_softmax(-1);
      parts.push_back((p.exp() * (p - r)).sum(-1));
    }
    *out = wrap(at::cat(parts));
  });
}

const char *fc_write_rows(Tensor dst, int64_t at, Tensor src) {
  return guard([&] {
    at::NoGradGuard no_grad;
    dst->narrow(0, at, src->size(0)).copy_(*src);
  });
}
const char *fc_write_rows_at(Tensor dst, Tensor rows, Tensor src) {
  return guard([&] {
    at::NoGradGuard no_grad;
    dst->index_copy_(0, *rows, *src);
  });
}

}  // extern "C"
