// A language model's head: log-probabilities, entropies and divergences of rows over the vocabulary.
//
// The logits of all rows are the largest tensor of a training step (at a vocabulary of 152k, 0.6 MB a row, and composed
// operations keep three of them). On the CPU in float32 they never exist at once: a tile of the vocabulary at a time,
//
//	Z = hidden·W[tile]ᵀ / T      [rows, tile], small enough for the cache
//
// updates each row's running maximum, Σ e^z and Σ z e^z. Backward does the tile again from the row's log Σ e^z, or
// takes it from memory where all logits fit kKeep, and adds dZ·W[tile] to the gradient of hidden and dZᵀ·hidden to that
// of W, each row of which is touched once. On CUDA the logits of a chunk of rows, in float32 by one product, are read once
// forward; backward makes them again and turns them into dZ in one pass.
#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "cuda_kernels.h"
#include "guard.h"
#include "linear.h"
#include "wide.h"
#include "simd.h"

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kRows = 512;       // rows of a block
constexpr int64_t kTile = 1024;      // tokens of a tile: with kRows 2 MB of logits
constexpr int64_t kKeep = 64 << 20;  // logits kept for backward: 256 MB in float32
constexpr int64_t kCUDALogits = 256 << 20;  // logits of a chunk of rows on CUDA: 1 GB
constexpr int64_t kElements = 32 << 20;  // logits of a chunk of rows where libtorch's operations do the work

// What is known of a row's distribution so far: all with z - top in place of z.
struct Running {
  float top = -INFINITY, total = 0, dot = 0;  // max z, Σ e^(z-top), Σ e^(z-top) (z-top)
};

// Takes in n more logits.
FULCRUM_SIMD void take(const float *z, int64_t n, Running *r) {
  const int64_t whole = n / kLanes * kLanes;
  vf rest = fill(-INFINITY), top = rest;
  for (int64_t j = whole; j < n; j++) rest[j - whole] = z[j];
  for (int64_t j = 0; j < whole; j += kLanes) top = max(load(z + j), top);
  top = max(rest, top);
  float high = r->top;
  for (int l = 0; l < kLanes; l++) high = top[l] > high ? top[l] : high;
  vf total = fill(0), dot = fill(0);
  for (int64_t j = 0; j < whole; j += kLanes) {
    const vf d = load(z + j) - high, e = exp(d);
    total += e;
    dot += e * d;
  }
  if (whole < n) {
    const vf d = rest - high, e = exp(d);  // e^-87 where the row has ended
    for (int64_t l = 0; l < n - whole; l++) {
      total[l] += e[l];
      dot[l] += e[l] * d[l];
    }
  }
  if (r->top > -INFINITY) {
    const float shift = r->top - high, f = std::exp(shift);
    r->dot = (r->dot + r->total * shift) * f;
    r->total *= f;
  }
  r->top = high;
  r->total += sum(total);
  r->dot += sum(dot);
}

// out = e^(z-lse) (a + b (z - lse)): the gradient of -a' lse and of the entropy, over n logits of a row.
FULCRUM_SIMD void gradient_row(const float *z, float *out, int64_t n, float lse, float a, float b) {
  const int64_t whole = n / kLanes * kLanes;
  for (int64_t j = 0; j < whole; j += kLanes) {
    const vf d = load(z + j) - lse;
    store(out + j, exp(d) * (a + b * d));
  }
  if (whole < n) {
    vf d = fill(0);
    for (int64_t j = whole; j < n; j++) d[j - whole] = z[j] - lse;
    const vf e = exp(d) * (a + b * d);
    for (int64_t j = whole; j < n; j++) out[j] = e[j - whole];
  }
}

// Σ e^(z-lse) (z - lse - ref + ref_lse) over n logits of a row.
FULCRUM_SIMD float divergence_row(const float *z, const float *ref, int64_t n, float lse, float ref_lse) {
  const int64_t whole = n / kLanes * kLanes;
  vf total = fill(0);
  for (int64_t j = 0; j < whole; j += kLanes) {
    const vf d = load(z + j) - lse;
    total += exp(d) * (d - load(ref + j) + ref_lse);
  }
  float s = sum(total);
  for (int64_t j = whole; j < n; j++) {
    const float d = z[j] - lse;
    s += std::exp(d) * (d - ref[j] + ref_lse);
  }
  return s;
}

bool fused(const at::Tensor &hidden, const at::Tensor &weight) { return hidden.is_cpu() && hidden.scalar_type() == at::kFloat && weight.is_cpu(); }

// The rows at … at+n of a weight in float32.
at::Tensor tile_of(const at::Tensor &weight, int64_t at, int64_t n) { return weight.narrow(0, at, n).to(at::kFloat); }

// hidden·W[tile]ᵀ/T into out.
void logits(const at::Tensor &hidden, const at::Tensor &w, float inverse, at::Tensor &out) {
  at::mm_out(out, hidden, w.t());
  if (inverse != 1) out.mul_(inverse);
}

// Calls f(first row, rows, first token, tokens) for each tile of each block of rows.
template <class F>
void each_tile(int64_t rows, int64_t vocabulary, F f) {
  for (int64_t i = 0; i < rows; i += kRows)
    for (int64_t v = 0; v < vocabulary; v += kTile) f(i, std::min(kRows, rows - i), v, std::min(kTile, vocabulary - v));
}

// Memory for one tile at a time.
struct TileBuffer {
  at::Tensor memory;
  explicit TileBuffer(const at::Tensor &like) : memory(at::empty({kRows * kTile}, like.options())) {}
  at::Tensor of(int64_t rows, int64_t n) { return memory.narrow(0, 0, rows * n).view({rows, n}); }
};

// log π of each row's target and the entropy. With a graph, `kept` holds the tiles' logits one after another.
struct TokenLogp : torch::autograd::Function<TokenLogp> {
  static variable_list forward(AutogradContext *ctx, at::Tensor hidden_in, at::Tensor weight, at::Tensor targets_in, double temperature) {
    at::Tensor hidden = hidden_in.contiguous(), targets = targets_in.contiguous();
    const int64_t rows = hidden.size(0), vocabulary = weight.size(0);
    const bool keep = ctx != nullptr && rows * vocabulary <= kKeep;
    at::Tensor logp = at::empty({rows}, hidden.options()), entropy = at::empty_like(logp), lse = at::empty_like(logp), kept;
    const int64_t *tp = targets.data_ptr<int64_t>();
    for (int64_t i = 0; i < rows; i++) TORCH_CHECK(tp[i] >= 0 && tp[i] < vocabulary, "token_logp: target ", tp[i], " of row ", i, " lies outside of ", vocabulary, " tokens");
    float *lp = logp.data_ptr<float>(), *ep = entropy.data_ptr<float>(), *sp = lse.data_ptr<float>();
    if (keep) kept = at::empty({rows * vocabulary}, hidden.options());
    TileBuffer buffer(keep ? hidden.narrow(0, 0, 0) : hidden);
    std::vector<Running> running(rows);
    int64_t at = 0;
    each_tile(rows, vocabulary, [&](int64_t i, int64_t n, int64_t v, int64_t width) {
      at::Tensor z = keep ? kept.narrow(0, at, n * width).view({n, width}) : buffer.of(n, width);
      at += n * width;
      logits(hidden.narrow(0, i, n), tile_of(weight, v, width), static_cast<float>(1 / temperature), z);
      const float *zp = z.data_ptr<float>();
      at::parallel_for(0, n, 16, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; r++) {
          take(zp + r * width, width, &running[i + r]);
          const int64_t t = tp[i + r] - v;
          if (t >= 0 && t < width) lp[i + r] = zp[r * width + t];
        }
      });
    });
    for (int64_t i = 0; i < rows; i++) {
      const Running &r = running[i];
      sp[i] = r.top + std::log(r.total);
      lp[i] -= sp[i];
      ep[i] = std::log(r.total) - r.dot / r.total;
    }
    if (ctx == nullptr) return {logp, entropy};
    ctx->save_for_backward({hidden, weight, targets, lse, entropy, kept});
    ctx->saved_data["weight_grad"] = buffer_of(weight);
    ctx->saved_data["temperature"] = temperature;
    ctx->saved_data["needs_hidden"] = hidden_in.requires_grad();
    ctx->set_materialize_grads(false);
    return {logp, entropy};
  }

  static c10::IValue buffer_of(const at::Tensor &w) { return ::buffer(w); }

  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &hidden = saved[0], &weight = saved[1], &targets = saved[2], &lse = saved[3], &entropy = saved[4], &kept = saved[5];
    const int64_t rows = hidden.size(0), vocabulary = weight.size(0);
    const float inverse = static_cast<float>(1 / ctx->saved_data["temperature"].toDouble());
    at::Tensor g = grads[0].defined() ? grads[0].contiguous() : at::zeros_like(lse), h = grads[1].defined() ? grads[1].contiguous() : at::Tensor();
    const float *gp = g.data_ptr<float>(), *hp = h.defined() ? h.data_ptr<float>() : nullptr, *sp = lse.data_ptr<float>(), *ep = entropy.data_ptr<float>();
    const int64_t *tp = targets.data_ptr<int64_t>();
    at::Tensor dhidden, dweight;
    if (ctx->saved_data["needs_hidden"].toBool()) dhidden = at::zeros_like(hidden);
    if (weight.requires_grad()) {
      const c10::IValue into = ctx->saved_data["weight_grad"];
      dweight = into.isNone() ? at::zeros_like(weight) : into.toTensor();
    }
    TileBuffer buffer(hidden);
    int64_t at = 0;
    each_tile(rows, vocabulary, [&](int64_t i, int64_t n, int64_t v, int64_t width) {
      at::Tensor w = tile_of(weight, v, width), block = hidden.narrow(0, i, n), dz = buffer.of(n, width), z = dz;
      if (kept.defined()) {
        z = kept.narrow(0, at, n * width).view({n, width});
        at += n * width;
      } else {
        logits(block, w, inverse, z);
      }
      const float *zp = z.data_ptr<float>();
      float *dp = dz.data_ptr<float>();
      at::parallel_for(0, n, 16, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; r++) {  // d logp = onehot - p, d entropy = -p (log p + entropy), both over T
          const int64_t row = i + r, t = tp[row] - v;
          const float along = hp == nullptr ? 0 : -hp[row] * inverse;
          gradient_row(zp + r * width, dp + r * width, width, sp[row], -gp[row] * inverse + along * ep[row], along);
          if (t >= 0 && t < width) dp[r * width + t] += gp[row] * inverse;
        }
      });
      if (dhidden.defined()) dhidden.narrow(0, i, n).addmm_(dz, w);
      if (dweight.defined()) {
        at::Tensor to = dweight.narrow(0, v, width);
        if (to.scalar_type() == at::kFloat)
          to.addmm_(dz.t(), block);
        else
          to.add_(at::mm(dz.t(), block));
      }
    });
    return {dhidden, ctx->saved_data["weight_grad"].isNone() ? dweight : at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

// --- on CUDA (kernels_vocabulary.cu)

constexpr int64_t kThreads = 512;  // of a row

bool on_cuda(const at::Tensor &hidden, const at::Tensor &weight) { return cuda::runs(hidden) && weight.is_cuda(); }

// Calls f(first row, rows) for each chunk whose logits fit kCUDALogits.
template <class F>
void each_chunk(int64_t rows, int64_t vocabulary, F f) {
  const int64_t step = std::max<int64_t>(16, kCUDALogits / vocabulary);
  for (int64_t i = 0; i < rows; i += step) f(i, std::min(step, rows - i));
}

at::Tensor in_type_of(const at::Tensor &weight, const at::Tensor &hidden) {
  return weight.scalar_type() == hidden.scalar_type() ? weight : weight.to(hidden.scalar_type());
}

struct TokenLogpCUDA : torch::autograd::Function<TokenLogpCUDA> {
  static variable_list forward(AutogradContext *ctx, at::Tensor hidden_in, at::Tensor weight, at::Tensor targets_in, double temperature) {
    at::Tensor hidden = hidden_in.contiguous(), targets = targets_in.to(hidden.device()).contiguous(), w = in_type_of(weight, hidden);
    const int64_t rows = hidden.size(0), vocabulary = w.size(0);
    at::Tensor logp = at::empty({rows}, hidden.options().dtype(at::kFloat)), entropy = at::empty_like(logp), lse = at::empty_like(logp);
    each_chunk(rows, vocabulary, [&](int64_t i, int64_t n) {
      const at::Tensor z = float_product(hidden.narrow(0, i, n), w.t());
      const cuda::Kernel kernel{"token_stats", z, cuda::wide(vocabulary, {&z})};
      cuda::run(kernel, n, 1, kThreads, z, targets.narrow(0, i, n), logp.narrow(0, i, n), entropy.narrow(0, i, n), lse.narrow(0, i, n), vocabulary,
                static_cast<float>(1 / temperature));
    });
    if (ctx == nullptr) return {logp, entropy};
    ctx->save_for_backward({hidden, weight, targets, lse, entropy});
    ctx->saved_data["weight_grad"] = buffer(weight);
    ctx->saved_data["temperature"] = temperature;
    ctx->saved_data["needs_hidden"] = hidden_in.requires_grad();
    ctx->set_materialize_grads(false);
    return {logp, entropy};
  }

  // The kernel that writes the gradient of float32 logits in a type.
  static const char *kernel_to(at::ScalarType type) {
    return type == at::kFloat ? "token_back" : type == at::kBFloat16 ? "token_back_bf16" : "token_back_f16";
  }

  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &hidden = saved[0], &targets = saved[2], &lse = saved[3], &entropy = saved[4];
    const at::Tensor w = in_type_of(saved[1], hidden);
    const int64_t rows = hidden.size(0), vocabulary = w.size(0);
    const float inverse = static_cast<float>(1 / ctx->saved_data["temperature"].toDouble());
    const at::Tensor g = grads[0].defined() ? grads[0].contiguous() : at::Tensor(), h = grads[1].defined() ? grads[1].contiguous() : at::Tensor();
    at::Tensor dhidden, dweight;
    if (ctx->saved_data["needs_hidden"].toBool()) dhidden = at::empty_like(hidden);
    const c10::IValue into = ctx->saved_data["weight_grad"];
    if (saved[1].requires_grad()) dweight = into.isNone() ? at::zeros(w.sizes(), lse.options()) : into.toTensor();
    each_chunk(rows, vocabulary, [&](int64_t i, int64_t n) {
      const auto part = [&](const at::Tensor &x) { return x.defined() ? x.narrow(0, i, n) : x; };
      const at::Tensor block = hidden.narrow(0, i, n), z = float_product(block, w.t());
      const at::Tensor dz = hidden.scalar_type() == at::kFloat ? z : at::empty(z.sizes(), hidden.options());
      const cuda::Kernel kernel{kernel_to(dz.scalar_type()), z, cuda::wide(vocabulary, {&z})};
      cuda::run(kernel, n, 1, kThreads, z, part(targets), part(g), part(h), part(entropy), part(lse), dz, vocabulary, inverse);
      if (dhidden.defined()) {
        at::Tensor to = part(dhidden);
        at::mm_out(to, dz, w);
      }
      if (dweight.defined()) add_product(dweight, dz.t(), block, 1);
    });
    if (dweight.defined()) dweight = into.isNone() ? dweight.to(saved[1].scalar_type()) : at::Tensor();
    return {dhidden, dweight, at::Tensor(), at::Tensor()};
  }
};

// --- from libtorch's operations, in chunks of rows: other types and devices

at::Tensor log_probs(const at::Tensor &hidden, const at::Tensor &weight, double temperature) {
  at::Tensor z = at::linear(hidden, weight.scalar_type() == hidden.scalar_type() ? weight : weight.to(hidden.scalar_type()));
  z = z.to(wide(z, Wide::vocabulary));
  if (temperature != 1) z = z.div(temperature);
  return z.log_softmax(-1);
}

variable_list chunk(const at::Tensor &hidden, const at::Tensor &weight, const at::Tensor &targets, double temperature) {
  at::Tensor z = log_probs(hidden, weight, temperature);
  return {z.gather(1, targets.unsqueeze(1)).squeeze(1), -(z.exp() * z).sum(-1)};
}

int64_t chunk_rows(int64_t vocabulary) { return std::max<int64_t>(16, kElements / vocabulary); }

// Forward without a graph, backward through a chunk's own graph.
struct TokenLogpChunks : torch::autograd::Function<TokenLogpChunks> {
  static variable_list forward(AutogradContext *ctx, at::Tensor hidden, at::Tensor weight, at::Tensor targets, double temperature) {
    const int64_t rows = hidden.size(0), step = chunk_rows(weight.size(0));
    std::vector<at::Tensor> logp, entropy;
    for (int64_t i = 0; i < rows; i += step) {
      const int64_t n = std::min(step, rows - i);
      variable_list part = chunk(hidden.narrow(0, i, n), weight, targets.narrow(0, i, n), temperature);
      logp.push_back(part[0]);
      entropy.push_back(part[1]);
    }
    ctx->save_for_backward({hidden, weight, targets});
    ctx->saved_data["weight_grad"] = buffer(weight);
    ctx->saved_data["temperature"] = temperature;
    ctx->saved_data["needs_hidden"] = hidden.requires_grad();
    return {at::cat(logp), at::cat(entropy)};
  }
  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &hidden = saved[0], &weight = saved[1], &targets = saved[2];
    const bool needs_hidden = ctx->saved_data["needs_hidden"].toBool(), needs_weight = weight.requires_grad();
    const int64_t rows = hidden.size(0), step = chunk_rows(weight.size(0));
    at::AutoGradMode grad(true);
    at::Tensor w = weight.detach().requires_grad_(needs_weight), dweight;
    std::vector<at::Tensor> dhidden;
    for (int64_t i = 0; i < rows; i += step) {
      const int64_t n = std::min(step, rows - i);
      at::Tensor h = hidden.narrow(0, i, n).detach().requires_grad_(needs_hidden);
      variable_list part = chunk(h, w, targets.narrow(0, i, n), ctx->saved_data["temperature"].toDouble()), inputs;
      if (needs_hidden) inputs.push_back(h);
      if (needs_weight) inputs.push_back(w);
      variable_list d = torch::autograd::grad(part, inputs, {grads[0].narrow(0, i, n), grads[1].narrow(0, i, n)});
      if (needs_hidden) dhidden.push_back(d[0]);
      if (needs_weight) dweight = dweight.defined() ? dweight + d.back() : d.back();
    }
    if (needs_weight) {
      at::NoGradGuard no_grad;
      dweight = into(ctx->saved_data["weight_grad"], dweight);
    }
    return {needs_hidden ? at::cat(dhidden) : at::Tensor(), dweight, at::Tensor(), at::Tensor()};
  }
};

// --- KL(π ‖ reference), without gradient

at::Tensor kl_tiles(const at::Tensor &hidden, const at::Tensor &weight, const at::Tensor &ref_hidden, const at::Tensor &ref_weight) {
  const int64_t rows = hidden.size(0), vocabulary = weight.size(0);
  at::Tensor kl = at::zeros({rows}, hidden.options());
  float *out = kl.data_ptr<float>();
  TileBuffer buffer(hidden), ref_buffer(hidden);
  std::vector<Running> running(rows), ref(rows);
  for (int pass = 0; pass < 2; pass++)  // log Σ e^z of both, then the divergence
    each_tile(rows, vocabulary, [&](int64_t i, int64_t n, int64_t v, int64_t width) {
      at::Tensor z = buffer.of(n, width), y = ref_buffer.of(n, width);
      logits(hidden.narrow(0, i, n), tile_of(weight, v, width), 1, z);
      logits(ref_hidden.narrow(0, i, n), tile_of(ref_weight, v, width), 1, y);
      const float *zp = z.data_ptr<float>(), *yp = y.data_ptr<float>();
      at::parallel_for(0, n, 16, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; r++) {
          Running &a = running[i + r], &b = ref[i + r];
          if (pass == 0) {
            take(zp + r * width, width, &a);
            take(yp + r * width, width, &b);
          } else {
            out[i + r] += divergence_row(zp + r * width, yp + r * width, width, a.top + std::log(a.total), b.top + std::log(b.total));
          }
        }
      });
    });
  return kl;
}

at::Tensor kl_chunks(const at::Tensor &hidden, const at::Tensor &weight, const at::Tensor &ref_hidden, const at::Tensor &ref_weight) {
  const int64_t rows = hidden.size(0), step = chunk_rows(weight.size(0));
  std::vector<at::Tensor> parts;
  for (int64_t i = 0; i < rows; i += step) {
    const int64_t n = std::min(step, rows - i);
    at::Tensor p = log_probs(hidden.narrow(0, i, n), weight, 1), r = log_probs(ref_hidden.narrow(0, i, n), ref_weight, 1);
    parts.push_back((p.exp() * (p - r)).sum(-1));
  }
  return at::cat(parts);
}

at::Tensor kl_cuda(const at::Tensor &hidden, const at::Tensor &weight, const at::Tensor &ref_hidden, const at::Tensor &ref_weight) {
  const int64_t rows = hidden.size(0), vocabulary = weight.size(0);
  const at::Tensor w = in_type_of(weight, hidden), ref_w = in_type_of(ref_weight, ref_hidden);
  at::Tensor kl = at::empty({rows}, hidden.options().dtype(at::kFloat));
  each_chunk(rows, vocabulary, [&](int64_t i, int64_t n) {
    const at::Tensor z = float_product(hidden.narrow(0, i, n), w.t()), y = float_product(ref_hidden.narrow(0, i, n), ref_w.t());
    const cuda::Kernel kernel{"token_kl", z, cuda::wide(vocabulary, {&z, &y})};
    cuda::run(kernel, n, 1, kThreads, z, y, kl.narrow(0, i, n), vocabulary);
  });
  return kl;
}

}  // namespace

extern "C" {

const char *fc_token_logp(Tensor hidden, Tensor weight, Tensor targets, double temperature, Tensor *logp, Tensor *entropy) {
  return guard([&] {
    TORCH_CHECK(hidden->dim() == 2 && weight->dim() == 2 && hidden->size(1) == weight->size(1) && targets->sizes() == at::IntArrayRef({hidden->size(0)}) &&
                    targets->scalar_type() == at::kLong && hidden->size(0) > 0,
                "token_logp: hidden ", hidden->sizes(), ", weight ", weight->sizes(), ", targets ", targets->sizes(), ": want [N, H], [V, H] and int64 [N]");
    TORCH_CHECK(temperature > 0, "token_logp: temperature ", temperature);
    variable_list out;
    if (on_cuda(*hidden, *weight))
      out = recorded({hidden, weight}) ? TokenLogpCUDA::apply(*hidden, *weight, *targets, temperature)
                                       : TokenLogpCUDA::forward(nullptr, *hidden, *weight, *targets, temperature);
    else if (!fused(*hidden, *weight))
      out = TokenLogpChunks::apply(*hidden, *weight, *targets, temperature);
    else
      out = recorded({hidden, weight}) ? TokenLogp::apply(*hidden, *weight, *targets, temperature) : TokenLogp::forward(nullptr, *hidden, *weight, *targets, temperature);
    *logp = wrap(out[0]);
    *entropy = wrap(out[1]);
  });
}

const char *fc_token_kl(Tensor hidden, Tensor weight, Tensor ref_hidden, Tensor ref_weight, Tensor *out) {
  return guard([&] {
    at::NoGradGuard no_grad;
    TORCH_CHECK(hidden->dim() == 2 && weight->dim() == 2 && hidden->sizes() == ref_hidden->sizes() && weight->sizes() == ref_weight->sizes() &&
                    hidden->size(1) == weight->size(1) && hidden->size(0) > 0,
                "token_kl: hidden ", hidden->sizes(), " and ", ref_hidden->sizes(), ", weight ", weight->sizes(), " and ", ref_weight->sizes());
    if (on_cuda(*hidden, *weight) && on_cuda(*ref_hidden, *ref_weight)) {
      *out = wrap(kl_cuda(*hidden, *weight, *ref_hidden, *ref_weight));
      return;
    }
    const bool tiles = fused(*hidden, *weight) && fused(*ref_hidden, *ref_weight);
    *out = wrap(tiles ? kl_tiles(hidden->contiguous(), *weight, ref_hidden->contiguous(), *ref_weight) : kl_chunks(*hidden, *weight, *ref_hidden, *ref_weight));
  });
}

}  // extern "C"
