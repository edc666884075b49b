// The optimiser's two passes over one flat float32 buffer: Σ g² and the AdamW update.
// Composed from libtorch operations the update reads and writes the buffers a dozen times; at batch 1
// that memory traffic, not arithmetic, is most of a step, so on the CPU it is one fused pass.
#include <ATen/Parallel.h>

#include <cmath>

#include "guard.h"

namespace {

constexpr int64_t kGrain = 16384;  // elements a task; also the unit of Σ g², so the sum is the same for any thread count

void adamw_cpu(float *p, const float *g, float *m, float *v, const float *lr_scale, const float *decay_mask, int64_t n, float grad_scale, double lr,
               double beta1, double beta2, double eps, double weight_decay, int64_t step) {
  const double correction1 = 1 - std::pow(beta1, static_cast<double>(step));
  const double correction2 = std::sqrt(1 - std::pow(beta2, static_cast<double>(step)));
  const float b1 = static_cast<float>(beta1), b2 = static_cast<float>(beta2);
  const float c1 = static_cast<float>(1 - beta1), c2 = static_cast<float>(1 - beta2);
  const float epsf = static_cast<float>(eps), inv_c2 = static_cast<float>(1 / correction2);
  const float step_size = static_cast<float>(lr / correction1), decay = static_cast<float>(lr * weight_decay);
  at::parallel_for(0, n, kGrain, [&](int64_t begin, int64_t end) {
    if (lr_scale == nullptr && decay_mask == nullptr) {
      const float keep = 1 - decay;
      for (int64_t i = begin; i < end; i++) {
        const float gi = g[i] * grad_scale;
        m[i] = b1 * m[i] + c1 * gi;
        v[i] = b2 * v[i] + c2 * gi * gi;
        p[i] = p[i] * keep - step_size * m[i] / (std::sqrt(v[i]) * inv_c2 + epsf);
      }
      return;
    }
    for (int64_t i = begin; i < end; i++) {
      const float s = lr_scale == nullptr ? 1.0f : lr_scale[i];
      const float d = decay_mask == nullptr ? 1.0f : decay_mask[i];
      const float gi = g[i] * grad_scale;
      m[i] = b1 * m[i] + c1 * gi;
      v[i] = b2 * v[i] + c2 * gi * gi;
      p[i] = p[i] * (1 - decay * s * d) - step_size * s * m[i] / (std::sqrt(v[i]) * inv_c2 + epsf);
    }
  });
}

}  // namespace

extern "C" {

const char *fc_sum_squares(Tensor x, double *out) {
  return guard([&] {
    at::NoGradGuard no_grad;
    if (!x->is_cpu() || x->scalar_type() != at::kFloat || !x->is_contiguous()) {
      *out = x->to(at::kDouble).square().sum().item<double>();
      return;
    }
    const float *g = x->data_ptr<float>();
    const int64_t n = x->numel(), chunks = (n + kGrain - 1) / kGrain;
    std::vector<double> partial(chunks, 0.0);
    at::parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; c++) {
        double lane[4] = {0, 0, 0, 0};
        const int64_t lo = c * kGrain, hi = std::min(n, lo + kGrain);
        int64_t i = lo;
        for (; i + 4 <= hi; i += 4)
          for (int64_t l = 0; l < 4; l++) lane[l] += static_cast<double>(g[i + l]) * g[i + l];
        for (; i < hi; i++) lane[0] += static_cast<double>(g[i]) * g[i];
        partial[c] = (lane[0] + lane[1]) + (lane[2] + lane[3]);
      }
    });
    double total = 0;
    for (double p : partial) total += p;
    *out = total;
  });
}

const char *fc_adamw(Tensor param, Tensor grad, Tensor m, Tensor v, Tensor lr_scale, Tensor decay_mask, double grad_scale, double lr, double beta1,
                     double beta2, double eps, double weight_decay, int64_t step) {
  return guard([&] {
    at::NoGradGuard no_grad;
    const int64_t n = param->numel();
    TORCH_CHECK(grad->numel() == n && m->numel() == n && v->numel() == n, "adamw: buffers of ", n, ", ", grad->numel(), ", ", m->numel(), ", ", v->numel(), " elements");
    if (param->is_cpu() && param->scalar_type() == at::kFloat) {
      adamw_cpu(param->data_ptr<float>(), grad->data_ptr<float>(), m->data_ptr<float>(), v->data_ptr<float>(), lr_scale ? lr_scale->data_ptr<float>() : nullptr,
                decay_mask ? decay_mask->data_ptr<float>() : nullptr, n, static_cast<float>(grad_scale), lr, beta1, beta2, eps, weight_decay, step);
      return;
    }
    at::Tensor g = grad->mul(grad_scale);  // other devices: few, large operations
    m->mul_(beta1).add_(g, 1 - beta1);
    v->mul_(beta2).addcmul_(g, g, 1 - beta2);
    at::Tensor denom = v->sqrt().div_(std::sqrt(1 - std::pow(beta2, static_cast<double>(step)))).add_(eps);
    at::Tensor update = m->div(denom).mul_(lr / (1 - std::pow(beta1, static_cast<double>(step))));
    at::Tensor shrink = at::full_like(*param, lr * weight_decay);
    if (lr_scale != nullptr) { update.mul_(*lr_scale); shrink.mul_(*lr_scale); }
    if (decay_mask != nullptr) shrink.mul_(*decay_mask);
    param->mul_(1 - shrink).sub_(update);
  });
}

}  // extern "C"
