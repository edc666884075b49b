// A transformer's operations between its products: RMSNorm, SwiGLU, rotary positions; and rows of key/value caches.
// On the CPU in float32, and in any float type on CUDA (kernels.cu), each is one pass forward and one backward: composed
// from libtorch's operations they are seven passes over the rows each, a third of a small model's time.
#include <ATen/Parallel.h>

#include "cuda_kernels.h"
#include "fused.h"
#include "guard.h"
#include "linear.h"
#include "wide.h"
#include "simd.h"

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kRows = 32;       // rows of a task, and of a partial sum: the same for any number of threads
constexpr int64_t kGrain = 16384;   // elements of a task
constexpr int64_t kCUDARows = 128;  // rows of a partial sum on CUDA
constexpr int64_t kCUDAThreads = 256;

// Whether there is a fused pass for x with others of its type.
bool fused(const at::Tensor &x, std::initializer_list<const at::Tensor *> others) {
  if (!(x.is_cpu() && x.scalar_type() == at::kFloat) && !cuda::runs(x)) return false;
  for (const at::Tensor *y : others)
    if (y->device() != x.device() || y->scalar_type() != x.scalar_type()) return false;
  return true;
}

// --- RMSNorm

// y = w x / √(mean x² + eps), after x += delta where there is one (the sum goes to total). Returns 1/√….
FULCRUM_SIMD float rms_row(const float *x, const float *delta, const float *w, float *total, float *y, int64_t k, float eps) {
  const int64_t whole = k / kLanes * kLanes;
  vf squares = fill(0);
  float rest = 0;
  if (delta != nullptr) {
    for (int64_t j = 0; j < whole; j += kLanes) {
      const vf t = load(x + j) + load(delta + j);
      store(total + j, t);
      squares += t * t;
    }
    for (int64_t j = whole; j < k; j++) {
      total[j] = x[j] + delta[j];
      rest += total[j] * total[j];
    }
    x = total;
  } else {
    for (int64_t j = 0; j < whole; j += kLanes) squares += load(x + j) * load(x + j);
    for (int64_t j = whole; j < k; j++) rest += x[j] * x[j];
  }
  const float inverse = 1 / std::sqrt((sum(squares) + rest) / static_cast<float>(k) + eps);
  for (int64_t j = 0; j < whole; j += kLanes) store(y + j, load(x + j) * inverse * load(w + j));
  for (int64_t j = whole; j < k; j++) y[j] = x[j] * inverse * w[j];
  return inverse;
}

// dx = (w dy - x̂ mean(w dy x̂)) · inverse (+ more), x̂ = x · inverse; dw += dy x̂ where it is asked for.
FULCRUM_SIMD void rms_back_row(const float *x, const float *w, const float *dy, const float *more, float inverse, float *dx, float *dw, int64_t k) {
  const int64_t whole = k / kLanes * kLanes;
  vf dots = fill(0);
  float rest = 0;
  for (int64_t j = 0; j < whole; j += kLanes) dots += load(w + j) * load(dy + j) * load(x + j);
  for (int64_t j = whole; j < k; j++) rest += w[j] * dy[j] * x[j];
  const float along = (sum(dots) + rest) * inverse * inverse / static_cast<float>(k);
  for (int64_t j = 0; j < whole; j += kLanes) {
    vf d = (load(w + j) * load(dy + j) - load(x + j) * along) * inverse;
    if (more != nullptr) d += load(more + j);
    store(dx + j, d);
  }
  for (int64_t j = whole; j < k; j++) dx[j] = (w[j] * dy[j] - x[j] * along) * inverse + (more != nullptr ? more[j] : 0);
  if (dw == nullptr) return;
  for (int64_t j = 0; j < whole; j += kLanes) store(dw + j, load(dw + j) + load(dy + j) * load(x + j) * inverse);
  for (int64_t j = whole; j < k; j++) dw[j] += dy[j] * x[j] * inverse;
}

// (x + delta, its norm); without delta (x, its norm).
struct AddRMSNorm : torch::autograd::Function<AddRMSNorm> {
  static variable_list forward(AutogradContext *ctx, at::Tensor input, c10::optional<at::Tensor> more, at::Tensor weight, double eps) {
    at::Tensor x = input.contiguous(), delta = more ? more->contiguous() : at::Tensor(), w = weight.contiguous();
    const int64_t k = x.size(-1), rows = k == 0 ? 0 : x.numel() / k;
    at::Tensor y = at::empty_like(x), total = more ? at::empty_like(x) : x, inverse = at::empty({rows}, x.options().dtype(at::kFloat));
    if (x.is_cuda())
      cuda_forward(x, delta, w, total, y, inverse, eps);
    else
      cpu_forward(x, delta, w, total, y, inverse, eps);
    if (ctx == nullptr) return more ? variable_list{total, y} : variable_list{y};
    ctx->save_for_backward({total, weight, inverse});
    ctx->saved_data["weight_grad"] = buffer(weight);
    ctx->saved_data["added"] = more.has_value();
    ctx->set_materialize_grads(false);
    return more ? variable_list{total, y} : variable_list{y};
  }

  static void cuda_forward(const at::Tensor &x, const at::Tensor &delta, const at::Tensor &w, at::Tensor &total, at::Tensor &y, at::Tensor &inverse, double eps) {
    const int64_t k = x.size(-1);
    const cuda::Kernel kernel{"rms_norm", x, cuda::wide(k, {&x, &delta, &w, &total, &y})};
    cuda::run(kernel, inverse.numel(), 1, kernel.threads(k), x, delta, w, delta.defined() ? total : delta, y,
              inverse, k, static_cast<float>(eps));
  }

  static void cpu_forward(const at::Tensor &x, const at::Tensor &delta, const at::Tensor &w, at::Tensor &total, at::Tensor &y, at::Tensor &inverse, double eps) {
    const int64_t k = x.size(-1), rows = inverse.numel();
    const float *xp = x.data_ptr<float>(), *dp = delta.defined() ? delta.data_ptr<float>() : nullptr, *wp = w.data_ptr<float>();
    float *yp = y.data_ptr<float>(), *tp = delta.defined() ? total.data_ptr<float>() : nullptr, *ip = inverse.data_ptr<float>();
    at::parallel_for(0, rows, kRows, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin, at = begin * k; i < end; i++, at += k)
        ip[i] = rms_row(xp + at, dp == nullptr ? nullptr : dp + at, wp, tp == nullptr ? nullptr : tp + at, yp + at, k, static_cast<float>(eps));
    });
  }

  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &inverse = saved[2];
    const at::Tensor w = saved[1].contiguous();
    const bool added = ctx->saved_data["added"].toBool();
    at::Tensor along = added ? grads[0] : at::Tensor(), dy = grads[added ? 1 : 0];
    if (!dy.defined()) return {along, along, at::Tensor(), at::Tensor()};
    dy = dy.contiguous();
    if (along.defined()) along = along.contiguous();
    at::Tensor dx = at::empty_like(x), dw, partial;
    const int64_t k = x.size(-1), rows = inverse.numel(), chunk = x.is_cuda() ? kCUDARows : kRows, blocks = (rows + chunk - 1) / chunk;
    if (saved[1].requires_grad()) partial = at::zeros({blocks, k}, inverse.options());
    if (x.is_cuda())
      cuda_backward(x, w, dy, along, inverse, dx, partial);
    else
      cpu_backward(x, w, dy, along, inverse, dx, partial);
    if (partial.defined()) dw = into(ctx->saved_data["weight_grad"], partial.sum(0).to(w.scalar_type()));
    return {dx, added ? dx : at::Tensor(), dw, at::Tensor()};
  }

  static void cuda_backward(const at::Tensor &x, const at::Tensor &w, const at::Tensor &dy, const at::Tensor &along, const at::Tensor &inverse, at::Tensor &dx,
                            at::Tensor &partial) {
    const int64_t k = x.size(-1), rows = inverse.numel();
    const bool wide = cuda::wide(k, {&x, &w, &dy, &along, &dx});
    const cuda::Kernel kernel{"rms_norm_back", x, wide}, weights{"rms_norm_weight_back", x, wide};
    cuda::run(kernel, rows, 1, kernel.threads(k), x, w, dy, along, inverse, dx, k);
    if (!partial.defined()) return;
    const int64_t columns = 32 * weights.width();
    cuda::run(weights, (k + columns - 1) / columns, partial.size(0), 32, x, dy, inverse, partial, rows, k, static_cast<int>(kCUDARows));
  }

  static void cpu_backward(const at::Tensor &x, const at::Tensor &w, const at::Tensor &dy, const at::Tensor &along, const at::Tensor &inverse, at::Tensor &dx,
                           at::Tensor &partial) {
    const int64_t k = x.size(-1), rows = inverse.numel(), blocks = (rows + kRows - 1) / kRows;
    const float *xp = x.data_ptr<float>(), *wp = w.data_ptr<float>(), *dyp = dy.data_ptr<float>(), *ip = inverse.data_ptr<float>();
    const float *ap = along.defined() ? along.data_ptr<float>() : nullptr;
    float *dxp = dx.data_ptr<float>(), *pp = partial.defined() ? partial.data_ptr<float>() : nullptr;
    at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; b++)
        for (int64_t i = b * kRows; i < std::min(rows, (b + 1) * kRows); i++)
          rms_back_row(xp + i * k, wp, dyp + i * k, ap == nullptr ? nullptr : ap + i * k, ip[i], dxp + i * k, pp == nullptr ? nullptr : pp + b * k, k);
    });
  }
};

at::Tensor rms_norm(const at::Tensor &x, const at::Tensor &weight, double eps) {
  if (fused(x, {&weight})) {
    const c10::optional<at::Tensor> none;
    return (recorded({&x, &weight}) ? AddRMSNorm::apply(x, none, weight, eps) : AddRMSNorm::forward(nullptr, x, none, weight, eps))[0];
  }
  const at::Tensor f = x.to(wide(x, Wide::norm));
  return weight * (f * (f.square().mean(-1, true) + eps).rsqrt()).to(x.scalar_type());
}

// --- SwiGLU

INLINE vf sigmoid(vf x) {
  const vf negated = -x;
  return 1.0f / (1.0f + exp(negated > 88.0f ? fill(88.0f) : negated));
}

FULCRUM_SIMD void swiglu_span(const float *g, const float *u, float *y, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, load(g + i) * sigmoid(load(g + i)) * load(u + i));
  for (; i < n; i++) y[i] = g[i] * sigmoid(fill(g[i]))[0] * u[i];
}
FULCRUM_SIMD void swiglu_back_span(const float *g, const float *u, const float *dy, float *dg, float *du, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const vf x = load(g + i), d = load(dy + i), s = sigmoid(x);
    store(du + i, d * x * s);
    store(dg + i, d * load(u + i) * s * (1.0f + x * (1.0f - s)));
  }
  for (; i < n; i++) {
    const float s = sigmoid(fill(g[i]))[0];
    du[i] = dy[i] * g[i] * s;
    dg[i] = dy[i] * u[i] * s * (1.0f + g[i] * (1.0f - s));
  }
}

struct SwiGLU : torch::autograd::Function<SwiGLU> {
  static int64_t blocks(const at::Tensor &x, const cuda::Kernel &kernel) {
    const int64_t elements = kCUDAThreads * kernel.width();
    return (x.numel() + elements - 1) / elements;
  }
  static at::Tensor forward(AutogradContext *ctx, at::Tensor gate, at::Tensor up) {
    at::Tensor g = gate.contiguous(), u = up.contiguous(), y = at::empty_like(g);
    if (ctx != nullptr) ctx->save_for_backward({g, u});
    if (g.is_cuda()) {
      const cuda::Kernel kernel{"swiglu", g, cuda::wide(g.numel(), {&g, &u, &y})};
      cuda::run(kernel, blocks(g, kernel), 1, kCUDAThreads, g, u, y, g.numel());
      return y;
    }
    const float *gp = g.data_ptr<float>(), *upp = u.data_ptr<float>();
    float *yp = y.data_ptr<float>();
    at::parallel_for(0, g.numel(), kGrain, [&](int64_t i, int64_t end) { swiglu_span(gp + i, upp + i, yp + i, end - i); });
    return y;
  }
  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &g = saved[0], &u = saved[1];
    at::Tensor dy = grads[0].contiguous(), dg = at::empty_like(g), du = at::empty_like(u);
    if (g.is_cuda()) {
      const cuda::Kernel kernel{"swiglu_back", g, cuda::wide(g.numel(), {&g, &u, &dy, &dg, &du})};
      cuda::run(kernel, blocks(g, kernel), 1, kCUDAThreads, g, u, dy, dg, du, g.numel());
      return {dg, du};
    }
    const float *gp = g.data_ptr<float>(), *upp = u.data_ptr<float>(), *dyp = dy.data_ptr<float>();
    float *dgp = dg.data_ptr<float>(), *dup = du.data_ptr<float>();
    at::parallel_for(0, g.numel(), kGrain, [&](int64_t i, int64_t end) { swiglu_back_span(gp + i, upp + i, dyp + i, dgp + i, dup + i, end - i); });
    return {dg, du};
  }
};

// SwiGLU of the halves of rows, on CUDA.
struct SwiGLUPair : torch::autograd::Function<SwiGLUPair> {
  static at::Tensor forward(AutogradContext *ctx, at::Tensor rows) {
    const at::Tensor x = rows.contiguous(), y = at::empty({x.size(0), x.size(1) / 2}, x.options());
    if (ctx != nullptr) ctx->save_for_backward({x});
    const cuda::Kernel kernel{"swiglu_pair", x, cuda::wide(y.size(1), {&x, &y})};
    cuda::run(kernel, SwiGLU::blocks(y, kernel), 1, kCUDAThreads, x, y, y.numel(), y.size(1));
    return y;
  }
  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    const at::Tensor x = ctx->get_saved_variables()[0], dy = grads[0].contiguous(), dx = at::empty_like(x);
    const cuda::Kernel kernel{"swiglu_pair_back", x, cuda::wide(dy.size(1), {&x, &dy, &dx})};
    cuda::run(kernel, SwiGLU::blocks(dy, kernel), 1, kCUDAThreads, x, dy, dx, dy.numel(), dy.size(1));
    return {dx};
  }
};

// --- rotary positions

// The pairs (x[i], x[i + half]) of every head of a row, turned by the row's angles; sign -1 turns back.
FULCRUM_SIMD void rope_row(const float *x, const float *c, const float *s, float *y, int64_t heads, int64_t half, float sign) {
  for (int64_t h = 0; h < heads; h++, x += 2 * half, y += 2 * half) {
    int64_t i = 0;
    for (; i + kLanes <= half; i += kLanes) {
      const vf a = load(x + i), b = load(x + half + i), co = load(c + i), si = load(s + i) * sign;
      store(y + i, a * co - b * si);
      store(y + half + i, b * co + a * si);
    }
    for (; i < half; i++) {
      const float a = x[i], b = x[half + i], si = s[i] * sign;
      y[i] = a * c[i] - b * si;
      y[half + i] = b * c[i] + a * si;
    }
  }
}

struct Rope : torch::autograd::Function<Rope> {
  static at::Tensor turn(const at::Tensor &x, const at::Tensor &cos, const at::Tensor &sin, float sign) {
    at::Tensor y = at::empty_like(x);
    const int64_t n = x.size(0), heads = x.size(1), d = x.size(2), half = d / 2;
    if (x.is_cuda()) {
      const cuda::Kernel kernel{"rope", x, cuda::wide(half, {&x, &y})};
      cuda::run(kernel, n, 1, kernel.threads(heads * half), x, cos, sin, y, static_cast<int>(heads), static_cast<int>(half), sign);
      return y;
    }
    const float *xp = x.data_ptr<float>(), *cp = cos.data_ptr<float>(), *sp = sin.data_ptr<float>();
    float *yp = y.data_ptr<float>();
    at::parallel_for(0, n, kRows, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) rope_row(xp + i * heads * d, cp + i * half, sp + i * half, yp + i * heads * d, heads, half, sign);
    });
    return y;
  }
  static at::Tensor forward(AutogradContext *ctx, at::Tensor x, at::Tensor cos, at::Tensor sin) {
    at::Tensor c = cos.contiguous(), s = sin.contiguous();
    if (ctx != nullptr) ctx->save_for_backward({c, s});
    return turn(x.contiguous(), c, s, 1);
  }
  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    return {turn(grads[0].contiguous(), saved[0], saved[1], -1), at::Tensor(), at::Tensor()};
  }
};

// Queries, keys and values of rows apart, on CUDA.
struct RopeHeads : torch::autograd::Function<RopeHeads> {
  static void run(const at::Tensor &x, const at::Tensor &cos, const at::Tensor &sin, const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const at::Tensor &at, int back) {
    const int64_t half = q.size(2) / 2, heads = q.size(1) + 2 * k.size(1);
    const cuda::Kernel kernel{"rope_heads", x, cuda::wide(half, {&x, &q, &k, &v})};
    cuda::run(kernel, x.size(0), 1, kernel.threads(heads * half), x, cos, sin, q, k, v, at, static_cast<int>(q.size(1)), static_cast<int>(k.size(1)), static_cast<int>(half), back);
  }
  static variable_list forward(AutogradContext *ctx, at::Tensor x, at::Tensor cos, at::Tensor sin, int64_t hq, int64_t hk) {
    const at::Tensor rows = x.contiguous(), c = cos.contiguous(), s = sin.contiguous();
    auto heads = [&](int64_t n) { return at::empty({x.size(0), n, 2 * cos.size(1)}, x.options()); };
    const at::Tensor q = heads(hq), k = heads(hk), v = heads(hk);
    run(rows, c, s, q, k, v, at::Tensor(), 0);
    if (ctx != nullptr) ctx->save_for_backward({c, s});
    return {q, k, v};
  }
  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor q = grads[0].contiguous(), k = grads[1].contiguous(), v = grads[2].contiguous();
    const at::Tensor dx = at::empty({q.size(0), (q.size(1) + 2 * k.size(1)) * q.size(2)}, q.options());
    run(dx, saved[0], saved[1], q, k, v, at::Tensor(), 1);
    return {dx, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

at::Tensor rope(const at::Tensor &x, const at::Tensor &cos, const at::Tensor &sin) {
  TORCH_CHECK(x.dim() == 3 && x.size(2) % 2 == 0 && cos.sizes() == sin.sizes() && cos.sizes() == at::IntArrayRef({x.size(0), x.size(2) / 2}),
              "rope: x ", x.sizes(), ", cos ", cos.sizes(), ", sin ", sin.sizes(), ": want [N, H, D] and twice [N, D/2]");
  if (fused(x, {}) && cos.device() == x.device() && cos.scalar_type() == at::kFloat && sin.device() == x.device() && sin.scalar_type() == at::kFloat)
    return recorded({&x}) ? Rope::apply(x, cos, sin) : Rope::forward(nullptr, x, cos, sin);
  const int64_t half = x.size(2) / 2;
  at::Tensor f = x.scalar_type() == at::kDouble ? x : x.to(at::kFloat), c = cos.unsqueeze(1), s = sin.unsqueeze(1);
  at::Tensor a = f.narrow(2, 0, half), b = f.narrow(2, half, half);
  return at::cat({a * c - b * s, b * c + a * s}, 2).to(x.scalar_type());
}

}  // namespace

extern "C" {

const char *fc_rms_norm(Tensor x, Tensor weight, double eps, Tensor *out) {
  return guard([&] {
    TORCH_CHECK(weight->dim() == 1 && x->dim() > 0 && x->size(-1) == weight->size(0), "rms_norm: x ", x->sizes(), ", weight ", weight->sizes());
    *out = wrap(rms_norm(*x, *weight, eps));
  });
}

const char *fc_add_rms_norm(Tensor x, Tensor delta, Tensor weight, double eps, Tensor *total, Tensor *out) {
  return guard([&] {
    TORCH_CHECK(x->sizes() == delta->sizes() && weight->dim() == 1 && x->dim() > 0 && x->size(-1) == weight->size(0), "add_rms_norm: x ", x->sizes(), ", delta ",
                delta->sizes(), ", weight ", weight->sizes());
    if (fused(*x, {delta, weight})) {
      variable_list both =
          recorded({x, delta, weight}) ? AddRMSNorm::apply(*x, *delta, *weight, eps) : AddRMSNorm::forward(nullptr, *x, *delta, *weight, eps);
      *total = wrap(both[0]);
      *out = wrap(both[1]);
      return;
    }
    at::Tensor t = *x + *delta;
    *out = wrap(rms_norm(t, *weight, eps));
    *total = wrap(t);
  });
}

const char *fc_swiglu(Tensor gate, Tensor up, Tensor *out) {
  return guard([&] {
    TORCH_CHECK(gate->sizes() == up->sizes(), "swiglu: gate ", gate->sizes(), ", up ", up->sizes());
    if (!fused(*gate, {up}))
      *out = wrap(at::silu(*gate) * *up);
    else
      *out = wrap(recorded({gate, up}) ? SwiGLU::apply(*gate, *up) : SwiGLU::forward(nullptr, *gate, *up));
  });
}

const char *fc_rope(Tensor x, Tensor cos, Tensor sin, Tensor *out) {
  return guard([&] { *out = wrap(rope(*x, *cos, *sin)); });
}

const char *fc_block_diag(Tensor *blocks, int64_t n, Tensor *out) {
  return guard([&] {
    std::vector<at::Tensor> list;
    for (int64_t i = 0; i < n; i++) list.push_back(*blocks[i]);
    *out = wrap(at::block_diag(list));
  });
}

const char *fc_swiglu_pair(Tensor x, Tensor *out) {
  return guard([&] {
    TORCH_CHECK(x->dim() == 2 && x->size(1) % 2 == 0, "swiglu_pair: x ", x->sizes(), ": want [N, 2F]");
    if (cuda::runs(*x)) {
      *out = wrap(recorded({x}) ? SwiGLUPair::apply(*x) : SwiGLUPair::forward(nullptr, *x));
      return;
    }
    const auto halves = x->chunk(2, 1);
    *out = wrap(at::silu(halves[0]) * halves[1]);
  });
}

const char *fc_rope_heads(Tensor x, Tensor cos, Tensor sin, int64_t hq, int64_t hk, Tensor k_cache, Tensor v_cache, Tensor at, Tensor *q, Tensor *k, Tensor *v) {
  return guard([&] {
    const int64_t n = x->size(0), d = 2 * cos->size(1);
    TORCH_CHECK(x->dim() == 2 && x->size(1) == (hq + 2 * hk) * d && cos->sizes() == sin->sizes() && cos->sizes() == at::IntArrayRef({n, d / 2}), "rope_heads: x ", x->sizes(), ", cos ",
                cos->sizes(), ", sin ", sin->sizes(), ": want [N, (", hq, " + 2·", hk, ")·D] and twice [N, D/2]");
    const bool into = k_cache != nullptr, fits = cuda::runs(*x) && cos->is_cuda() && cos->scalar_type() == at::kFloat && sin->is_cuda() && sin->scalar_type() == at::kFloat;
    if (into && fits && k_cache->scalar_type() == x->scalar_type() && k_cache->is_contiguous() && v_cache->is_contiguous()) {
      TORCH_CHECK(k_cache->size(2) == d && at->sizes() == at::IntArrayRef({n}) && at->scalar_type() == at::kLong, "rope_heads: caches ", k_cache->sizes(), ", rows ", at->sizes());
      const at::Tensor turned = at::empty({n, hq, d}, x->options());
      RopeHeads::run(x->contiguous(), cos->contiguous(), sin->contiguous(), turned, *k_cache, *v_cache, at->contiguous(), 0);
      *q = wrap(turned);
      return;
    }
    variable_list all;
    if (fits) {
      all = recorded({x}) ? RopeHeads::apply(*x, *cos, *sin, hq, hk) : RopeHeads::forward(nullptr, *x, *cos, *sin, hq, hk);
    } else {
      const auto parts = x->split_with_sizes({hq * d, hk * d, hk * d}, 1);
      all = {rope(parts[0].reshape({n, hq, d}), *cos, *sin), rope(parts[1].reshape({n, hk, d}), *cos, *sin), parts[2].reshape({n, hk, d})};
    }
    *q = wrap(all[0]);
    if (into) {
      at::NoGradGuard no_grad;
      k_cache->index_copy_(0, *at, all[1].to(k_cache->scalar_type()));
      v_cache->index_copy_(0, *at, all[2].to(v_cache->scalar_type()));
      return;
    }
    *k = wrap(all[1]);
    *v = wrap(all[2]);
  });
}

const char *fc_write_rows_at(Tensor dst, Tensor rows, Tensor src) {
  return guard([&] {
    at::NoGradGuard no_grad;
    dst->index_copy_(0, *rows, src->scalar_type() == dst->scalar_type() ? *src : src->to(dst->scalar_type()));
  });
}

}  // extern "C"
