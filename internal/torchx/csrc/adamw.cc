// The optimiser's two passes over one flat float32 buffer: Σ g² and the AdamW update.
// Composed from libtorch operations the update reads and writes the buffers a dozen times; at batch 1
// that memory traffic, not arithmetic, is most of a step, so on the CPU it is one fused pass.
#include <ATen/Parallel.h>

#include <cmath>

#include "adamw.h"
#include "cuda_kernels.h"
#include "guard.h"
#include "simd.h"

namespace {

constexpr int64_t kGrain = FC_GRAIN;

// What a step has in common for all elements.
struct Step {
  float grad_scale, b1, c1, b2, c2, decay, step_size, inv_root, eps;
  bool clear;
};

// One pass: AdamW, and the gradient back to zero for the next step while it is in the cache. s and d, where scaled, are
// factors on each element's learning rate and decay.
template <bool scaled>
INLINE void adamw_loop(const Step &k, float *__restrict p, float *__restrict g, float *__restrict m, float *__restrict v, const float *__restrict s,
                       const float *__restrict d, int64_t n) {
  const Step c = k;  // no store to p, g, m or v can change it
  for (int64_t i = 0; i < n; i++) {
    const float gi = g[i] * c.grad_scale;
    const float mi = c.b1 * m[i] + c.c1 * gi;
    const float vi = c.b2 * v[i] + c.c2 * gi * gi;
    m[i] = mi;
    v[i] = vi;
    const float keep = scaled ? 1 - c.decay * s[i] * d[i] : 1 - c.decay;
    const float size = scaled ? c.step_size * s[i] : c.step_size;
    p[i] = p[i] * keep - size * mi / (__builtin_sqrtf(vi) * c.inv_root + c.eps);
    g[i] = c.clear ? 0.0f : g[i];
  }
}
FULCRUM_SIMD void adamw_span(const Step &k, float *p, float *g, float *m, float *v, int64_t n) {
  adamw_loop<false>(k, p, g, m, v, nullptr, nullptr, n);
}
FULCRUM_SIMD void adamw_scaled_span(const Step &k, float *p, float *g, float *m, float *v, const float *s, const float *d, int64_t n) {
  adamw_loop<true>(k, p, g, m, v, s, d, n);
}

FULCRUM_SIMD double sum_squares_span(const float *__restrict g, int64_t n) {
  double lane[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int64_t l = 0; l < 16; l++) lane[l] += static_cast<double>(g[i + l]) * static_cast<double>(g[i + l]);
  for (; i < n; i++) lane[0] += static_cast<double>(g[i]) * static_cast<double>(g[i]);
  double total = 0;
  for (double x : lane) total += x;
  return total;
}

// Σ x² [parts] in float64 of every kGrain elements of float32 x on the CPU.
at::Tensor square_parts(const at::Tensor &x) {
  const at::Tensor flat = x.contiguous();
  const float *g = flat.data_ptr<float>();
  const int64_t n = flat.numel(), parts = (n + kGrain - 1) / kGrain;
  const at::Tensor out = at::empty({parts}, flat.options().dtype(at::kDouble));
  double *part = out.data_ptr<double>();
  at::parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; c++) part[c] = sum_squares_span(g + c * kGrain, std::min(kGrain, n - c * kGrain));
  });
  return out;
}

constexpr int64_t kStretch = 4096;  // elements of a block on CUDA, and of a float32 norm without our kernels
constexpr int64_t kThreads = 256;

// Σ x² in float64 [1] of float32 x on another device, by norms of stretches: a float64 copy of the gradient would be
// twice its memory.
at::Tensor sum_squares(const at::Tensor &x) {
  const int64_t n = x.numel(), whole = n / kStretch * kStretch, blocks = (n + kStretch - 1) / kStretch;
  const at::Tensor flat = x.reshape({-1});
  if (cuda::runs(flat)) {
    const at::Tensor partial = at::empty({blocks}, flat.options().dtype(at::kDouble)), out = at::empty({1}, partial.options());
    cuda::run({"squares", flat, cuda::wide(n, {&flat})}, blocks, 1, kThreads, flat, partial, n);
    cuda::run({"total", flat, false}, 1, 1, kThreads, partial, out, blocks);
    return out;
  }
  std::vector<at::Tensor> norms;
  if (whole > 0) norms.push_back(at::linalg_vector_norm(flat.narrow(0, 0, whole).view({-1, kStretch}), 2, at::IntArrayRef{1}));
  if (whole < n) norms.push_back(at::linalg_vector_norm(flat.narrow(0, whole, n - whole).view({1, -1}), 2, at::IntArrayRef{1}));
  return at::cat(norms).to(at::kDouble).square().sum().reshape({1});
}

// 32 bits for each of n elements from `at` on, in int64: the finalizer of MurmurHash3 over step and place.
at::Tensor random_bits(int64_t step, int64_t at, int64_t n, const at::TensorOptions &options) {
  constexpr int64_t k32 = 0xffffffff;
  const auto mixed = [](const at::Tensor &h, int64_t by, int64_t shift) { return (h ^ h.bitwise_right_shift(shift)).mul_(by).bitwise_and_(k32); };
  at::Tensor h = at::arange(at, at + n, options.dtype(at::kLong)).mul_(int64_t{0x9e3779b1}).add_(step * 0x85ebca77).bitwise_and_(k32);
  h = mixed(mixed(h, 0x85ebca6b, 16), 0xc2b2ae35, 13);
  return h ^ h.bitwise_right_shift(16);
}

// x [n] float32 with 16 random bits added below bfloat16's last one and then cut off; what is not finite stays.
at::Tensor rounded(const at::Tensor &x, const at::Tensor &bits) {
  const at::Tensor up = x.view(at::kInt).add(bits.to(at::kInt)).bitwise_and_(~0xffff).view(at::kFloat);
  return at::where(at::isfinite(x), up, x);
}

}  // namespace

extern "C" {

const char *fc_round_moments(Tensor m, Tensor v, Tensor m_out, Tensor v_out, int64_t step, int64_t at) {
  return guard([&] {
    at::NoGradGuard no_grad;
    const at::Tensor bits = random_bits(step, at, m->numel(), m->options());
    m_out->copy_(rounded(*m, bits & 0xffff));
    v_out->copy_(rounded(*v, bits.bitwise_right_shift(16)));
  });
}

const char *fc_square_parts(Tensor x, Tensor *out) {
  return guard([&] {
    at::NoGradGuard no_grad;
    *out = wrap(x->is_cpu() ? square_parts(*x) : sum_squares(*x).cpu());
  });
}

const char *fc_sum_squares(Tensor x, Tensor *out) {
  return guard([&] {
    at::NoGradGuard no_grad;
    if (!x->is_cpu() && x->scalar_type() == at::kFloat && x->numel() > 0) {
      *out = wrap(sum_squares(*x));
      return;
    }
    if (!x->is_cpu() || x->scalar_type() != at::kFloat || !x->is_contiguous()) {
      *out = wrap(x->to(at::kDouble).square().sum().reshape({1}));
      return;
    }
    const at::Tensor parts = square_parts(*x);
    const double *p = parts.data_ptr<double>();
    double total = 0;
    for (int64_t c = 0; c < parts.numel(); c++) total += p[c];
    *out = wrap(at::full({1}, total, x->options().dtype(at::kDouble)));
  });
}

const char *fc_adamw(Tensor param, Tensor grad, Tensor m, Tensor v, Tensor lr_scale, Tensor decay_mask, Tensor squares, Tensor losses, bool guarded,
                     double grad_scale, double lr, double beta1, double beta2, double eps, double weight_decay, int64_t step, bool clear) {
  return guard([&] {
    at::NoGradGuard no_grad;
    const int64_t n = param->numel();
    TORCH_CHECK(grad->numel() == n && m->numel() == n && v->numel() == n, "adamw: buffers of ", n, ", ", grad->numel(), ", ", m->numel(), ", ", v->numel(), " elements");
    if (squares != nullptr) {
      const double norm = std::sqrt(squares->item<double>());
      if (guarded && !(std::isfinite(norm) && (losses == nullptr || at::isfinite(*losses).all().item<bool>()))) return;
      const double factor = grad_scale / (norm + 1e-6);
      grad_scale = grad_scale > 0 && !(factor >= 1) ? factor : 1;  // NaN stays NaN
    }
    const double correction1 = 1 - std::pow(beta1, static_cast<double>(step));
    const double root = std::sqrt(1 - std::pow(beta2, static_cast<double>(step)));
    if (param->is_cpu() && param->scalar_type() == at::kFloat) {
      float *pp = param->data_ptr<float>(), *gp = grad->data_ptr<float>(), *mp = m->data_ptr<float>(), *vp = v->data_ptr<float>();
      const Step k{static_cast<float>(grad_scale), static_cast<float>(beta1), static_cast<float>(1 - beta1), static_cast<float>(beta2), static_cast<float>(1 - beta2),
                   static_cast<float>(lr * weight_decay), static_cast<float>(lr / correction1), static_cast<float>(1 / root), static_cast<float>(eps), clear};
      at::Tensor ones;
      if ((lr_scale == nullptr) != (decay_mask == nullptr)) ones = at::ones({n}, param->options());
      const float *s = lr_scale ? lr_scale->data_ptr<float>() : ones.defined() ? ones.data_ptr<float>() : nullptr;
      const float *d = decay_mask ? decay_mask->data_ptr<float>() : ones.defined() ? ones.data_ptr<float>() : nullptr;
      at::parallel_for(0, n, kGrain, [&](int64_t i, int64_t end) {
        if (s == nullptr)
          adamw_span(k, pp + i, gp + i, mp + i, vp + i, end - i);
        else
          adamw_scaled_span(k, pp + i, gp + i, mp + i, vp + i, s + i, d + i, end - i);
      });
      return;
    }
    at::Tensor g = grad->mul(grad_scale);  // other devices: few, large operations
    m->mul_(beta1).add_(g, 1 - beta1);
    v->mul_(beta2).addcmul_(g, g, 1 - beta2);
    at::Tensor update = m->div(v->sqrt().div_(root).add_(eps)).mul_(lr / correction1);
    if (lr_scale == nullptr && decay_mask == nullptr) {
      param->mul_(1 - lr * weight_decay).sub_(update);
    } else {
      at::Tensor shrink = at::full_like(*param, lr * weight_decay);
      if (lr_scale != nullptr) { update.mul_(*lr_scale); shrink.mul_(*lr_scale); }
      if (decay_mask != nullptr) shrink.mul_(*decay_mask);
      param->mul_(1 - shrink).sub_(update);
    }
    if (clear) grad->zero_();
  });
}

const char *fc_adamw_queued(Tensor param, Tensor grad, Tensor m, Tensor v, Tensor lr_scale, Tensor decay_mask, Tensor squares, Tensor losses, Tensor refused,
                            bool guarded, double clip, Tensor rates, double beta1, double beta2, double eps, double weight_decay, bool clear) {
  return guard([&] {
    at::NoGradGuard no_grad;
    const auto of = [](Tensor x) { return x == nullptr ? at::Tensor() : *x; };
    const at::Tensor scale = of(lr_scale), mask = of(decay_mask), parts = of(losses);
    if (cuda::runs(*param) && param->scalar_type() == at::kFloat && (!parts.defined() || parts.scalar_type() == at::kFloat)) {
      const int64_t n = param->numel();
      const cuda::Kernel kernel{"adamw", *param, cuda::wide(n, {param, grad, m, v, &scale, &mask})};
      cuda::run(kernel, (n + kStretch - 1) / kStretch, 1, kThreads, *param, *grad, *m, *v, scale, mask, *squares, parts, parts.defined() ? parts.numel() : 0,
                *refused, *rates, clip, static_cast<float>(beta1), static_cast<float>(1 - beta1), static_cast<float>(beta2), static_cast<float>(1 - beta2),
                static_cast<float>(eps), weight_decay, n, static_cast<int>(guarded), static_cast<int>(clear));
      return;
    }
    const at::Tensor norm = squares->sqrt();  // [1] float64
    const at::Tensor factor = (clip > 0 ? (norm + 1e-6).reciprocal().mul(clip).clamp_max(1) : at::ones_like(norm)).to(at::kFloat);  // NaN stays NaN
    at::Tensor bad = at::zeros({1}, norm.options().dtype(at::kBool));
    if (guarded) {
      bad = at::isfinite(norm).logical_not().logical_or(refused->ne(0));
      if (parts.defined()) bad = bad.logical_or(at::isfinite(parts).all().logical_not());
      refused->copy_(bad);
    }
    const at::Tensor rate = rates->to(at::kFloat), lr = rate.narrow(0, 0, 1), g = grad->mul(factor);
    const at::Tensor m1 = m->mul(beta1).add_(g, 1 - beta1), v1 = v->mul(beta2).addcmul_(g, g, 1 - beta2);
    at::Tensor update = m1.div(v1.sqrt().div_(rate.narrow(0, 2, 1)).add_(eps)).mul_(lr / rate.narrow(0, 1, 1));
    at::Tensor shrink = lr * weight_decay;
    if (scale.defined()) {
      update.mul_(scale);
      shrink = shrink * scale;
    }
    if (mask.defined()) shrink = shrink * mask;
    param->copy_(at::where(bad, *param, (*param * (1 - shrink)).sub_(update)));
    m->copy_(at::where(bad, *m, m1));
    v->copy_(at::where(bad, *v, v1));
    if (clear) grad->copy_(at::where(bad, *grad, at::zeros_like(*grad)));
  });
}

}  // extern "C"
