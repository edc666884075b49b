// Tokens drawn on the device that holds the logits, by the rules of SampleTokens (sample.go), which draws them on the host.
//
// Nothing here waits for the device or copies from the host, so that a graph may record it: at::where takes no numbers.
//
// The plain case, nothing but a temperature and a few suppressed ids, reads a row of the vocabulary three times: the
// softmax, the sums of its blocks, and the one block that holds the token. A running sum over the whole row in float64
// would be ten times the traffic. On CUDA one kernel does all of it (kernels_draw.cu), but for greedy tokens.
#include "sample.h"

#include "cuda_kernels.h"
#include "guard.h"

namespace {

constexpr int64_t kBlock = 1024;  // tokens of a block of the running sum
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// softmax(z / temperature); the difference to the largest is taken first, so that extreme temperatures cost no digits.
at::Tensor softmax_at(const at::Tensor &z, double temperature) {
  return at::softmax(temperature == 1 ? z : (z - z.amax(1, true)).div_(temperature), 1);
}

// Per row, how many of ascending numbers [R, n] are at most x [R, 1].
at::Tensor count_at_most(const at::Tensor &ascending, const at::Tensor &x) { return ascending.le(x).sum(1, true); }

// Per row, the last place where w [R, n] is positive, [R, 1].
at::Tensor last_positive(const at::Tensor &w) {
  return (w.gt(0) * at::arange(w.size(1), w.options().dtype(at::kLong))).amax(1, true);
}

// The token of each row at the share u [R, 1] of the row's weight; w [R, V] float32. Sums are float64: blocks first, then
// within the block. Where rounding leads behind the last token with a weight, it is that one.
at::Tensor at_share(const at::Tensor &w, const at::Tensor &u) {
  const int64_t rows = w.size(0), size = w.size(1), whole = size / kBlock;
  std::vector<at::Tensor> sums;
  if (whole > 0) sums.push_back(w.narrow(1, 0, whole * kBlock).view({rows, whole, kBlock}).sum(2, false, at::kDouble));
  if (whole * kBlock < size) sums.push_back(w.narrow(1, whole * kBlock, size - whole * kBlock).sum(1, true, at::kDouble));
  const at::Tensor blocks = at::cat(sums, 1), until = blocks.cumsum(1);  // [R, blocks]
  const at::Tensor target = u * until.narrow(1, until.size(1) - 1, 1);
  const at::Tensor block = at::minimum(count_at_most(until, target), last_positive(blocks));  // [R, 1]
  const at::Tensor left = target - (until.gather(1, block) - blocks.gather(1, block));
  const at::Tensor places = block * kBlock + at::arange(std::min(kBlock, size), block.options());  // [R, 1024]
  const at::Tensor inside = w.gather(1, places.clamp_max(size - 1)).to(at::kDouble).masked_fill_(places.ge(size), 0);
  return block * kBlock + at::minimum(count_at_most(inside.cumsum(1), left), last_positive(inside));
}

// The nucleus: w with zeros outside the smallest set of most probable tokens whose weight reaches top_p. Equal ones leave by
// id, the lowest first. z orders as w does, without its underflow.
at::Tensor nucleus(const at::Tensor &w, const at::Tensor &z, double top_p) {
  const at::Tensor order = std::get<1>(at::sort(z, /*stable=*/true, 1, /*descending=*/false));
  const at::Tensor sorted = w.gather(1, order), until = sorted.cumsum(1, at::kDouble);
  const at::Tensor kept = sorted.masked_fill(until.le((1 - top_p) * until.narrow(1, -1, 1)), 0);
  kept.narrow(1, -1, 1).copy_(sorted.narrow(1, -1, 1));  // the most probable one always stays
  return at::empty_like(w).scatter_(1, order, kept);
}

struct Drawn {
  at::Tensor ids, kept, logp;
};

// With a penalty, top-k or top-p: both distributions as they are.
Drawn draw_shaped(at::Tensor z, const at::Tensor *seen, const at::Tensor *suppress, const at::Tensor &u, double temperature, double top_p, int64_t top_k,
                  double penalty) {
  const at::Tensor own = softmax_at(z, temperature);
  if (seen != nullptr) z = at::where(*seen, at::where(z.lt(0), z * penalty, z / penalty), z);
  if (suppress != nullptr) z.index_fill_(1, *suppress, -kInfinity);
  if (top_k > 0 && top_k < z.size(1)) {
    const at::Tensor least = std::get<0>(z.topk(top_k, 1)).narrow(1, -1, 1);
    z = z.masked_fill(z.lt(least), -kInfinity);
  }
  at::Tensor q = softmax_at(z, temperature);
  if (top_p > 0 && top_p < 1) q = nucleus(q, z, top_p);
  const at::Tensor ids = at_share(q, u);
  const at::Tensor kept = at::minimum(own, q / q.sum(1, true)).sum(1, false, at::kDouble).clamp_max(1);
  return {ids.squeeze(1), kept, own.gather(1, ids).squeeze(1).to(at::kDouble).log()};
}

// Without: what is suppressed is all that leaves the row's own distribution.
Drawn draw_plain(at::Tensor z, const at::Tensor *suppress, const at::Tensor &u, double temperature) {
  at::Tensor lost;
  if (suppress != nullptr) {
    lost = z.index_select(1, *suppress).to(at::kDouble);
    z.index_fill_(1, *suppress, -kInfinity);
  }
  const at::Tensor p = softmax_at(z, temperature), ids = at_share(p, u);
  at::Tensor logp = p.gather(1, ids).to(at::kDouble).log(), kept = at::ones_like(logp);  // [R, 1]
  if (suppress != nullptr) {
    const at::Tensor chosen = z.gather(1, ids).to(at::kDouble);
    kept = ((lost - chosen) / temperature + logp).exp().sum(1, true).add_(1).reciprocal_();  // Σ e^z without the lost over Σ e^z
    logp = logp + kept.log();
  }
  return {ids.squeeze(1), kept.squeeze(1), logp.squeeze(1)};
}

constexpr int64_t kKernelTokens = 1024 * 512;  // of a row, that the kernel has room for

Drawn draw_kernel(const at::Tensor &z, const at::Tensor *seen, const at::Tensor *suppress, const at::Tensor &u, double temperature, double top_p, int64_t top_k,
                  double penalty) {
  const at::Tensor none, marks = seen == nullptr ? none : seen->contiguous(), never = suppress == nullptr ? none : suppress->contiguous(), share = u.contiguous();
  Drawn d{at::empty({z.size(0)}, z.options().dtype(at::kLong)), at::empty({z.size(0)}, z.options().dtype(at::kDouble)), at::Tensor()};
  d.logp = at::empty_like(d.kept);
  const cuda::Kernel kernel{"draw", z, cuda::wide(z.size(1), {&z})};
  cuda::run(kernel, z.size(0), 1, 512, z, marks, never, share, d.ids, d.kept, d.logp, z.size(1), never.defined() ? never.numel() : int64_t{0},
            static_cast<float>(1 / temperature), static_cast<float>(penalty), top_k, top_p);
  return d;
}

Drawn draw_greedy(at::Tensor z, const at::Tensor *seen, const at::Tensor *suppress, double penalty, bool scored) {
  const at::Tensor own = scored ? z.log_softmax(1) : at::Tensor();
  if (seen != nullptr) z = at::where(*seen, at::where(z.lt(0), z * penalty, z / penalty), z);
  if (suppress != nullptr) z.index_fill_(1, *suppress, -kInfinity);
  const at::Tensor ids = z.argmax(1, true);
  return {ids.squeeze(1), at::Tensor(), scored ? own.gather(1, ids).squeeze(1).to(at::kDouble) : at::Tensor()};
}

}  // namespace

extern "C" {

const char *fc_draw_tokens(Tensor logits, Tensor seen, Tensor suppress, Tensor uniforms, double temperature, double top_p, int64_t top_k, double penalty,
                           bool scored, Tensor *ids, Tensor *kept, Tensor *logp) {
  return guard([&] {
    at::NoGradGuard no_grad;
    TORCH_CHECK(logits->dim() == 2 && logits->scalar_type() == at::kFloat && logits->numel() > 0, "draw: logits ", logits->sizes(), " ", logits->scalar_type());
    TORCH_CHECK(uniforms == nullptr || uniforms->sizes() == at::IntArrayRef{logits->size(0)}, "draw: uniforms ", uniforms->sizes());
    TORCH_CHECK(seen == nullptr || seen->sizes() == logits->sizes(), "draw: seen ", seen->sizes());
    Drawn d;
    if (uniforms == nullptr)
      d = draw_greedy(*logits, seen, suppress, penalty, scored);
    else if (cuda::runs(*logits) && logits->is_contiguous() && logits->size(1) <= kKernelTokens)
      d = draw_kernel(*logits, seen, suppress, *uniforms, temperature, top_p, top_k, penalty);
    else if (seen == nullptr && top_k == 0 && !(top_p > 0 && top_p < 1))
      d = draw_plain(*logits, suppress, uniforms->unsqueeze(1), temperature);
    else
      d = draw_shaped(*logits, seen, suppress, uniforms->unsqueeze(1), temperature, top_p, top_k, penalty);
    *ids = wrap(d.ids);
    if (d.kept.defined()) *kept = wrap(d.kept);
    if (d.logp.defined()) *logp = wrap(d.logp);
  });
}

const char *fc_mark_seen(Tensor seen, Tensor ids) {
  return guard([&] { seen->scatter_(1, ids->unsqueeze(1), true); });
}
const char *fc_is_any(Tensor x, Tensor values, Tensor *out) {
  return guard([&] { *out = wrap(x->unsqueeze(1).eq(values->unsqueeze(0)).any(1)); });
}
const char *fc_add_in_place(Tensor x, int64_t n) {
  return guard([&] { x->add_(n); });
}

}  // extern "C"
