// Linear layers: x·Wᵀ + bias, alone and with a low-rank addition (LoRA).
//
// Two things that libtorch's do not do. The gradient of a parameter is added to its buffer by the matrix product
// itself: autograd would make it apart and then add it, three more passes over every weight. And a few rows (decoding
// with a cache) read each weight once, where BLAS first copies the weights into its own order: three times the memory
// traffic, and that traffic is all the time there is. Weights may stay bfloat16 under float32 rows.
#include "linear.h"

#include <ATen/Parallel.h>

#include <vector>

#include "beside.h"
#include "cuda_kernels.h"
#include "guard.h"
#include "simd.h"

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// --- a few rows

constexpr int64_t kFew = 40;      // rows for which reading weights in place beats BLAS
constexpr int64_t kFewLow = 16;   // the same of a low-rank addition
constexpr int64_t kWeights = 96;  // output features of a task

INLINE float number(float x) { return x; }
INLINE float number(uint16_t x) {
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}
// y[m][o] = x[m]·w[o] + bias[o] for M rows and R output features.
template <int M, int R, class W>
INLINE void dots(const float *x, int64_t k, const W *w, const float *bias, float *y, int64_t out) {
  vf acc[M][R];
  for (int m = 0; m < M; m++)
    for (int r = 0; r < R; r++) acc[m][r] = fill(0);
  const int64_t whole = k / kLanes * kLanes;
  for (int64_t j = 0; j < whole; j += kLanes) {
    vf row[R];
    for (int r = 0; r < R; r++) {
      row[r] = load(w + r * k + j);
      __builtin_prefetch(w + (R + r) * k + j);  // the next features': this processor's own foresight ends with a row
    }
    for (int m = 0; m < M; m++)
      for (int r = 0; r < R; r++) acc[m][r] += load(x + m * k + j) * row[r];
  }
  for (int m = 0; m < M; m++)
    for (int r = 0; r < R; r++) {
      float s = sum(acc[m][r]);
      for (int64_t j = whole; j < k; j++) s += x[m * k + j] * number(w[r * k + j]);
      y[m * out + r] = s + (bias == nullptr ? 0.0f : bias[r]);
    }
}

template <int M, int R, class W>
INLINE void dots_range(const float *x, int64_t k, const W *w, const float *bias, float *y, int64_t out, int64_t begin, int64_t end) {
  int64_t o = begin;
  for (; o + R <= end; o += R) dots<M, R>(x, k, w + o * k, bias == nullptr ? nullptr : bias + o, y + o, out);
  for (; o < end; o++) dots<M, 1>(x, k, w + o * k, bias == nullptr ? nullptr : bias + o, y + o, out);
}

template <class W>
INLINE void few_rows(const float *x, int64_t n, int64_t k, const W *w, const float *bias, float *y, int64_t out, int64_t begin, int64_t end) {
  for (int64_t i = 0; i < n; i += 4) {
    const float *xi = x + i * k;
    float *yi = y + i * out;
    switch (n - i) {
      case 1: dots_range<1, 8>(xi, k, w, bias, yi, out, begin, end); break;
      case 2: dots_range<2, 4>(xi, k, w, bias, yi, out, begin, end); break;
      case 3: dots_range<3, 2>(xi, k, w, bias, yi, out, begin, end); break;
      default: dots_range<4, 3>(xi, k, w, bias, yi, out, begin, end);
    }
  }
}
FULCRUM_SIMD void few_rows_float(const float *x, int64_t n, int64_t k, const float *w, const float *bias, float *y, int64_t out, int64_t begin, int64_t end) {
  few_rows(x, n, k, w, bias, y, out, begin, end);
}
FULCRUM_SIMD void few_rows_bfloat16(const float *x, int64_t n, int64_t k, const uint16_t *w, const float *bias, float *y, int64_t out, int64_t begin, int64_t end) {
  few_rows(x, n, k, w, bias, y, out, begin, end);
}

// The same numbers by vectors of sixteen: a vector has eight of one row beside eight of the next, so that every row is added up in the
// order of `dots`. A weight is read for all rows at once.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define FULCRUM_WIDE __attribute__((target("arch=x86-64-v4"), optimize("O3")))
typedef float vw __attribute__((vector_size(64)));
// Below five rows memory is what is waited for.
bool wide_rows(int64_t n, int64_t k) { return n > 4 && k % kLanes == 0 && __builtin_cpu_supports("x86-64-v4"); }

// P pairs of rows, of which the last may be one row; pairs[p][j/8] has eight numbers of each row of a pair.
template <int P, int R, class W>
FULCRUM_WIDE inline void pair_dots(const float *pairs, int64_t n, int64_t k, const W *w, const float *bias, float *y, int64_t out) {
  vw acc[P][R];
  for (int p = 0; p < P; p++)
    for (int r = 0; r < R; r++) acc[p][r] = vw{};
  for (int64_t j = 0; j < k; j += kLanes) {
    vw row[R];
    for (int r = 0; r < R; r++) {
      const vf v = load(w + r * k + j);
      row[r] = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
      __builtin_prefetch(w + (R + r) * k + j);
    }
    for (int p = 0; p < P; p++) {
      vw both;
      std::memcpy(&both, pairs + p * 2 * k + 2 * j, sizeof both);
      for (int r = 0; r < R; r++) acc[p][r] += both * row[r];
    }
  }
  for (int64_t m = 0; m < n; m++)
    for (int r = 0; r < R; r++) {
      const float s = sum(load(reinterpret_cast<const float *>(&acc[m / 2][r]) + m % 2 * kLanes));
      y[m * out + r] = s + (bias == nullptr ? 0.0f : bias[r]);
    }
}

template <int P, int R, class W>
FULCRUM_WIDE inline void pair_range(const float *pairs, int64_t n, int64_t k, const W *w, const float *bias, float *y, int64_t out, int64_t begin, int64_t end) {
  int64_t o = begin;
  for (; o + R <= end; o += R) pair_dots<P, R>(pairs, n, k, w + o * k, bias == nullptr ? nullptr : bias + o, y + o, out);
  for (; o < end; o++) pair_dots<P, 1>(pairs, n, k, w + o * k, bias == nullptr ? nullptr : bias + o, y + o, out);
}

template <class W>
FULCRUM_WIDE void few_pairs(const float *pairs, int64_t n, int64_t k, const W *w, const float *bias, float *y, int64_t out, int64_t begin, int64_t end) {
  if (n > 12) {  // rows that fit beside the weights in the first cache
    few_pairs(pairs, 8, k, w, bias, y, out, begin, end);
    few_pairs(pairs + 8 * k, n - 8, k, w, bias, y + 8 * out, out, begin, end);
    return;
  }
  switch ((n + 1) / 2) {
    case 3: pair_range<3, 8>(pairs, n, k, w, bias, y, out, begin, end); break;
    case 4: pair_range<4, 6>(pairs, n, k, w, bias, y, out, begin, end); break;
    case 5: pair_range<5, 4>(pairs, n, k, w, bias, y, out, begin, end); break;
    default: pair_range<6, 4>(pairs, n, k, w, bias, y, out, begin, end);
  }
}
#else
bool wide_rows(int64_t, int64_t) { return false; }
template <class W>
void few_pairs(const float *, int64_t, int64_t, const W *, const float *, float *, int64_t, int64_t, int64_t) {}
#endif

// Pairs of rows as few_pairs reads them; the last row of an odd number stands beside zeros.
std::vector<float> paired(const float *x, int64_t n, int64_t k) {
  std::vector<float> out((n + 1) / 2 * 2 * k);
  for (int64_t m = 0; m < n; m++)
    for (int64_t j = 0; j < k; j += kLanes) std::memcpy(&out[m / 2 * 2 * k + 2 * j + m % 2 * kLanes], x + m * k + j, kLanes * sizeof(float));
  return out;
}

// y += low·bᵀ, rank r.
FULCRUM_SIMD void add_low_rank(const float *low, int64_t n, int64_t r, const float *b, float scale, float *y, int64_t out) {
  const int64_t whole = r / kLanes * kLanes;
  for (int64_t i = 0; i < n; i++)
    for (int64_t o = 0; o < out; o++) {
      vf total = fill(0);
      for (int64_t j = 0; j < whole; j += kLanes) total += load(low + i * r + j) * load(b + o * r + j);
      float s = sum(total);
      for (int64_t j = whole; j < r; j++) s += low[i * r + j] * b[o * r + j];
      y[i * out + o] += scale * s;
    }
}

bool few(const at::Tensor &x, const at::Tensor &w, const at::Tensor &bias) {
  return x.size(0) <= kFew && x.is_cpu() && x.scalar_type() == at::kFloat && w.is_cpu() && w.is_contiguous() &&
         (w.scalar_type() == at::kFloat || w.scalar_type() == at::kBFloat16) && (!bias.defined() || bias.scalar_type() == at::kFloat);
}

at::Tensor as(const at::Tensor &x, at::ScalarType type) { return x.scalar_type() == type ? x : x.to(type); }

at::Tensor flat(const at::Tensor &x) { return x.dim() == 2 ? x : x.reshape({-1, x.size(-1)}); }

at::Tensor unflat(const at::Tensor &y, at::IntArrayRef like) {
  if (like.size() == 2) return y;
  auto sizes = like.vec();
  sizes.back() = y.size(1);
  return y.view(sizes);
}

void check_sizes(const at::Tensor &x, const at::Tensor &w) {
  TORCH_CHECK(x.dim() > 0 && w.dim() == 2 && x.size(-1) == w.size(1), "linear: x ", x.sizes(), ", weight ", w.sizes());
}

}  // namespace

at::Tensor product(const at::Tensor &x, const at::Tensor &w, const at::Tensor &bias) {
  if (!few(x, w, bias)) {
    at::Tensor wt = as(w, x.scalar_type()).t();
    return bias.defined() ? at::addmm(as(bias, x.scalar_type()), x, wt) : at::mm(x, wt);
  }
  const at::Tensor rows = x.contiguous(), b = bias.defined() ? bias.contiguous() : bias;
  const int64_t n = x.size(0), k = x.size(1), out = w.size(0), tasks = (out + kWeights - 1) / kWeights;
  at::Tensor y = at::empty({n, out}, x.options());
  const float *xp = rows.data_ptr<float>(), *bp = b.defined() ? b.data_ptr<float>() : nullptr;
  float *yp = y.data_ptr<float>();
  const bool wide = wide_rows(n, k);
  const std::vector<float> pairs = wide ? paired(xp, n, k) : std::vector<float>();
  at::parallel_for(0, tasks, std::max<int64_t>(1, 32768 / (kWeights * k)), [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; t++) {
      const int64_t begin = t * kWeights, end = std::min(out, begin + kWeights);
      if (w.scalar_type() == at::kFloat) {
        const float *wp = w.data_ptr<float>();
        wide ? few_pairs(pairs.data(), n, k, wp, bp, yp, out, begin, end) : few_rows_float(xp, n, k, wp, bp, yp, out, begin, end);
      } else {
        const uint16_t *wp = reinterpret_cast<const uint16_t *>(w.data_ptr<at::BFloat16>());
        wide ? few_pairs(pairs.data(), n, k, wp, bp, yp, out, begin, end) : few_rows_bfloat16(xp, n, k, wp, bp, yp, out, begin, end);
      }
    }
  });
  return y;
}

// CUDA writes the float32 sums of a 16-bit product as they are: since PyTorch 2.8 into a new tensor, since 2.11 onto one.
#define SINCE(minor) (TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= minor))

at::Tensor float_product(const at::Tensor &left, const at::Tensor &right) {
#if SINCE(8)
  if (left.is_cuda() && left.element_size() == 2) return at::mm(left, right, at::kFloat);
#endif
  return as(at::mm(left, right), at::kFloat);
}

void add_product(at::Tensor to, const at::Tensor &left, const at::Tensor &right, double scale) {
  if (to.scalar_type() == left.scalar_type()) {
    to.addmm_(left, right, 1, scale);
    return;
  }
#if SINCE(11)
  if (to.is_cuda() && to.scalar_type() == at::kFloat && left.element_size() == 2) {
    at::addmm_out(to, to, left, right, at::kFloat, 1, scale);
    return;
  }
#endif
  to.add_(at::mm(left, right), scale);
}

namespace {

// --- x·W + bias with W and bias parameters, in either orientation

// out += Σ x over rows.
void add_columns(const at::Tensor &x, at::Tensor out) {
  if (x.size(0) == 1) {
    out.add_(x.squeeze(0));
  } else if (cuda::runs(x) && x.scalar_type() == at::kFloat && out.scalar_type() == at::kFloat) {
    const at::Tensor rows = x.contiguous();
    cuda::run({"add_columns", rows, false}, (x.size(1) + 31) / 32, 1, 1024, rows, out, x.size(0), static_cast<int>(x.size(1)));
  } else {
    out.add_(x.sum(0));
  }
}

struct LinearInto : torch::autograd::Function<LinearInto> {
  static at::Tensor forward(AutogradContext *ctx, at::Tensor x, at::Tensor weight, c10::optional<at::Tensor> bias, bool transposed) {
    at::Tensor rows = x.reshape({-1, x.size(-1)});  // a few rows of one state, many of candidates: always two dimensions
    at::Tensor w = transposed ? weight : weight.t();
    at::Tensor y = bias ? at::addmm(*bias, rows, w) : at::mm(rows, w);
    ctx->save_for_backward({rows, weight});
    ctx->saved_data["weight_grad"] = weight.grad();
    ctx->saved_data["bias"] = bias.has_value();
    if (bias) ctx->saved_data["bias_grad"] = bias->grad();
    ctx->saved_data["transposed"] = transposed;
    ctx->saved_data["needs_x"] = x.requires_grad();
    ctx->saved_data["sizes"] = x.sizes().vec();
    return unflat(y, x.sizes());
  }
  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const bool transposed = ctx->saved_data["transposed"].toBool();
    at::Tensor dy = grads[0].reshape({-1, grads[0].size(-1)});
    at::Tensor dw = ctx->saved_data["weight_grad"].toTensor();
    beside::run({dy, x}, [&] {
      if (transposed)
        dw.addmm_(x.t(), dy);
      else
        dw.addmm_(dy.t(), x);
      if (ctx->saved_data["bias"].toBool()) add_columns(dy, ctx->saved_data["bias_grad"].toTensor());
    });
    at::Tensor dx;
    if (ctx->saved_data["needs_x"].toBool()) dx = at::mm(dy, transposed ? weight.t() : weight).view(ctx->saved_data["sizes"].toIntVector());
    return {dx, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

// x·Wᵀ + bias with both frozen, of any type: W is converted, where it must be, in each direction anew, so that no
// converted copy lives from forward to backward.
struct FrozenLinear : torch::autograd::Function<FrozenLinear> {
  static at::Tensor forward(AutogradContext *ctx, at::Tensor x, at::Tensor weight, c10::optional<at::Tensor> bias) {
    ctx->save_for_backward({weight});
    ctx->saved_data["sizes"] = x.sizes().vec();
    return unflat(product(flat(x), weight, bias ? *bias : at::Tensor()), x.sizes());
  }
  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    const at::Tensor dy = flat(grads[0]), weight = ctx->get_saved_variables()[0];
    return {at::mm(dy, as(weight, dy.scalar_type())).view(ctx->saved_data["sizes"].toIntVector()), at::Tensor(), at::Tensor()};
  }
};

bool has_buffer(const at::Tensor &w) { return !buffer(w).isNone(); }

// --- x·Wᵀ + bias + scale·(x·Aᵀ)·Bᵀ

// Each of the factors may be frozen; a frozen W gets no gradient and may have another type than x. A and B have their
// own type, in which the low-rank part is computed: on CUDA that of 16-bit rows, where products of float32 rows would
// take many times as long as W's.
struct LoRALinear : torch::autograd::Function<LoRALinear> {
  static at::Tensor forward(AutogradContext *ctx, at::Tensor x, at::Tensor weight, c10::optional<at::Tensor> bias, at::Tensor a, at::Tensor b, double scale) {
    at::Tensor rows = flat(x), y, low;
    if (narrow(rows)) {
      const at::ScalarType type = rows.scalar_type();
      low = at::mm(rows, as(a, type).t());
      y = bias ? at::addmm(as(*bias, type), low, as(b, type).t(), 1, scale) : at::mm(low, as(b, type).t());
      y.addmm_(rows, as(weight, type).t(), bias ? 1 : scale);  // W's product comes last: it has time to read y
    } else {
      y = product(rows, weight, bias ? *bias : at::Tensor());
      low = at::mm(as(rows, a.scalar_type()), a.t());
      add_product(y, low, b.t(), scale);
    }
    if (ctx == nullptr) return unflat(y, x.sizes());
    ctx->save_for_backward({rows, weight, a, b, low});
    ctx->saved_data["weight_grad"] = buffer(weight);
    if (bias) ctx->saved_data["bias_grad"] = buffer(*bias);
    ctx->saved_data["a_grad"] = buffer(a);
    ctx->saved_data["b_grad"] = buffer(b);
    ctx->saved_data["needs_x"] = x.requires_grad();
    ctx->saved_data["needs_bias"] = bias && bias->requires_grad();
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["sizes"] = x.sizes().vec();
    return unflat(y, x.sizes());
  }

  // Whether the low-rank part is computed in the rows' type.
  static bool narrow(const at::Tensor &x) { return x.is_cuda() && x.element_size() == 2; }

  // Σ of left·right into the buffer by the product itself where there is one.
  static at::Tensor gradient(const c10::IValue &buffer, const at::Tensor &left, const at::Tensor &right, double scale) {
    if (buffer.isNone()) return at::mm(left, right).mul_(scale);
    add_product(buffer.toTensor(), left, right, scale);
    return at::Tensor();
  }

  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &low = saved[4];
    const at::ScalarType type = low.scalar_type();
    const at::Tensor a = as(saved[2], type), b = as(saved[3], type);
    const double scale = ctx->saved_data["scale"].toDouble();
    const bool needs_a = saved[2].requires_grad(), needs_b = saved[3].requires_grad();
    const at::Tensor dy = flat(grads[0]), dy_low = as(dy, type);
    at::Tensor dx, dw, dbias, da, db;
    at::Tensor dlow;
    const bool needs_x = ctx->saved_data["needs_x"].toBool();
    if (needs_x || needs_a) dlow = at::mm(dy_low, b);
    if (needs_x) {
      if (narrow(x)) {
        dx = at::mm(dlow, a);
        dx.addmm_(dy, as(weight, type), scale);
      } else {
        dx = at::mm(dy, as(weight, dy.scalar_type()));
        add_product(dx, dlow, a, scale);
      }
      dx = dx.view(ctx->saved_data["sizes"].toIntVector());
    }
    if (needs_b) db = gradient(ctx->saved_data["b_grad"], dy_low.t(), low, scale);
    if (needs_a) da = gradient(ctx->saved_data["a_grad"], dlow.t(), as(x, type), scale);
    if (da.defined()) da = as(da, saved[2].scalar_type());
    if (db.defined()) db = as(db, saved[3].scalar_type());
    if (weight.requires_grad()) {
      dw = gradient(ctx->saved_data["weight_grad"], dy.t(), x, 1);
      if (dw.defined()) dw = as(dw, weight.scalar_type());
    }
    if (ctx->saved_data["needs_bias"].toBool()) dbias = into(ctx->saved_data["bias_grad"], dy.sum(0));
    return {dx, dw, dbias, da, db, at::Tensor()};
  }
};

// Decoding: no graph, and one pass over each matrix.
at::Tensor lora_few(const at::Tensor &x, const at::Tensor &w, const at::Tensor &bias, const at::Tensor &a, const at::Tensor &b, double scale) {
  at::Tensor y = product(x, w, bias), low = product(x, a, at::Tensor()), up = b.contiguous();
  add_low_rank(low.data_ptr<float>(), x.size(0), a.size(0), up.data_ptr<float>(), static_cast<float>(scale), y.data_ptr<float>(), w.size(0));
  return y;
}

}  // namespace

extern "C" {

const char *fc_linear(Tensor x, Tensor weight, Tensor bias, bool transposed, Tensor *out) {
  return guard([&] {
    if (at::GradMode::is_enabled() && has_buffer(*weight) && (bias == nullptr || has_buffer(*bias))) {
      *out = wrap(LinearInto::apply(*x, *weight, bias == nullptr ? c10::optional<at::Tensor>() : *bias, transposed));
      return;
    }
    const at::ScalarType type = x->scalar_type();
    at::Tensor b = bias == nullptr ? at::Tensor() : *bias;
    if (!transposed && x->dim() > 1 && !recorded({x, weight, &b})) {
      check_sizes(*x, *weight);
      *out = wrap(unflat(product(flat(*x), *weight, b), x->sizes()));
      return;
    }
    if (!transposed && weight->scalar_type() != type && !weight->requires_grad() && (!b.defined() || !b.requires_grad())) {
      check_sizes(*x, *weight);
      *out = wrap(FrozenLinear::apply(*x, *weight, bias == nullptr ? c10::optional<at::Tensor>() : b));
      return;
    }
    at::Tensor w = as(transposed ? weight->t() : *weight, type);
    *out = wrap(bias == nullptr ? at::linear(*x, w) : at::linear(*x, w, as(b, type)));
  });
}

const char *fc_lora_linear(Tensor x, Tensor weight, Tensor bias, Tensor a, Tensor b, double scale, Tensor *out) {
  return guard([&] {
    check_sizes(*x, *weight);
    TORCH_CHECK(a->dim() == 2 && b->dim() == 2 && a->size(0) == b->size(1) && a->size(1) == weight->size(1) && b->size(0) == weight->size(0), "lora_linear: weight ",
                weight->sizes(), ", a ", a->sizes(), ", b ", b->sizes(), ": want [out, in], [r, in], [out, r]");
    at::Tensor none;
    const at::Tensor &bi = bias == nullptr ? none : *bias;
    const bool graph = recorded({x, weight, &bi, a, b});
    if (!graph && a->scalar_type() == at::kFloat && b->scalar_type() == at::kFloat && x->dim() > 1) {
      at::Tensor rows = flat(*x);
      if (rows.size(0) <= kFewLow && few(rows, *weight, bi) && few(rows, *a, none)) {
        *out = wrap(unflat(lora_few(rows, *weight, bi, *a, *b, scale), x->sizes()));
        return;
      }
    }
    const c10::optional<at::Tensor> optional = bias == nullptr ? c10::optional<at::Tensor>() : *bias;
    *out = wrap(graph ? LoRALinear::apply(*x, *weight, optional, *a, *b, scale) : LoRALinear::forward(nullptr, *x, *weight, optional, *a, *b, scale));
  });
}

}  // extern "C"
