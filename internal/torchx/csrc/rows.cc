// Fused passes over the last dimension, with their gradients: what a pointer selector does to every row of scores.
// Composed from libtorch's operations the same work reads and writes each row about ten times as often: on the CPU,
// where a training step is a few milliseconds, that was a third of it (docs/benchmarks.md).
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "cuda_kernels.h"
#include "guard.h"
#include "simd.h"

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// --- one row at a time: float32 in vectors of eight, float64 (gradient checks) plainly

// log Σ e^x over a row, and the row's entropy.
FULCRUM_SIMD void stats(const float *x, int64_t k, float *lse, float *entropy) {
  const int64_t whole = k / kLanes * kLanes;
  vf rest = fill(-INFINITY), top = rest;
  for (int64_t j = whole; j < k; j++) rest[j - whole] = x[j];
  for (int64_t j = 0; j < whole; j += kLanes) top = max(load(x + j), top);
  top = max(rest, top);
  float high = top[0];
  for (int l = 1; l < kLanes; l++) high = top[l] > high ? top[l] : high;
  vf total = fill(0), dot = fill(0);
  for (int64_t j = 0; j < whole; j += kLanes) {
    const vf d = load(x + j) - high, e = exp(d);
    total += e;
    dot += e * d;
  }
  if (whole < k) {
    const vf d = rest - high, e = exp(d);  // e^-87 where the row has ended
    for (int64_t l = 0; l < k - whole; l++) {
      total[l] += e[l];
      dot[l] += e[l] * d[l];
    }
  }
  const float s = sum(total);
  *lse = high + std::log(s);
  *entropy = std::log(s) - sum(dot) / s;
}
void stats(const double *x, int64_t k, double *lse, double *entropy) {
  const double high = *std::max_element(x, x + k);
  double s = 0, dot = 0;
  for (int64_t j = 0; j < k; j++) {
    const double e = std::exp(x[j] - high);
    s += e;
    dot += e * (x[j] - high);
  }
  *lse = high + std::log(s);
  *entropy = std::log(s) - dot / s;
}

// Σ e^(x-lse) (x - lse - ref): the KL divergence from the log-probabilities ref.
FULCRUM_SIMD float divergence(const float *x, const float *ref, int64_t k, float lse) {
  const int64_t whole = k / kLanes * kLanes;
  vf total = fill(0);
  for (int64_t j = 0; j < whole; j += kLanes) {
    const vf logp = load(x + j) - lse;
    total += exp(logp) * (logp - load(ref + j));
  }
  vf rest = fill(0), at = fill(0);
  for (int64_t j = whole; j < k; j++) {
    rest[j - whole] = x[j] - lse;
    at[j - whole] = x[j] - lse - ref[j];
  }
  return sum(total + exp(rest) * at);
}
double divergence(const double *x, const double *ref, int64_t k, double lse) {
  double s = 0;
  for (int64_t j = 0; j < k; j++) s += std::exp(x[j] - lse) * (x[j] - lse - ref[j]);
  return s;
}

// out = e^(x-lse) · (scale + along · (x - lse - ref - kl)): the gradient of -scale·lse and along·divergence
FULCRUM_SIMD void softmax_kl(const float *x, const float *ref, float *out, int64_t k, float lse, float scale, float along, float kl) {
  const int64_t whole = k / kLanes * kLanes;
  for (int64_t j = 0; j < whole; j += kLanes) {
    const vf logp = load(x + j) - lse;
    store(out + j, exp(logp) * (scale + along * (logp - load(ref + j) - kl)));
  }
  if (whole < k) {
    vf rest = fill(0);
    for (int64_t j = whole; j < k; j++) rest[j - whole] = x[j] - lse;
    rest = exp(rest);
    for (int64_t j = whole; j < k; j++) out[j] = rest[j - whole] * (scale + along * (x[j] - lse - ref[j] - kl));
  }
}
void softmax_kl(const double *x, const double *ref, double *out, int64_t k, double lse, double scale, double along, double kl) {
  for (int64_t j = 0; j < k; j++) out[j] = std::exp(x[j] - lse) * (scale + along * (x[j] - lse - ref[j] - kl));
}

// out = scale · e^(x - lse)
FULCRUM_SIMD void softmax(const float *x, float *out, int64_t k, float lse, float scale) {
  const int64_t whole = k / kLanes * kLanes;
  for (int64_t j = 0; j < whole; j += kLanes) store(out + j, scale * exp(load(x + j) - lse));
  if (whole < k) {
    vf rest = fill(0);
    for (int64_t j = whole; j < k; j++) rest[j - whole] = x[j] - lse;
    rest = scale * exp(rest);
    for (int64_t j = whole; j < k; j++) out[j] = rest[j - whole];
  }
}
void softmax(const double *x, double *out, int64_t k, double lse, double scale) {
  for (int64_t j = 0; j < k; j++) out[j] = scale * std::exp(x[j] - lse);
}

FULCRUM_SIMD float dot(const float *a, const float *b, int64_t k) {
  const int64_t whole = k / kLanes * kLanes;
  vf total = fill(0);
  for (int64_t j = 0; j < whole; j += kLanes) total += load(a + j) * load(b + j);
  float s = sum(total);
  for (int64_t j = whole; j < k; j++) s += a[j] * b[j];
  return s;
}
double dot(const double *a, const double *b, int64_t k) { return std::inner_product(a, a + k, b, 0.0); }

// out = (x - y·shift) · scale
FULCRUM_SIMD void subtract_scaled(const float *__restrict x, const float *__restrict y, float *__restrict out, int64_t k, float shift, float scale) {
  for (int64_t j = 0; j < k; j++) out[j] = (x[j] - y[j] * shift) * scale;
}
void subtract_scaled(const double *x, const double *y, double *out, int64_t k, double shift, double scale) {
  for (int64_t j = 0; j < k; j++) out[j] = (x[j] - y[j] * shift) * scale;
}

// Where the scores of step t of candidate g stand among a query's rows: candidates share the first step's when there are
// only 1 + (T-1)·G rows.
struct Layout {
  int64_t b, r, k, g, t;
  bool shared;
  int64_t row(int64_t step, int64_t cand) const { return shared ? (step == 0 ? 0 : 1 + (step - 1) * g + cand) : step * g + cand; }
};

Layout layout(const at::Tensor &logits, const at::Tensor &actions) {
  TORCH_CHECK(logits.dim() == 3 && actions.dim() == 3 && logits.size(0) == actions.size(0), "pick: logits ", logits.sizes(), ", actions ", actions.sizes());
  Layout l{logits.size(0), logits.size(1), logits.size(2), actions.size(1), actions.size(2), false};
  l.shared = l.r == 1 + (l.t - 1) * l.g;
  TORCH_CHECK(l.shared || l.r == l.t * l.g, "pick: ", l.r, " rows of scores for ", l.g, " candidates of ", l.t, " steps");
  return l;
}

// log π of every action, actions taken before at a logit of `taken`; the entropy of each step, without gradient; and
// the KL divergence of each step's distribution from the log-probabilities ref, where they are given.
struct PickLogp : torch::autograd::Function<PickLogp> {
  static constexpr int64_t kThreads = 128;  // on CUDA: four rows
  static int64_t warps(const Layout &l) { return (l.b * l.r * 32 + kThreads - 1) / kThreads; }

  template <class T>
  static void run(const Layout &l, T *x, const int64_t *a, T taken, const T *ref, T *logp, T *entropy, T *kl, T *lse, T *row_kl) {
    at::parallel_for(0, l.b, 1, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; b++)
        for (int64_t t = 0; t < l.t; t++)
          for (int64_t g = 0; g < l.g; g++) {
            const int64_t *act = a + (b * l.g + g) * l.t, row = b * l.r + l.row(t, g), out = (b * l.g + g) * l.t + t;
            T *z = x + row * l.k;
            if (l.shared && t == 0 && g > 0) {
              entropy[out] = entropy[b * l.g * l.t];
            } else {
              for (int64_t s = 0; s < t; s++) z[act[s]] = taken;
              stats(z, l.k, lse + row, entropy + out);
              if (ref != nullptr) row_kl[row] = divergence(z, ref + out * l.k, l.k, lse[row]);
            }
            logp[out] = z[act[t]] - lse[row];
            if (ref != nullptr) kl[out] = row_kl[row];
          }
    });
  }

  template <class T>
  static void back(const Layout &l, const T *x, const int64_t *a, const T *lse, const T *ref, const T *row_kl, const T *grad, const T *grad_kl, T *dx) {
    at::parallel_for(0, l.b, 1, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; b++)
        for (int64_t t = 0; t < l.t; t++)
          for (int64_t g = 0; g < l.g; g++) {
            const bool first = l.shared && t == 0;  // the row of all candidates
            if (first && g > 0) continue;
            const int64_t row = b * l.r + l.row(t, g), last = first ? l.g : g + 1;
            T total = 0, along = 0;
            for (int64_t i = g; i < last; i++) total += grad[(b * l.g + i) * l.t + t];
            T *d = dx + row * l.k;
            if (ref != nullptr) {
              for (int64_t i = g; i < last; i++) along += grad_kl[(b * l.g + i) * l.t + t];
              softmax_kl(x + row * l.k, ref + ((b * l.g + g) * l.t + t) * l.k, d, l.k, lse[row], -total, along, row_kl[row]);
            } else {
              softmax(x + row * l.k, d, l.k, lse[row], -total);
            }
            for (int64_t i = g; i < last; i++) d[a[(b * l.g + i) * l.t + t]] += grad[(b * l.g + i) * l.t + t];
            const int64_t *act = a + (b * l.g + g) * l.t;
            for (int64_t s = 0; s < t; s++) d[act[s]] = 0;  // a taken action's logit is a constant
          }
    });
  }

  static variable_list forward(AutogradContext *ctx, at::Tensor logits, at::Tensor actions, double taken, c10::optional<at::Tensor> ref) {
    const Layout l = layout(logits, actions);
    at::Tensor x = logits.contiguous(), a = actions.to(x.device()).contiguous(), r = ref ? ref->contiguous() : at::Tensor();
    TORCH_CHECK(!ref || r.sizes() == at::IntArrayRef({l.b, l.g, l.t, l.k}), "pick: logits ", x.sizes(), ", reference ", ref ? r.sizes() : x.sizes());
    TORCH_CHECK(a.scalar_type() == at::kLong && (!ref || r.scalar_type() == x.scalar_type()), "pick: actions of ", a.scalar_type(), ", logits of ", x.scalar_type(),
                ", reference of ", ref ? r.scalar_type() : x.scalar_type());
    if (!x.is_cuda() && l.t > 1 && x.data_ptr() == logits.data_ptr()) x = x.clone();  // taken actions are written into it
    at::Tensor logp = at::empty(actions.sizes(), x.options()), entropy = at::empty(actions.sizes(), x.options());
    at::Tensor kl = at::empty(ref ? actions.sizes() : at::IntArrayRef({0}), x.options());
    at::Tensor lse = at::empty({l.b, l.r}, x.options()), row_kl = at::empty_like(lse);
    if (x.is_cuda())
      cuda::run({"pick", x, false}, warps(l), 1, kThreads, x, a, static_cast<float>(taken), r, logp, entropy, kl, lse, row_kl, l.b * l.r, static_cast<int>(l.r),
                static_cast<int>(l.k), static_cast<int>(l.g), static_cast<int>(l.t), static_cast<int>(l.shared));
    else
      AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "pick_logp", [&] {
      run<scalar_t>(l, x.data_ptr<scalar_t>(), a.data_ptr<int64_t>(), static_cast<scalar_t>(taken), ref ? r.data_ptr<scalar_t>() : nullptr,
                    logp.data_ptr<scalar_t>(), entropy.data_ptr<scalar_t>(), kl.data_ptr<scalar_t>(), lse.data_ptr<scalar_t>(), row_kl.data_ptr<scalar_t>());
    });
    ctx->save_for_backward({x, a, lse, row_kl, r});
    ctx->saved_data["taken"] = taken;
    if (ref)
      ctx->mark_non_differentiable({entropy});
    else
      ctx->mark_non_differentiable({entropy, kl});
    return {logp, entropy, kl};
  }

  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &a = saved[1], &lse = saved[2], &row_kl = saved[3], &ref = saved[4];
    at::Tensor grad = grads[0].contiguous(), grad_kl = grads[2].contiguous(), dx = at::empty_like(x);
    const Layout l = layout(x, a);
    if (x.is_cuda()) {
      cuda::run({"pick_back", x, false}, warps(l), 1, kThreads, x, a, static_cast<float>(ctx->saved_data["taken"].toDouble()), ref, lse, row_kl, grad, grad_kl, dx,
                l.b * l.r, static_cast<int>(l.r), static_cast<int>(l.k), static_cast<int>(l.g), static_cast<int>(l.t), static_cast<int>(l.shared));
      return {dx, at::Tensor(), at::Tensor(), at::Tensor()};
    }
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "pick_logp", [&] {
      back<scalar_t>(l, x.data_ptr<scalar_t>(), a.data_ptr<int64_t>(), lse.data_ptr<scalar_t>(), ref.defined() ? ref.data_ptr<scalar_t>() : nullptr,
                     row_kl.data_ptr<scalar_t>(), grad.data_ptr<scalar_t>(), grad_kl.data_ptr<scalar_t>(), dx.data_ptr<scalar_t>());
    });
    return {dx, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

variable_list pick_composed(const at::Tensor &logits, const at::Tensor &actions, double taken, const at::Tensor &ref) {
  const Layout l = layout(logits, actions);
  std::vector<at::Tensor> logp, entropy, kl;
  for (int64_t t = 0; t < l.t; t++) {
    at::Tensor z = l.shared && t == 0 ? logits.narrow(1, 0, 1) : logits.narrow(1, l.row(t, 0), l.g);
    if (t > 0) z = z.scatter(2, actions.narrow(2, 0, t), taken);
    z = z.log_softmax(-1);
    entropy.push_back(-(z.detach().exp() * z.detach()).sum(-1).expand({l.b, l.g}));
    logp.push_back(z.expand({l.b, l.g, l.k}).gather(2, actions.narrow(2, t, 1)).squeeze(2));
    if (ref.defined()) kl.push_back((z.exp() * (z - ref.select(2, t).narrow(1, 0, z.size(1)))).sum(-1).expand({l.b, l.g}));
  }
  return {at::stack(logp, 2), at::stack(entropy, 2), ref.defined() ? at::stack(kl, 2) : at::Tensor()};
}

constexpr int64_t kRows = 64;  // of a task

// y = x / max(|x|, eps) over rows.
struct UnitRows : torch::autograd::Function<UnitRows> {
  static at::Tensor forward(AutogradContext *ctx, at::Tensor input, double eps) {
    at::Tensor x = input.contiguous(), y = at::empty_like(x);
    const int64_t k = x.size(-1), rows = k == 0 ? 0 : x.numel() / k;
    at::Tensor inverse = at::empty({rows}, x.options());
    if (x.is_cuda()) {
      const cuda::Kernel kernel{"unit_rows", x, cuda::wide(k, {&x, &y})};
      cuda::run(kernel, rows, 1, kernel.threads(k), x, y, inverse, k, static_cast<float>(eps));
      ctx->save_for_backward({y, inverse});
      return y;
    }
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "normalize", [&] {
      const scalar_t *in = x.data_ptr<scalar_t>();
      scalar_t *out = y.data_ptr<scalar_t>(), *inv = inverse.data_ptr<scalar_t>();
      at::parallel_for(0, rows, kRows, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) {
          const scalar_t *row = in + i * k, norm = std::sqrt(dot(row, row, k)), least = static_cast<scalar_t>(eps);
          const scalar_t scale = 1 / (norm > least ? norm : least);
          subtract_scaled(row, row, out + i * k, k, scalar_t(0), scale);
          inv[i] = norm > least ? scale : -scale;  // negative: the norm was clamped, a constant to the gradient
        }
      });
    });
    ctx->save_for_backward({y, inverse});
    return y;
  }
  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &y = saved[0], &inverse = saved[1];
    at::Tensor dy = grads[0].contiguous(), dx = at::empty_like(y);
    const int64_t k = y.size(-1), rows = inverse.numel();
    if (y.is_cuda()) {
      const cuda::Kernel kernel{"unit_rows_back", y, cuda::wide(k, {&y, &dy, &dx})};
      cuda::run(kernel, rows, 1, kernel.threads(k), y, dy, inverse, dx, k);
      return {dx, at::Tensor()};
    }
    AT_DISPATCH_FLOATING_TYPES(y.scalar_type(), "normalize", [&] {
      const scalar_t *yp = y.data_ptr<scalar_t>(), *dyp = dy.data_ptr<scalar_t>(), *inv = inverse.data_ptr<scalar_t>();
      scalar_t *dxp = dx.data_ptr<scalar_t>();
      at::parallel_for(0, rows, kRows, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) {  // (dy - y (y·dy)) / |x|
          const scalar_t along = inv[i] < 0 ? scalar_t(0) : dot(yp + i * k, dyp + i * k, k);
          subtract_scaled(dyp + i * k, yp + i * k, dxp + i * k, k, along, std::abs(inv[i]));
        }
      });
    });
    return {dx, at::Tensor()};
  }
};

bool fused(const at::Tensor &x) {
  if (x.scalar_type() == at::kFloat) return x.is_cpu() || cuda::runs(x);
  return x.is_cpu() && x.scalar_type() == at::kDouble;
}

}  // namespace

extern "C" {

// logits [B, R, K] → log π [B, G, T] of actions [B, G, T] (positions), and each step's entropy [B, G, T] without gradient.
// R is 1 + (T-1)·G (one row for the first step of all candidates, then step by step) or T·G. Actions that a candidate has
// taken before have the logit `taken`. With the log-probabilities ref [B, G, T, K] also each step's KL(π ‖ ref) [B, G, T].
const char *fc_pick_logp(Tensor logits, Tensor actions, double taken, Tensor ref, Tensor *logp, Tensor *entropy, Tensor *kl) {
  return guard([&] {
    variable_list out = fused(*logits) ? PickLogp::apply(*logits, *actions, taken, ref == nullptr ? c10::optional<at::Tensor>() : *ref)
                                       : pick_composed(*logits, *actions, taken, ref == nullptr ? at::Tensor() : *ref);
    *logp = wrap(out[0]);
    *entropy = wrap(out[1]);
    if (ref != nullptr) *kl = wrap(out[2]);
  });
}

// x / max(|x|₂, eps) over the last dimension.   torch.nn.functional.normalize
const char *fc_normalize(Tensor x, double eps, Tensor *out) {
  return guard([&] {
    if (fused(*x)) {
      *out = wrap(UnitRows::apply(*x, eps));
      return;
    }
    *out = wrap(*x / x->norm(2, -1, true).clamp_min(eps).expand_as(*x));
  });
}

}  // extern "C"
