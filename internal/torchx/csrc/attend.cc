// Grouped-query attention over packed rows (Ainslie et al. 2023), softmax row by row.
//
// On the CPU in float32 the kernel works on one key/value head of one span at a time. The query rows of all heads that
// read it are stacked, in blocks of about a hundred:
//
//	S = Q·Kᵀ             [rows, keys], only as many keys as the block's last row sees
//	P = e^(S - lse)      lse = log Σ e^S is kept, P is not
//	O = P·V
//
// and backward does S and P again (Dao et al. 2022, arXiv:2205.14135): keeping P would cost as much time in memory
// traffic as the product S, and N² memory. One row alone (decoding) goes through plain dot products.
//
// Scores may have a bias of the distance from query to key, one table row a head (Raffel et al. 2020): what a row of
// scores gets is a slice of its head's row, and the slice's gradient is that row of dS.
//
// Other types and devices: attend_parts.cc where it has a kernel, else libtorch's operations at the end of this file.
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "attend.h"
#include "guard.h"
#include "linear.h"
#include "wide.h"
#include "simd.h"

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Heads {
  int64_t q, kv, group, d;  // query heads, key heads, query heads of a key head, width
};

// Numbers a head and distance [H, width]: that of keys d places after their query is at zero + d.
struct Bias {
  float *data;  // nullptr: none
  int64_t width, zero;
  float *row(int64_t head, int64_t place) const { return data == nullptr ? nullptr : data + head * width + zero - place; }  // from key 0 on
};

constexpr int64_t kTile = 16;  // columns of a panel
constexpr int64_t kBlock = 96;  // query rows of a block, about

int64_t tiles(int64_t n) { return (n + kTile - 1) / kTile; }

// Floats of a row of scores. Columns are read too (Pᵀ): a row more than a multiple of the cache's sets apart.
int64_t row_width(int64_t keys) { return (tiles(keys) | 1) * kTile; }

// --- small products

// C [M, 16] = (or +=) A [M, k] · panel [k, 16]; A's element (m, p) is a[m·row + p·col].
template <int M, bool add>
INLINE void tile(const float *a, int64_t row, int64_t col, const float *panel, int64_t k, float *c, int64_t ldc) {
  vf left[M], right[M];
  for (int m = 0; m < M; m++) {
    left[m] = add ? load(c + m * ldc) : fill(0);
    right[m] = add ? load(c + m * ldc + kLanes) : fill(0);
  }
  for (int64_t p = 0; p < k; p++) {
    const vf b0 = load(panel + p * kTile), b1 = load(panel + p * kTile + kLanes);
#pragma GCC unroll 6
    for (int m = 0; m < M; m++) {
      const float x = a[m * row + p * col];
      left[m] += x * b0;
      right[m] += x * b1;
    }
  }
  for (int m = 0; m < M; m++) {
    store(c + m * ldc, left[m]);
    store(c + m * ldc + kLanes, right[m]);
  }
}

template <bool add>
INLINE void product_of(const float *a, int64_t row, int64_t col, int64_t m, const float *panels, int64_t stride, int64_t k, int64_t n, float *c, int64_t ldc) {
  for (int64_t j = 0; j < n; j++, panels += stride, c += kTile) {
    int64_t i = 0;
    for (; i + 6 <= m; i += 6) tile<6, add>(a + i * row, row, col, panels, k, c + i * ldc, ldc);
    const float *ai = a + i * row;
    float *ci = c + i * ldc;
    switch (m - i) {
      case 5: tile<5, add>(ai, row, col, panels, k, ci, ldc); break;
      case 4: tile<4, add>(ai, row, col, panels, k, ci, ldc); break;
      case 3: tile<3, add>(ai, row, col, panels, k, ci, ldc); break;
      case 2: tile<2, add>(ai, row, col, panels, k, ci, ldc); break;
      case 1: tile<1, add>(ai, row, col, panels, k, ci, ldc); break;
    }
  }
}
// C [m, 16 n] = A [m, k] · B, B as n panels of 16 columns that lie `stride` floats apart.
FULCRUM_SIMD void product(const float *a, int64_t row, int64_t col, int64_t m, const float *panels, int64_t stride, int64_t k, int64_t n, float *c, int64_t ldc) {
  product_of<false>(a, row, col, m, panels, stride, k, n, c, ldc);
}
FULCRUM_SIMD void add_product(const float *a, int64_t row, int64_t col, int64_t m, const float *panels, int64_t stride, int64_t k, int64_t n, float *c, int64_t ldc) {
  product_of<true>(a, row, col, m, panels, stride, k, n, c, ldc);
}

// --- rows of scores

// e^(z - lse) over the first n of a row, zeros up to the tile's end. Returns lse = log Σ e^z.
FULCRUM_SIMD float softmax_row(float *z, int64_t n, int64_t end) {
  const int64_t whole = n / kLanes * kLanes;
  vf top = fill(-INFINITY);
  for (int64_t j = 0; j < whole; j += kLanes) top = max(load(z + j), top);
  float high = -INFINITY;
  for (int l = 0; l < kLanes; l++) high = top[l] > high ? top[l] : high;
  for (int64_t j = whole; j < n; j++) high = z[j] > high ? z[j] : high;
  vf total = fill(0);
  for (int64_t j = 0; j < whole; j += kLanes) {
    const vf e = exp(load(z + j) - high);
    store(z + j, e);
    total += e;
  }
  float s = sum(total);
  if (whole < n) {
    vf rest = fill(-INFINITY);
    for (int64_t j = whole; j < n; j++) rest[j - whole] = z[j] - high;
    rest = exp(rest);
    for (int64_t j = whole; j < n; j++) {
      z[j] = rest[j - whole];
      s += z[j];
    }
  }
  const float inverse = 1 / s;
  for (int64_t j = 0; j < whole; j += kLanes) store(z + j, load(z + j) * inverse);
  for (int64_t j = whole; j < n; j++) z[j] *= inverse;
  for (int64_t j = n; j < end; j++) z[j] = 0;
  return high + std::log(s);
}

// The same with lse known.
FULCRUM_SIMD void again_row(float *z, int64_t n, int64_t end, float lse) {
  const int64_t whole = n / kLanes * kLanes;
  for (int64_t j = 0; j < whole; j += kLanes) store(z + j, exp(load(z + j) - lse));
  if (whole < n) {
    vf rest = fill(0);
    for (int64_t j = whole; j < n; j++) rest[j - whole] = z[j] - lse;
    rest = exp(rest);
    for (int64_t j = whole; j < n; j++) z[j] = rest[j - whole];
  }
  for (int64_t j = n; j < end; j++) z[j] = 0;
}

// dz = p (dp - along), in place of dp; the gradient of a softmax.
FULCRUM_SIMD void softmax_back_row(const float *p, float *dp, int64_t end, float along) {
  for (int64_t j = 0; j < end; j += kLanes) store(dp + j, load(p + j) * (load(dp + j) - along));
}

// x += y
FULCRUM_SIMD void add_row(float *x, const float *y, int64_t n) {
  for (int64_t j = 0; j < n; j++) x[j] += y[j];
}

FULCRUM_SIMD float dot(const float *a, const float *b, int64_t k) {
  const int64_t whole = k / kLanes * kLanes;
  vf total = fill(0);
  for (int64_t j = 0; j < whole; j += kLanes) total += load(a + j) * load(b + j);
  float s = sum(total);
  for (int64_t j = whole; j < k; j++) s += a[j] * b[j];
  return s;
}

// --- one query row of G heads over the keys of their head, in place

template <int G>
INLINE void one_row(const float *q, const float *k, const float *v, int64_t stride, const Span &s, int64_t d, float scale, const float *bias, int64_t bias_stride, float *z, float *out) {
  const int64_t keys = s.keys(), whole = d / kLanes * kLanes;
  for (int64_t l = 0; l < keys; l++) {
    const float *kl = k + s.key(l) * stride;
    vf acc[G];
    for (int g = 0; g < G; g++) acc[g] = fill(0);
    for (int64_t j = 0; j < whole; j += kLanes) {
      const vf x = load(kl + j);
      for (int g = 0; g < G; g++) acc[g] += load(q + g * d + j) * x;
    }
    for (int g = 0; g < G; g++) {
      float total = sum(acc[g]);
      for (int64_t j = whole; j < d; j++) total += q[g * d + j] * kl[j];
      z[g * keys + l] = total * scale;
    }
  }
  for (int g = 0; g < G; g++) {
    if (bias != nullptr) add_row(z + g * keys, bias + g * bias_stride, keys);
    softmax_row(z + g * keys, keys, keys);
  }
  for (int64_t j = 0; j < whole; j += kLanes) {
    vf acc[G];
    for (int g = 0; g < G; g++) acc[g] = fill(0);
    for (int64_t l = 0; l < keys; l++) {
      const vf x = load(v + s.key(l) * stride + j);
      for (int g = 0; g < G; g++) acc[g] += z[g * keys + l] * x;
    }
    for (int g = 0; g < G; g++) store(out + g * d + j, acc[g]);
  }
  for (int64_t j = whole; j < d; j++)
    for (int g = 0; g < G; g++) {
      float total = 0;
      for (int64_t l = 0; l < keys; l++) total += z[g * keys + l] * v[s.key(l) * stride + j];
      out[g * d + j] = total;
    }
}
FULCRUM_SIMD void decode(const float *q, const float *k, const float *v, int64_t stride, const Span &s, const Heads &heads, int64_t head, float scale, const Bias &bias, float *z,
                         float *out) {
  const int64_t d = heads.d, end = head + heads.group, width = bias.width;
  for (; head < end; head += 4, q += 4 * d, out += 4 * d) {
    const float *b = bias.row(head, s.keys() - 1);
    switch (end - head) {
      case 1: one_row<1>(q, k, v, stride, s, d, scale, b, width, z, out); break;
      case 2: one_row<2>(q, k, v, stride, s, d, scale, b, width, z, out); break;
      case 3: one_row<3>(q, k, v, stride, s, d, scale, b, width, z, out); break;
      default: one_row<4>(q, k, v, stride, s, d, scale, b, width, z, out);
    }
  }
}

// --- one key head of one span

// Memory that a thread's tasks reuse.
struct Scratch {
  std::vector<float> buffer[10];
  float *take(int i, int64_t n) {
    if (static_cast<int64_t>(buffer[i].size()) < n) buffer[i].resize(n);
    return buffer[i].data();
  }
};
Scratch &scratch() {
  thread_local Scratch s;
  return s;
}

// The rows of one head lie as far apart as all heads are wide, and the processor does not foresee the next: where a loop
// goes through rows it asks for those to come.
constexpr int64_t kAhead = 12;
INLINE void fetch(const float *row, int64_t d) {
  for (int64_t j = 0; j < d; j += 16) __builtin_prefetch(row + j);  // a line of the cache each
}

// Panels of xᵀ [d, keys]: [keys/16][d][16], zeros beyond the last key.
void pack_transposed(const float *x, int64_t stride, const Span &s, int64_t d, float *panels) {
  const int64_t keys = s.keys();
  for (int64_t t = 0; t < tiles(keys); t++, panels += d * kTile)
    for (int64_t l = 0; l < kTile; l++) {
      if (t * kTile + l + kAhead < keys) fetch(x + s.key(t * kTile + l + kAhead) * stride, d);
      const float *from = t * kTile + l < keys ? x + s.key(t * kTile + l) * stride : nullptr;
      for (int64_t j = 0; j < d; j++) panels[j * kTile + l] = from == nullptr ? 0 : from[j];
    }
}
// Panels of a matrix of n rows of d: [d/16][n][16], zeros beyond the last column; row(i) is where row i lies.
template <class Row>
void pack_rows(int64_t n, int64_t d, float *panels, Row row) {
  for (int64_t i = 0; i < n; i++, panels += kTile) {
    if (i + kAhead < n) fetch(row(i + kAhead), d);
    const float *from = row(i);
    for (int64_t t = 0; t < tiles(d); t++) {
      float *to = panels + t * n * kTile;
      const int64_t width = std::min(kTile, d - t * kTile);
      if (width == kTile) {
        std::memcpy(to, from + t * kTile, kTile * sizeof(float));
      } else {
        for (int64_t j = 0; j < kTile; j++) to[j] = j < width ? from[t * kTile + j] : 0;
      }
    }
  }
}

// The rows of a block: `count` rows of the span from `first` on, for each query head of key head h; row r is
// of head h·group + r / count.
struct Block {
  const Span &s;
  const Heads &heads;
  int64_t h, first, count;
  int64_t rows() const { return heads.group * count; }
  int64_t row(int64_t r) const { return (s.q + first + r % count) * heads.q + head(r); }  // among rows of width d
  int64_t head(int64_t r) const { return h * heads.group + r / count; }
  int64_t visible(int64_t r) const { return s.visible(first + r % count); }
  float *bias(const Bias &b, int64_t r) const { return b.row(head(r), s.place(first + r % count)); }
  int64_t limit() const { return s.visible(first + count - 1); }  // keys that any row sees
};

int64_t block_rows(const Heads &heads, const Span &s) { return std::min(s.q_len, std::max<int64_t>(1, kBlock / heads.group)); }

void gather(const Block &b, const float *x, float scale, float *out) {
  const int64_t d = b.heads.d;
  for (int64_t r = 0; r < b.rows(); r++) {
    if (r + kAhead < b.rows()) fetch(x + b.row(r + kAhead) * d, d);
    const float *from = x + b.row(r) * d;
    for (int64_t j = 0; j < d; j++) out[r * d + j] = from[j] * scale;
  }
}

void forward_head(const Span &s, const Heads &heads, int64_t h, const float *q, const float *k, const float *v, float scale, const Bias &bias, float *out, float *lse) {
  const int64_t d = heads.d, stride = heads.kv * d, keys = s.keys(), width = row_width(keys), dp = tiles(d) * kTile, step = block_rows(heads, s);
  Scratch &mem = scratch();
  if (lse == nullptr && s.q_len == 1) {
    const int64_t head = h * heads.group, at = (s.q * heads.q + head) * d;
    decode(q + at, k + h * d, v + h * d, stride, s, heads, head, scale, bias, mem.take(0, 4 * keys), out + at);
    return;
  }
  float *kt = mem.take(0, width * d), *vr = mem.take(1, keys * dp), *a = mem.take(2, step * heads.group * d);
  float *z = mem.take(3, step * heads.group * width), *o = mem.take(4, step * heads.group * dp);
  pack_transposed(k + h * d, stride, s, d, kt);
  pack_rows(keys, d, vr, [&](int64_t l) { return v + s.key(l) * stride + h * d; });
  for (int64_t first = 0; first < s.q_len; first += step) {
    const Block b{s, heads, h, first, std::min(step, s.q_len - first)};
    const int64_t rows = b.rows(), limit = b.limit(), end = tiles(limit) * kTile;
    gather(b, q, scale, a);
    product(a, d, 1, rows, kt, d * kTile, d, end / kTile, z, width);
    for (int64_t r = 0; r < rows; r++) {
      if (bias.data != nullptr) add_row(z + r * width, b.bias(bias, r), b.visible(r));
      const float l = softmax_row(z + r * width, b.visible(r), end);
      if (lse != nullptr) lse[b.row(r)] = l;
    }
    product(z, width, 1, rows, vr, keys * kTile, limit, dp / kTile, o, dp);
    for (int64_t r = 0; r < rows; r++) std::memcpy(out + b.row(r) * d, o + r * dp, d * sizeof(float));
  }
}

struct Saved {
  const float *q, *k, *v, *out, *lse, *dout;
  float *dq, *dk, *dv;
  Bias bias, dbias;
};

// S = (scale Q) Kᵀ, so dQ = scale dS·K and dK = dSᵀ·(scale Q). dq rows are in one span each and are set; dk, dv, dbias are added to.
void backward_head(const Span &s, const Heads &heads, int64_t h, const Saved &t, float scale) {
  const int64_t d = heads.d, stride = heads.kv * d, keys = s.keys(), width = row_width(keys), dp = tiles(d) * kTile, step = block_rows(heads, s);
  const int64_t most = step * heads.group;
  Scratch &mem = scratch();
  float *kt = mem.take(0, width * d), *vt = mem.take(1, width * d), *kr = mem.take(2, keys * dp);
  float *a = mem.take(3, most * d), *g = mem.take(4, most * d), *panels = mem.take(5, most * dp);
  float *p = mem.take(6, most * std::max(width, dp)), *dz = mem.take(7, most * width), *dk = mem.take(8, keys * dp), *dv = mem.take(9, keys * dp);
  pack_transposed(t.k + h * d, stride, s, d, kt);
  pack_transposed(t.v + h * d, stride, s, d, vt);
  pack_rows(keys, d, kr, [&](int64_t l) { return t.k + s.key(l) * stride + h * d; });
  std::fill(dk, dk + keys * dp, 0.0f);
  std::fill(dv, dv + keys * dp, 0.0f);
  for (int64_t first = 0; first < s.q_len; first += step) {
    const Block b{s, heads, h, first, std::min(step, s.q_len - first)};
    const int64_t rows = b.rows(), limit = b.limit(), end = tiles(limit) * kTile;
    gather(b, t.q, scale, a);
    gather(b, t.dout, 1, g);
    product(a, d, 1, rows, kt, d * kTile, d, end / kTile, p, width);
    for (int64_t r = 0; r < rows; r++) {
      if (t.bias.data != nullptr) add_row(p + r * width, b.bias(t.bias, r), b.visible(r));
      again_row(p + r * width, b.visible(r), end, t.lse[b.row(r)]);
    }
    pack_rows(rows, d, panels, [&](int64_t r) { return g + r * d; });
    add_product(p, 1, width, limit, panels, rows * kTile, rows, dp / kTile, dv, dp);
    product(g, d, 1, rows, vt, d * kTile, d, end / kTile, dz, width);
    for (int64_t r = 0; r < rows; r++) {
      if (r + kAhead < rows) fetch(t.out + b.row(r + kAhead) * d, d);
      softmax_back_row(p + r * width, dz + r * width, end, dot(g + r * d, t.out + b.row(r) * d, d));
      if (t.dbias.data != nullptr) add_row(b.bias(t.dbias, r), dz + r * width, b.visible(r));
    }
    pack_rows(rows, d, panels, [&](int64_t r) { return a + r * d; });
    add_product(dz, 1, width, limit, panels, rows * kTile, rows, dp / kTile, dk, dp);
    product(dz, width, 1, rows, kr, keys * kTile, limit, dp / kTile, p, dp);  // p has done its work: dq
    for (int64_t r = 0; r < rows; r++)
      for (int64_t j = 0; j < d; j++) t.dq[b.row(r) * d + j] = scale * p[r * dp + j];
  }
  for (int64_t l = 0; l < keys; l++) {
    if (l + kAhead < keys) {
      fetch(t.dk + s.key(l + kAhead) * stride + h * d, d);
      fetch(t.dv + s.key(l + kAhead) * stride + h * d, d);
    }
    float *to_k = t.dk + s.key(l) * stride + h * d, *to_v = t.dv + s.key(l) * stride + h * d;
    for (int64_t j = 0; j < d; j++) {
      to_k[j] += dk[l * dp + j];
      to_v[j] += dv[l * dp + j];
    }
  }
}

// --- all heads of all spans

std::vector<Span> spans_of(at::IntArrayRef data) {
  std::vector<Span> spans;
  for (size_t i = 0; i < data.size(); i += 7) spans.push_back(Span{data[i], data[i + 1], data[i + 2], data[i + 3], data[i + 4], data[i + 5], data[i + 6]});
  return spans;
}

Bias bias_of(const at::Tensor &bias, int64_t zero) { return bias.defined() ? Bias{bias.data_ptr<float>(), bias.size(1), zero} : Bias{nullptr, 0, 0}; }

void forward_all(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const std::vector<Span> &spans, double scale, const Bias &bias, at::Tensor &out, float *lse) {
  const Heads heads{q.size(1), k.size(1), q.size(1) / k.size(1), q.size(2)};
  const float *qp = q.data_ptr<float>(), *kp = k.data_ptr<float>(), *vp = v.data_ptr<float>();
  float *op = out.data_ptr<float>();
  at::parallel_for(0, static_cast<int64_t>(spans.size()) * heads.kv, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) forward_head(spans[i / heads.kv], heads, i % heads.kv, qp, kp, vp, static_cast<float>(scale), bias, op, lse);
  });
}

struct Attend : torch::autograd::Function<Attend> {
  static at::Tensor forward(AutogradContext *ctx, at::Tensor q, at::Tensor k, at::Tensor v, at::IntArrayRef data, double scale, c10::optional<at::Tensor> bias, int64_t zero) {
    at::Tensor qc = q.contiguous(), kc = k.contiguous(), vc = v.contiguous(), out = at::empty_like(qc), lse = at::empty({q.size(0), q.size(1)}, q.options());
    at::Tensor b = bias ? bias->contiguous() : at::Tensor();
    forward_all(qc, kc, vc, spans_of(data), scale, bias_of(b, zero), out, lse.data_ptr<float>());
    ctx->save_for_backward({qc, kc, vc, out, lse, b});
    ctx->saved_data["spans"] = data.vec();
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["zero"] = zero;
    ctx->saved_data["needs_bias"] = bias && bias->requires_grad();
    return out;
  }
  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &out = saved[3], &lse = saved[4], &bias = saved[5];
    at::Tensor dbias = ctx->saved_data["needs_bias"].toBool() ? at::zeros_like(bias) : at::Tensor();
    const int64_t zero = ctx->saved_data["zero"].toInt();
    at::Tensor dout = grads[0].contiguous(), dq = at::empty_like(q), dk = at::zeros_like(k), dv = at::zeros_like(v);
    const Heads heads{q.size(1), k.size(1), q.size(1) / k.size(1), q.size(2)};
    const std::vector<Span> spans = spans_of(ctx->saved_data["spans"].toIntVector());
    const float scale = static_cast<float>(ctx->saved_data["scale"].toDouble());
    const Saved t{q.data_ptr<float>(), k.data_ptr<float>(), v.data_ptr<float>(), out.data_ptr<float>(), lse.data_ptr<float>(), dout.data_ptr<float>(),
                  dq.data_ptr<float>(), dk.data_ptr<float>(), dv.data_ptr<float>(), bias_of(bias, zero), bias_of(dbias, zero)};
    at::parallel_for(0, heads.kv, 1, [&](int64_t begin, int64_t end) {  // spans may share keys, so one task has them all, in order
      for (int64_t h = begin; h < end; h++)
        for (const Span &s : spans) backward_head(s, heads, h, t, scale);
    });
    return {dq, dk, dv, at::Tensor(), at::Tensor(), dbias, at::Tensor()};
  }
};

// --- from libtorch's operations: other types and devices

// Rows of x, one tensor a span: in one split where they follow each other, whose gradient is one pass, else one by one.
std::vector<at::Tensor> rows_of(const at::Tensor &x, const std::vector<Span> &spans, int64_t Span::*first, int64_t Span::*count) {
  int64_t next = 0;
  std::vector<int64_t> sizes;
  for (const Span &s : spans) {
    if (s.*first == next) sizes.push_back(s.*count);
    next += s.*count;
  }
  if (sizes.size() == spans.size() && next == x.size(0)) return x.split_with_sizes(sizes);
  std::vector<at::Tensor> rows;
  for (const Span &s : spans) rows.push_back(x.narrow(0, s.*first, s.*count));
  return rows;
}

std::vector<at::Tensor> keys_of(const at::Tensor &x, const std::vector<Span> &spans) {
  std::vector<at::Tensor> keys = rows_of(x, spans, &Span::own, &Span::own_len);
  for (size_t i = 0; i < spans.size(); i++)
    if (spans[i].prefix_len > 0) keys[i] = at::cat({x.narrow(0, spans[i].prefix, spans[i].prefix_len), keys[i]});
  return keys;
}

at::Tensor pick(const std::vector<at::Tensor> &xs, const std::vector<size_t> &which) {
  if (which.size() == 1) return xs[which[0]].unsqueeze(0);
  std::vector<at::Tensor> chosen;
  for (size_t i : which) chosen.push_back(xs[i]);
  return at::stack(chosen);
}

// q [n, kv, group, rows, d], k and v [n, kv, keys, d] → [n, kv, group, rows, d]; causal rows are aligned at the last key.
// bias [kv, group·rows, keys] is added to the scores, where there is one.
at::Tensor plain_attention(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, bool causal, double scale, const at::Tensor &bias) {
  // libtorch's products on a CPU round scores to the type of their factors; fused kernels have them in float32, and so does this.
  const at::ScalarType type = wide(q, Wide::attention);
  if (q.is_cpu() && q.scalar_type() != type)
    return plain_attention(q.to(type), k.to(type), v.to(type), causal, scale, bias).to(q.scalar_type());
  const int64_t n = q.size(0), kv = q.size(1), group = q.size(2), rows = q.size(3), d = q.size(4), keys = k.size(2);
  auto flat = [&](const at::Tensor &x) { return x.reshape({n * kv, keys, d}); };
  at::Tensor z = at::bmm(q.reshape({n * kv, group * rows, d}), flat(k).transpose(1, 2)).mul(scale).view({n, kv, group * rows, keys});
  z = z.to(type);
  if (bias.defined()) z = z + bias.to(type);
  z = z.view({n * kv, group, rows, keys});
  if (causal && rows > 1) {
    at::Tensor hidden = at::ones({rows, keys}, z.options().dtype(at::kBool)).triu(keys - rows + 1);
    z = z.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  }
  return at::bmm(z.softmax(-1).to(q.scalar_type()).view({n * kv, group * rows, keys}), flat(v)).view({n, kv, group, rows, d});
}

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 1)
// Fused kernels that never hold the scores (Dao et al. 2022). Query heads that share a key head are stacked as rows; a
// sequence that sees only itself gets the causal kernel instead, for which its keys are repeated.
at::Tensor attention(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, bool causal, double scale) {
  if (q.is_cpu() && wide(q, Wide::attention) == at::kBFloat16) return plain_attention(q, k, v, causal, scale, at::Tensor());  // a test's plant
  const int64_t n = q.size(0), kv = q.size(1), group = q.size(2), rows = q.size(3), d = q.size(4), keys = k.size(2);
  if (causal && rows > 1 && rows == keys) {
    auto repeated = [&](const at::Tensor &x) { return x.unsqueeze(2).expand({n, kv, group, keys, d}).reshape({n, kv * group, keys, d}); };
    return at::scaled_dot_product_attention(q.reshape({n, kv * group, rows, d}), repeated(k), repeated(v), {}, 0.0, true, scale).view({n, kv, group, rows, d});
  }
  const at::Tensor stacked = q.reshape({n, kv, group * rows, d});
  if (causal && rows > 1) {
    const at::Tensor seen = at::ones({rows, keys}, q.options().dtype(at::kBool)).tril(keys - rows).repeat({group, 1});
    return at::scaled_dot_product_attention(stacked, k, v, seen, 0.0, false, scale).view({n, kv, group, rows, d});
  }
  return at::scaled_dot_product_attention(stacked, k, v, {}, 0.0, false, scale).view({n, kv, group, rows, d});
}
#else
at::Tensor attention(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, bool causal, double scale) { return plain_attention(q, k, v, causal, scale, at::Tensor()); }
#endif

// The bias of rows that see so many keys [kv, group·rows, keys], by query head as these are stacked.
at::Tensor bias_matrix(const at::Tensor &bias, int64_t zero, int64_t kv, int64_t rows, int64_t keys) {
  const auto numbers = at::TensorOptions().dtype(at::kLong).device(bias.device());
  const at::Tensor distance = at::arange(keys, numbers).unsqueeze(0) - at::arange(keys - rows, keys, numbers).unsqueeze(1) + zero;
  return bias.index_select(1, distance.clamp(0, bias.size(1) - 1).view(-1)).view({kv, -1, keys});  // beyond the table lies what causal rows do not see
}

// Spans of one shape (windows, the sequences of a decoding step) are one batch.
at::Tensor composed(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const std::vector<Span> &spans, double scale, const at::Tensor &bias, int64_t zero) {
  const int64_t heads = q.size(1), kv = k.size(1), d = q.size(2), group = heads / kv;
  std::map<std::array<int64_t, 3>, std::vector<size_t>> shapes;
  for (size_t i = 0; i < spans.size(); i++) shapes[{spans[i].q_len, spans[i].keys(), spans[i].causal}].push_back(i);
  const std::vector<at::Tensor> qs = rows_of(q, spans, &Span::q, &Span::q_len), ks = keys_of(k, spans), vs = keys_of(v, spans);
  std::vector<at::Tensor> out(spans.size());
  for (const auto &[shape, which] : shapes) {
    const int64_t rows = shape[0], n = static_cast<int64_t>(which.size());
    auto by_head = [&](const at::Tensor &x) { return x.transpose(1, 2); };  // [n, kv, keys, d]
    const at::Tensor grouped = pick(qs, which).view({n, rows, kv, group, d}).permute({0, 2, 3, 1, 4});
    const at::Tensor k_seen = by_head(pick(ks, which)), v_seen = by_head(pick(vs, which));
    const at::Tensor y = bias.defined() ? plain_attention(grouped, k_seen, v_seen, shape[2] != 0, scale, bias_matrix(bias, zero, kv, rows, shape[1]))
                                        : attention(grouped, k_seen, v_seen, shape[2] != 0, scale);
    const std::vector<at::Tensor> parts = y.permute({0, 3, 1, 2, 4}).reshape({n, rows, heads, d}).unbind(0);
    for (int64_t i = 0; i < n; i++) out[which[i]] = parts[i];
  }
  return at::cat(out);
}

void check_shapes(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v) {
  TORCH_CHECK(q.dim() == 3 && k.dim() == 3 && k.sizes() == v.sizes() && q.size(2) == k.size(2) && k.size(1) > 0 && q.size(1) % k.size(1) == 0,
              "attend: q ", q.sizes(), ", k ", k.sizes(), ", v ", v.sizes(), ": want [N, Hq, D] and twice [M, Hk, D], Hq a multiple of Hk");
}

void check_spans(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, std::vector<Span> &spans) {
  check_shapes(q, k, v);
  std::sort(spans.begin(), spans.end(), [](const Span &a, const Span &b) { return a.q < b.q; });
  int64_t row = 0;
  for (const Span &s : spans) {
    auto inside = [&](int64_t at, int64_t n) { return at >= 0 && n >= 0 && at + n <= k.size(0); };
    TORCH_CHECK(inside(s.prefix, s.prefix_len) && inside(s.own, s.own_len) && s.keys() > 0, "attend: the keys ", s.prefix, "+", s.prefix_len, " and ", s.own, "+", s.own_len,
                " of row ", s.q, " do not lie in ", k.size(0));
    TORCH_CHECK(!s.causal || s.own_len >= s.q_len, "attend: ", s.q_len, " causal rows from ", s.q, " on have only ", s.own_len, " own keys");
    TORCH_CHECK(s.q == row && s.q_len > 0, "attend: row ", std::min(row, s.q), " of q is in no span, or in two");
    row += s.q_len;
  }
  TORCH_CHECK(row == q.size(0), "attend: the spans have ", row, " rows, q ", q.size(0));
}

void check_bias(const at::Tensor &bias, int64_t zero, const at::Tensor &q, const std::vector<Span> &spans) {
  TORCH_CHECK(bias.dim() == 2 && bias.size(0) == q.size(1) && bias.is_floating_point(), "attend: bias ", bias.sizes(), ": want [", q.size(1), ", distances]");
  for (const Span &s : spans)
    TORCH_CHECK(zero >= s.keys() - 1 && zero + (s.causal ? 0 : s.q_len - 1) < bias.size(1), "attend: a bias of ", bias.size(1), " distances with 0 at ", zero,
                " does not reach over the ", s.keys(), " keys and ", s.q_len, " rows from ", s.q, " on");
}

at::Tensor attend(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, at::IntArrayRef data, double scale, const at::Tensor &bias, int64_t zero) {
  std::vector<Span> spans = spans_of(data);
  check_spans(q, k, v, spans);
  if (bias.defined()) check_bias(bias, zero, q, spans);
  if (!bias.defined() && parts_fit(q, k, v, spans.size())) return attend_parts(q, k, v, spans, scale);
  if (bias.defined() && !spans.empty() && (q.is_cuda() || q.scalar_type() == at::kDouble)) return attend_padded(q, k, v, spans, scale, bias, zero);
  auto is_float = [](const at::Tensor &x) { return x.is_cpu() && x.scalar_type() == at::kFloat; };
  if (!(is_float(q) && is_float(k) && is_float(v) && (!bias.defined() || is_float(bias)))) return composed(q.contiguous(), k, v, spans, scale, bias, zero);
  if (recorded({&q, &k, &v, &bias})) return Attend::apply(q, k, v, data, scale, bias.defined() ? c10::optional<at::Tensor>(bias) : c10::nullopt, zero);
  const at::Tensor qc = q.contiguous(), bc = bias.defined() ? bias.contiguous() : bias;
  at::Tensor y = at::empty_like(qc);
  forward_all(qc, k.contiguous(), v.contiguous(), spans, scale, bias_of(bc, zero), y, nullptr);
  return y;
}

// The spans of decoding rows, [7 N]; waits for the device.
std::vector<int64_t> spans_of(const DecodeKeys &keys) {
  auto host = [](const at::Tensor &x) { return x.to(at::kCPU, at::kLong).contiguous(); };
  const bool shared = keys.prefix.defined();
  const at::Tensor own = host(keys.own), own_len = host(keys.own_len), prefix = shared ? host(keys.prefix) : at::Tensor(), len = shared ? host(keys.prefix_len) : at::Tensor();
  const int64_t n = own_len.size(0), group = shared ? n / len.size(0) : n;
  auto number = [](const at::Tensor &x, int64_t i) { return x.defined() ? x.data_ptr<int64_t>()[i] : 0; };
  std::vector<int64_t> data;
  for (int64_t i = 0; i < n; i++)
    data.insert(data.end(), {i, 1, number(prefix, i / group), number(len, i / group), number(own, i), number(own_len, i), 1});
  return data;
}

void check_decode(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const DecodeKeys &keys) {
  check_shapes(q, k, v);
  auto list = [&](const at::Tensor &x) { return x.defined() && x.dim() == 1 && x.scalar_type() == at::kInt && x.device() == q.device() && x.is_contiguous(); };
  auto places = [&](const at::Tensor &start, const at::Tensor &length) {
    return list(start) && list(length) && (start.size(0) == length.size(0) || start.size(0) == length.size(0) + 1);
  };
  TORCH_CHECK(places(keys.own, keys.own_len) && keys.own_len.size(0) == q.size(0) && keys.max_own > 0, "attend_decode: want starts and lengths of own keys, int32 [", q.size(0),
              "] where q is, and the longest");
  TORCH_CHECK(!keys.prefix.defined() || (places(keys.prefix, keys.prefix_len) && keys.prefix_len.size(0) > 0 && q.size(0) % keys.prefix_len.size(0) == 0 && keys.max_prefix > 0),
              "attend_decode: want starts and lengths of prefixes, int32 [P] where q is, P a divisor of ", q.size(0), ", and the longest");
}

}  // namespace

extern "C" {

const char *fc_attend(Tensor q, Tensor k, Tensor v, const int64_t *data, int64_t n, double scale, Tensor bias, int64_t zero, Tensor *out) {
  return guard([&] { *out = wrap(attend(*q, *k, *v, ints(data, 7 * n), scale, bias == nullptr ? at::Tensor() : *bias, zero)); });
}

const char *fc_attend_decode(Tensor q, Tensor k, Tensor v, Tensor prefix, Tensor prefix_len, Tensor own, Tensor own_len, int64_t max_prefix, int64_t max_own, bool fast, double scale, Tensor *out) {
  return guard([&] {
    const at::Tensor none;
    const DecodeKeys keys{prefix == nullptr ? none : *prefix, prefix_len == nullptr ? none : *prefix_len, *own, *own_len, max_prefix, max_own, fast};
    check_decode(*q, *k, *v, keys);
    const bool fused = q->is_cuda() && q->scalar_type() != at::kDouble && !recorded({q, k, v}) && (keys.fast || parts_fit(*q, *k, *v, q->size(0)));
    *out = wrap(fused ? decode_parts(*q, *k, *v, keys, scale) : attend(*q, *k, *v, spans_of(keys), scale, at::Tensor(), 0));
  });
}

}  // extern "C"
