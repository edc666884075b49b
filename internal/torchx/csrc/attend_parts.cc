// Attention in parts, by libtorch's fused kernels for sequences of any lengths.
//
// Such a kernel takes rows of queries and rows of keys, cut into sequences. The rows of a completion see two stretches of
// keys, its own (causal) and its prompt's (all of them), so each is one call over all rows, and the results are joined by
// the logarithms of their denominators (Dao's split softmax; Rabe & Staats 2021, arXiv:2112.05682):
//
//	lse = log(e^lse₁ + e^lse₂)     out = e^(lse₁-lse) out₁ + e^(lse₂-lse) out₂
//
// Completions of one prompt are one sequence of that second call: its keys are read once for all of them. Rows that have no
// keys in a part are a sequence without keys there. In the backward pass P = e^(S-lse) and dS = P (dP - Σ dO·O) with the joined
// lse and out are each part's share of the whole softmax, so every part runs its kernel with these and the gradients add up.
//
// bfloat16 and float16 take FlashAttention-2 (Dao 2023, arXiv:2307.08691), float32 the memory-efficient kernels of CUTLASS,
// both on CUDA; float64 takes plain products, one sequence after the other, everywhere: the reference.
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/custom_class.h>

#include <list>
#include <mutex>

#include "attend.h"
#include "cuda_kernels.h"
#include "linear.h"

#ifdef FULCRUM_CUDA
#include <c10/cuda/CUDAGraphsC10Utils.h>
#endif

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 7)
constexpr bool kFused = true;
#else
constexpr bool kFused = false;  // the operators are there, with other arguments
#endif

// A logarithm of nothing that stays finite in differences.
constexpr double kNone = -1e30;

// One call of a kernel: sequence i has the queries q[i] … q[i+1] and used[i] keys from k[i] on, or those up to k[i+1].
struct Part {
  bool causal = false;  // the last query sees all keys, the one before it all but the last …
  int64_t max_q = 0, max_k = 0;
  std::vector<int32_t> q, k, used;  // [S+1], [S+1], [S]; used is empty where the keys follow each other
  std::vector<int32_t> rows;        // [N] where a row's lse is among [S, padded]; memory-efficient kernels leave it so
  std::vector<int32_t> none;        // [N] 1: no keys; empty where every row has some
  int64_t sequences() const { return static_cast<int64_t>(q.size()) - 1; }
  int64_t padded() const { return (max_q + 31) / 32 * 32; }
  struct {
    at::Tensor q, k, used, rows, none;
  } on;  // the same on the device
};

// Spans of about one shape as one padded batch [S, rows, keys] (attend_padded).
struct Batch {
  int64_t sequences = 0, rows = 0, keys = 0;
  std::vector<int32_t> q, k, visible;  // [S·rows], [S·keys]: which row of q and of k; [S·rows]: how many keys a row sees
  struct {
    at::Tensor q, k, visible;
  } on;
};

// What a list of spans asks for, made once for all layers of a model.
struct Plan : torch::CustomClassHolder {
  std::vector<Part> parts;
  std::vector<Batch> batches;
  std::vector<int32_t> back;  // [N] where a row is in all batches
  at::Tensor on_back;
};
using PlanPtr = c10::intrusive_ptr<Plan>;

// --- from spans to parts

struct Piece {
  int64_t q, q_len, k, k_len;
};

// The part of pieces in the order of their queries, of n rows in all. With `follow`, every one of m rows of k is in one
// sequence: what no query sees is in a sequence without queries.
Part part_of(const std::vector<Piece> &pieces, int64_t n, int64_t m, bool follow, bool causal) {
  Part part;
  part.causal = causal;
  int64_t row = 0, key = 0;
  auto add = [&](int64_t q_len, int64_t k_at, int64_t k_len) {
    for (int64_t i = 0; i < q_len; i++) part.none.push_back(k_len == 0);
    part.q.push_back(static_cast<int32_t>(row));
    part.k.push_back(static_cast<int32_t>(k_at));
    part.used.push_back(static_cast<int32_t>(k_len));
    part.max_q = std::max(part.max_q, q_len);
    part.max_k = std::max(part.max_k, k_len);
    row += q_len;
  };
  for (const Piece &p : pieces) {
    if (p.q > row) add(p.q - row, key, 0);
    if (follow && p.k > key) add(0, key, p.k - key);
    add(p.q_len, p.k, p.k_len);
    key = p.k + p.k_len;
  }
  if (row < n) add(n - row, key, 0);
  if (follow && key < m) add(0, key, m - key);
  part.q.push_back(static_cast<int32_t>(n));
  part.k.push_back(static_cast<int32_t>(m));
  if (follow) part.used.clear();
  if (std::find(part.none.begin(), part.none.end(), 1) == part.none.end()) part.none.clear();
  for (int64_t s = 0; s < part.sequences(); s++)
    for (int32_t i = 0; i < part.q[s + 1] - part.q[s]; i++) part.rows.push_back(static_cast<int32_t>(s * part.padded() + i));
  return part;
}

// The stretches of keys of all spans: own keys of causal spans, of others, and prefixes, each once for the rows that follow
// each other and see it.
struct Pieces {
  std::vector<Piece> causal, all, prefixes;
};
Pieces pieces_of(const std::vector<Span> &spans) {
  Pieces out;
  for (const Span &s : spans) {
    std::vector<Piece> &own = s.causal && s.q_len > 1 ? out.causal : out.all;
    if (s.own_len > 0) own.push_back({s.q, s.q_len, s.own, s.own_len});
    if (s.prefix_len == 0) continue;
    Piece *last = out.prefixes.empty() ? nullptr : &out.prefixes.back();
    if (last != nullptr && last->q + last->q_len == s.q && last->k == s.prefix && last->k_len == s.prefix_len) {
      last->q_len += s.q_len;
    } else {
      out.prefixes.push_back({s.q, s.q_len, s.prefix, s.prefix_len});
    }
  }
  return out;
}

// Whether each piece's keys lie behind those of the one before, as the kernels' backward passes want it.
bool follows(const std::vector<Piece> &pieces) {
  int64_t key = 0;
  for (const Piece &p : pieces) {
    if (p.k < key) return false;
    key = p.k + p.k_len;
  }
  return true;
}
bool follows(const Pieces &p) { return follows(p.causal) && follows(p.all) && follows(p.prefixes); }

// The same spans with their keys copied to where they follow each other; rows gets where each came from.
std::vector<Span> gathered(std::vector<Span> spans, std::vector<int64_t> &rows) {
  auto copy = [&](int64_t from, int64_t n) {
    const int64_t at = static_cast<int64_t>(rows.size());
    for (int64_t i = 0; i < n; i++) rows.push_back(from + i);
    return at;
  };
  const Span *before = nullptr;
  Span was{};
  for (Span &s : spans) {
    const Span original = s;
    if (before != nullptr && s.prefix == was.prefix && s.prefix_len == was.prefix_len) {
      s.prefix = before->prefix;
    } else {
      s.prefix = copy(s.prefix, s.prefix_len);
    }
    s.own = copy(s.own, s.own_len);
    before = &s, was = original;
  }
  return spans;
}

// All lists of a plan in one copy to the device, which waits for nothing.
void upload(Plan &plan, const at::Device &device) {
  std::vector<int32_t> all;
  for (Part &p : plan.parts)
    for (const std::vector<int32_t> *list : {&p.q, &p.k, &p.used, &p.rows, &p.none}) all.insert(all.end(), list->begin(), list->end());
  for (Batch &b : plan.batches)
    for (const std::vector<int32_t> *list : {&b.q, &b.k, &b.visible}) all.insert(all.end(), list->begin(), list->end());
  all.insert(all.end(), plan.back.begin(), plan.back.end());
  at::Tensor host = at::empty({static_cast<int64_t>(all.size())}, at::TensorOptions().dtype(at::kInt).pinned_memory(device.is_cuda()));
  std::copy(all.begin(), all.end(), host.data_ptr<int32_t>());
  const at::Tensor there = host.to(device, /*non_blocking=*/true);
  int64_t at = 0;
  auto next = [&](const std::vector<int32_t> &list) {
    const int64_t n = static_cast<int64_t>(list.size()), from = at;
    at += n;
    return n == 0 ? at::Tensor() : there.narrow(0, from, n);
  };
  for (Part &p : plan.parts) {
    p.on.q = next(p.q), p.on.k = next(p.k), p.on.used = next(p.used), p.on.rows = next(p.rows), p.on.none = next(p.none);
    if (p.on.none.defined()) p.on.none = p.on.none.to(at::kBool);
  }
  for (Batch &b : plan.batches) b.on.q = next(b.q), b.on.k = next(b.k), b.on.visible = next(b.visible);
  plan.on_back = next(plan.back);
}

PlanPtr parts_of(const std::vector<Span> &spans, int64_t n, int64_t m, int64_t stacked, bool follow, const at::Device &device) {
  Pieces pieces = pieces_of(spans);
  PlanPtr plan = c10::make_intrusive<Plan>();
  for (std::vector<Piece> *list : {&pieces.causal, &pieces.all, &pieces.prefixes}) {
    if (list->empty()) continue;
    for (Piece &p : *list) p.q *= stacked, p.q_len *= stacked;
    plan->parts.push_back(part_of(*list, n * stacked, m, follow, list == &pieces.causal));
  }
  if (!device.is_cpu()) upload(*plan, device);
  return plan;
}

// Batches of spans with as many keys before their first query, and at least two thirds of the longest one's rows.
PlanPtr batches_of(std::vector<Span> spans, int64_t n, const at::Device &device) {
  std::stable_sort(spans.begin(), spans.end(), [](const Span &a, const Span &b) {
    const int64_t before = a.keys() - a.q_len - (b.keys() - b.q_len);
    return before != 0 ? before < 0 : a.q_len > b.q_len;
  });
  PlanPtr plan = c10::make_intrusive<Plan>();
  plan->back.resize(n);
  int64_t row = 0;
  for (const Span &s : spans) {
    Batch *b = plan->batches.empty() ? nullptr : &plan->batches.back();
    if (b == nullptr || b->keys - b->rows != s.keys() - s.q_len || 3 * s.q_len < 2 * b->rows) {
      plan->batches.emplace_back();
      b = &plan->batches.back();
      b->rows = s.q_len, b->keys = s.keys();
    }
    b->sequences++;
    for (int64_t i = 0; i < b->rows; i++, row++) {
      const int64_t at = std::min(i, s.q_len - 1);  // padding repeats the last row
      b->q.push_back(static_cast<int32_t>(s.q + at));
      b->visible.push_back(static_cast<int32_t>(s.visible(at)));
      if (i < s.q_len) plan->back[s.q + i] = static_cast<int32_t>(row);
    }
    for (int64_t l = 0; l < b->keys; l++) b->k.push_back(static_cast<int32_t>(s.key(std::min(l, s.keys() - 1))));
  }
  upload(*plan, device);
  return plan;
}

// The plans of the last few lists of spans: every layer of a model asks for the same.
template <class Make>
PlanPtr remembered(const std::vector<Span> &spans, const at::Device &device, std::vector<int64_t> key, Make make) {
  struct Entry {
    std::vector<int64_t> key;
    PlanPtr plan;
  };
  static std::mutex lock;
  static std::list<Entry> &last = *new std::list<Entry>;  // never freed: the device's driver may be gone before it
  key.insert(key.end(), {static_cast<int64_t>(device.type()), device.index(), c10::impl::VirtualGuardImpl(device.type()).getStream(device).id()});
  for (const Span &s : spans) key.insert(key.end(), {s.q, s.q_len, s.prefix, s.prefix_len, s.own, s.own_len, s.causal});
  const std::lock_guard<std::mutex> held(lock);
  for (auto it = last.begin(); it != last.end(); ++it)
    if (it->key == key) {
      last.splice(last.begin(), last, it);
      return it->plan;
    }
  if (last.size() >= 8) last.pop_back();
  last.push_front({std::move(key), make()});
  return last.front().plan;
}

// --- kernels: out [N, H, D] and lse [H, N] of a part

struct Result {
  at::Tensor out, lse;
};
struct Gradients {
  at::Tensor q, k, v;
};

enum class Kernel { none, flash, efficient, plain };

Kernel kernel_of(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v) {
  const at::ScalarType type = q.scalar_type();
  const int64_t d = q.size(2);
  if (k.scalar_type() != type || v.scalar_type() != type) return Kernel::none;
  if (type == at::kDouble) return Kernel::plain;
  if (!kFused || !q.is_cuda()) return Kernel::none;
  if ((type == at::kBFloat16 || type == at::kHalf) && d % 8 == 0 && d <= 256) return Kernel::flash;
  return type == at::kFloat && d % 4 == 0 ? Kernel::efficient : Kernel::none;
}

// Sequence s alone: rows of q and k, and which keys a query does not see (undefined: it sees all).
struct Sequence {
  int64_t q, q_len, k, k_len;
  at::Tensor hidden;
  Sequence(const Part &p, int64_t s, const at::Tensor &like)
      : q(p.q[s]), q_len(p.q[s + 1] - p.q[s]), k(p.k[s]), k_len(p.used.empty() ? p.k[s + 1] - p.k[s] : p.used[s]) {
    if (p.causal && k_len > 0) hidden = at::ones({q_len, k_len}, like.options().dtype(at::kBool)).triu(k_len - q_len + 1);
  }
  at::Tensor queries(const at::Tensor &x) const { return x.narrow(0, q, q_len).transpose(0, 1); }  // [H, rows, D]
  at::Tensor keys(const at::Tensor &x, int64_t heads) const {                                       // [H, keys, D], of every query head
    return x.narrow(0, k, k_len).transpose(0, 1).repeat_interleave(heads / x.size(1), 0);
  }
  at::Tensor scores(const at::Tensor &x, const at::Tensor &y, double scale) const {
    at::Tensor z = at::bmm(queries(x), keys(y, x.size(1)).transpose(1, 2)).mul(scale);
    return hidden.defined() ? z.masked_fill(hidden, -std::numeric_limits<double>::infinity()) : z;
  }
};

Result plain_forward(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const Part &p, double scale) {
  Result r{at::zeros_like(q), at::full({q.size(1), q.size(0)}, kNone, q.options())};
  for (int64_t i = 0; i < p.sequences(); i++) {
    const Sequence s(p, i, q);
    if (s.q_len == 0 || s.k_len == 0) continue;
    const at::Tensor z = s.scores(q, k, scale);
    s.queries(r.out).copy_(at::bmm(z.softmax(-1), s.keys(v, q.size(1))));
    r.lse.narrow(1, s.q, s.q_len).copy_(z.logsumexp(-1));
  }
  return r;
}

Gradients plain_backward(const at::Tensor &dout, const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const Result &r, const Part &p, double scale) {
  Gradients g{at::zeros_like(q), at::zeros_like(k), at::zeros_like(v)};
  const int64_t heads = q.size(1);
  for (int64_t i = 0; i < p.sequences(); i++) {
    const Sequence s(p, i, q);
    if (s.q_len == 0 || s.k_len == 0) continue;
    const at::Tensor prob = (s.scores(q, k, scale) - r.lse.narrow(1, s.q, s.q_len).unsqueeze(-1)).exp(), d = s.queries(dout);
    const at::Tensor along = (d * s.queries(r.out)).sum(-1, /*keepdim=*/true);
    const at::Tensor ds = prob * (at::bmm(d, s.keys(v, heads).transpose(1, 2)) - along) * scale;
    auto add = [&](const at::Tensor &to, const at::Tensor &x) {  // [H, keys, D], summed over the query heads of a key head
      to.narrow(0, s.k, s.k_len).add_(x.view({k.size(1), heads / k.size(1), s.k_len, x.size(2)}).sum(1).transpose(0, 1));
    };
    s.queries(g.q).add_(at::bmm(ds, s.keys(k, heads)));
    add(g.k, at::bmm(ds.transpose(1, 2), s.queries(q)));
    add(g.v, at::bmm(prob.transpose(1, 2), d));
  }
  return g;
}

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 7)
c10::optional<at::Tensor> maybe(const at::Tensor &x) { return x.defined() ? c10::optional<at::Tensor>(x) : c10::nullopt; }

Result flash_forward(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const Part &p, double scale) {
  auto r = at::_flash_attention_forward(q, k, v, p.on.q, p.on.k, p.max_q, p.max_k, /*dropout_p=*/0, p.causal, /*return_debug_mask=*/false, scale, c10::nullopt, c10::nullopt,
                                        maybe(p.on.used));
  return {std::get<0>(r), std::get<1>(r)};
}

Gradients flash_backward(const at::Tensor &dout, const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const Result &r, const Part &p, double scale) {
  const at::Tensor seed = at::empty({2}, q.options().dtype(at::kLong));  // of the dropout that there is not
  auto g = at::_flash_attention_backward(dout, q, k, v, r.out, r.lse, p.on.q, p.on.k, p.max_q, p.max_k, /*dropout_p=*/0, p.causal, seed, seed, scale);
  return {std::get<0>(g), std::get<1>(g), std::get<2>(g)};
}

// The kernels leave rows without keys as they were, and their lse is [S, H, padded].
constexpr int64_t kSeesAll = 0, kLastSeesAll = 2;  // masks

Result efficient_forward(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const Part &p, double scale, bool want_lse) {
  auto r = at::_efficient_attention_forward(q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0), c10::nullopt, p.on.q, p.on.k, p.max_q, p.max_k, /*dropout_p=*/0,
                                            p.causal ? kLastSeesAll : kSeesAll, want_lse, scale, maybe(p.on.used));
  Result out{std::get<0>(r).squeeze(0), at::Tensor()};
  if (p.on.none.defined()) out.out.masked_fill_(p.on.none.view({-1, 1, 1}), 0);
  if (want_lse) out.lse = std::get<1>(r).transpose(0, 1).reshape({q.size(1), -1}).index_select(1, p.on.rows);
  return out;
}

Gradients efficient_backward(const at::Tensor &dout, const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const Result &r, const Part &p, double scale) {
  const int64_t heads = q.size(1), n = p.sequences();
  at::Tensor lse = at::full({heads, n * p.padded()}, std::numeric_limits<double>::infinity(), r.lse.options());
  lse.index_copy_(1, p.on.rows.to(at::kLong), r.lse);
  lse = lse.view({heads, n, p.padded()}).transpose(0, 1).contiguous();
  const at::Tensor seed = at::empty({}, q.options().dtype(at::kLong));  // of the dropout that there is not
  // One pass over all keys, never split: with a split a sequence without queries would divide by their number.
  auto g = at::_efficient_attention_backward(dout.unsqueeze(0), q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0), c10::nullopt, r.out.unsqueeze(0), p.on.q, p.on.k, p.max_q, p.max_k,
                                             lse, /*dropout_p=*/0, seed, seed, p.causal ? kLastSeesAll : kSeesAll, /*bias_requires_grad=*/false, scale, /*num_splits_key=*/1);
  Gradients out{std::get<0>(g).squeeze(0), std::get<1>(g).squeeze(0), std::get<2>(g).squeeze(0)};
  if (p.on.none.defined()) out.q.masked_fill_(p.on.none.view({-1, 1, 1}), 0);
  return out;
}
#else
Result flash_forward(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const Part &p, double scale) { return plain_forward(q, k, v, p, scale); }
Gradients flash_backward(const at::Tensor &dout, const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const Result &r, const Part &p, double scale) {
  return plain_backward(dout, q, k, v, r, p, scale);
}
Result efficient_forward(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const Part &p, double scale, bool) { return plain_forward(q, k, v, p, scale); }
Gradients efficient_backward(const at::Tensor &dout, const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const Result &r, const Part &p, double scale) {
  return plain_backward(dout, q, k, v, r, p, scale);
}
#endif

Result forward_part(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const Part &p, double scale, bool want_lse) {
  switch (kernel_of(q, k, v)) {
    case Kernel::flash: return flash_forward(q, k, v, p, scale);
    case Kernel::efficient: return efficient_forward(q, k, v, p, scale, want_lse);
    default: return plain_forward(q, k, v, p, scale);
  }
}

Gradients backward_part(const at::Tensor &dout, const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const Result &r, const Part &p, double scale) {
  switch (kernel_of(q, k, v)) {
    case Kernel::flash: return flash_backward(dout, q, k, v, r, p, scale);
    case Kernel::efficient: return efficient_backward(dout, q, k, v, r, p, scale);
    default: return plain_backward(dout, q, k, v, r, p, scale);
  }
}

// --- all parts

// Adds a part to the sum of others.
void join(Result &sum, const Result &part, bool want_lse) {
  at::Tensor share = at::empty({sum.out.size(0), sum.out.size(1)}, sum.out.options()), across = share.t();  // [N, H] of the part in the two
  at::sigmoid_out(across, part.lse - sum.lse);
  sum.out.lerp_(part.out, share.unsqueeze(-1));
  if (want_lse) sum.lse = at::logaddexp(sum.lse, part.lse);
}

Result forward_parts(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const std::vector<Part> &parts, double scale, bool want_lse) {
  Result sum;
  for (size_t i = 0; i < parts.size(); i++) {
    Result r = forward_part(q, k, v, parts[i], scale, want_lse || parts.size() > 1);
    if (parts.size() > 1 && parts[i].on.none.defined()) r.lse = r.lse.masked_fill(parts[i].on.none, kNone);
    if (i == 0) {
      sum = r;
    } else {
      join(sum, r, want_lse || i + 1 < parts.size());
    }
  }
  return sum;
}

struct AttendParts : torch::autograd::Function<AttendParts> {
  static at::Tensor forward(AutogradContext *ctx, at::Tensor q, at::Tensor k, at::Tensor v, PlanPtr plan, double scale) {
    const Result r = forward_parts(q, k, v, plan->parts, scale, true);
    ctx->save_for_backward({q, k, v, r.out, r.lse});
    ctx->saved_data["plan"] = c10::IValue::make_capsule(plan);
    ctx->saved_data["scale"] = scale;
    return r.out;
  }
  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], dout = grads[0].contiguous();
    const auto plan = c10::static_intrusive_pointer_cast<Plan>(ctx->saved_data["plan"].toCapsule());
    const Result r{saved[3], saved[4]};
    Gradients sum;
    for (const Part &p : plan->parts) {
      const Gradients g = backward_part(dout, q, k, v, r, p, ctx->saved_data["scale"].toDouble());
      if (!sum.q.defined()) {
        sum = g;
        continue;
      }
      sum.q.add_(g.q);
      sum.k.add_(g.k);
      sum.v.add_(g.v);
    }
    return {sum.q, sum.k, sum.v, at::Tensor(), at::Tensor()};
  }
};

// Query heads of one key head as rows, where each row of q sees all its keys: [N, Hq, D] → [N·Hq/Hk, Hk, D], and back.
at::Tensor stack(const at::Tensor &q, int64_t kv) { return q.view({q.size(0), kv, -1, q.size(2)}).transpose(1, 2).reshape({-1, kv, q.size(2)}); }
at::Tensor unstack(const at::Tensor &x, int64_t n) { return x.view({n, -1, x.size(1), x.size(2)}).transpose(1, 2).reshape({n, -1, x.size(2)}); }

// Keys of every query head: the memory-efficient kernels want as many.
at::Tensor repeated(const at::Tensor &x, int64_t heads) {
  if (x.size(1) == heads) return x;
  return x.unsqueeze(2).expand({x.size(0), x.size(1), heads / x.size(1), x.size(2)}).reshape({x.size(0), heads, x.size(2)});
}

// 0, step, 2·step … n·step, int32. Kept, so that a step of decoding launches nothing for them.
at::Tensor steps(int64_t n, int64_t step, const at::Device &device) {
  static std::mutex lock;
  static std::list<std::pair<std::array<int64_t, 3>, at::Tensor>> &last = *new std::list<std::pair<std::array<int64_t, 3>, at::Tensor>>;
  const std::array<int64_t, 3> key = {n, step, device.index()};
  const std::lock_guard<std::mutex> held(lock);
  for (const auto &[k, x] : last)
    if (k == key) return x;
#ifdef FULCRUM_CUDA
  TORCH_CHECK(!device.is_cuda() || c10::cuda::currentStreamCaptureStatusMayInitCtx() == c10::cuda::CaptureStatus::None,
              "attend_decode: compute a step of ", n, " rows once before it is captured");
#endif
  if (last.size() >= 16) last.pop_back();
  last.push_front({key, at::arange(0, (n + 1) * step, step, at::TensorOptions().dtype(at::kInt).device(device))});
  return last.front().second;
}

}  // namespace

bool parts_fit(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, size_t spans) {
  constexpr size_t most = 65535 / 4;  // a dimension of CUDA's grid; a span is at most four sequences of a part
  return spans > 0 && kernel_of(q, k, v) != Kernel::none && (spans <= most || kernel_of(q, k, v) == Kernel::plain);
}

at::Tensor attend_parts(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const std::vector<Span> &spans, double scale) {
  const int64_t n = q.size(0), heads = q.size(1), kv = k.size(1);
  const bool grad = recorded({&q, &k, &v}), one = std::all_of(spans.begin(), spans.end(), [](const Span &s) { return s.q_len == 1; });
  if (grad && !follows(pieces_of(spans))) {
    std::vector<int64_t> rows;
    const std::vector<Span> there = gathered(spans, rows);
    const at::Tensor from = at::tensor(rows, at::kLong).to(q.device());
    return attend_parts(q, k.index_select(0, from), v.index_select(0, from), there, scale);
  }
  const bool stacked = one && heads > kv;
  at::Tensor x = q.contiguous(), y = k.contiguous(), z = v.contiguous();
  if (stacked) {
    x = stack(x, kv);
  } else if (kernel_of(q, k, v) == Kernel::efficient) {
    y = repeated(y, heads), z = repeated(z, heads);
  }
  const int64_t m = k.size(0), times = stacked ? heads / kv : 1;
  const PlanPtr plan = remembered(spans, q.device(), {n, m, times, grad}, [&] { return parts_of(spans, n, m, times, grad, q.device()); });
  const at::Tensor out = grad ? AttendParts::apply(x, y, z, plan, scale) : forward_parts(x, y, z, plan->parts, scale, false).out;
  return stacked ? unstack(out, n) : out;
}

at::Tensor decode_fast(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const DecodeKeys &keys, double scale) {
  const at::Tensor x = q.contiguous(), y = k.contiguous(), z = v.contiguous(), out = at::empty_like(x);
  const int64_t n = q.size(0), kv = k.size(1), group = q.size(1) / kv, d = q.size(2), completions = keys.prefix.defined() ? n / keys.prefix_len.size(0) : 1;
  const int64_t together = std::max<int64_t>(1, std::min(completions, 16 / group)), blocks = n / completions * ((completions + together - 1) / together);
  TORCH_CHECK(cuda::runs(q) && kernel_of(q, k, v) == Kernel::flash && (d == 64 || d == 128) && cuda::wide(d, {&x, &y, &z}), "attend_decode: no fast kernel for q ", q.sizes(), " ",
              q.scalar_type(), " on ", q.device(), ": want 64 or 128 numbers a head, bfloat16 or float16, on CUDA");
  const cuda::Kernel kernel{d == 64 ? "decode_64" : "decode_128", x, true, static_cast<unsigned>(512 * d)};  // four warps, two times 16 keys and values each
  cuda::run(kernel, blocks, kv * ((group + 15) / 16), 128, x, y, z, out, keys.prefix, keys.prefix_len, keys.own, keys.own_len, static_cast<int>(completions),
            static_cast<int>(together), static_cast<int>(group), static_cast<int>(kv), static_cast<float>(scale * M_LOG2E));
  return out;
}

at::Tensor decode_parts(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const DecodeKeys &keys, double scale) {
  if (keys.fast) return decode_fast(q, k, v, keys, scale);
  const int64_t n = q.size(0), kv = k.size(1), group = q.size(1) / kv;
  std::vector<Part> parts;
  auto add = [&](const at::Tensor &start, const at::Tensor &length, int64_t longest) {
    const int64_t sequences = length.size(0), rows = n / sequences * group;
    Part p;
    p.max_q = rows, p.max_k = std::min(longest, k.size(0));
    p.on.q = steps(sequences, rows, q.device());
    p.on.k = start.size(0) > sequences ? start : at::cat({start, start.narrow(0, 0, 1)});
    p.on.used = length;
    p.q.resize(sequences + 1);  // the host knows their number only
    if (kernel_of(q, k, v) == Kernel::efficient) {
      const at::Tensor first = steps(sequences, p.padded(), q.device()).narrow(0, 0, sequences);
      p.on.rows = (first.unsqueeze(1) + steps(rows, 1, q.device()).narrow(0, 0, rows)).view(-1);
    }
    parts.push_back(std::move(p));
  };
  add(keys.own, keys.own_len, keys.max_own);
  if (keys.prefix.defined()) add(keys.prefix, keys.prefix_len, keys.max_prefix);
  const at::Tensor x = group > 1 ? stack(q.contiguous(), kv) : q.contiguous();
  const at::Tensor out = forward_parts(x, k.contiguous(), v.contiguous(), parts, scale, false).out;
  return group > 1 ? unstack(out, n) : out;
}

at::Tensor attend_padded(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const std::vector<Span> &spans, double scale, const at::Tensor &bias, int64_t zero) {
  const int64_t heads = q.size(1), kv = k.size(1), d = q.size(2), group = heads / kv;
  const PlanPtr plan = remembered(spans, q.device(), {q.size(0)}, [&] { return batches_of(spans, q.size(0), q.device()); });
  const auto numbers = at::TensorOptions().dtype(at::kInt).device(q.device());
  std::vector<at::Tensor> out;
  for (const Batch &b : plan->batches) {
    const int64_t n = b.sequences;
    auto keys = [&](const at::Tensor &x) { return x.index_select(0, b.on.k).view({n, b.keys, kv, d}).transpose(1, 2).reshape({n * kv, b.keys, d}); };
    const at::Tensor queries = q.index_select(0, b.on.q).view({n, b.rows, kv, group, d}).permute({0, 2, 3, 1, 4}).reshape({n * kv, group * b.rows, d});
    at::Tensor z = at::bmm(queries, keys(k).transpose(1, 2)).mul(scale).view({n, heads, b.rows, b.keys});
    if (z.scalar_type() != at::kDouble) z = z.to(at::kFloat);
    const at::Tensor key = at::arange(b.keys, numbers), distance = key.unsqueeze(0) - at::arange(b.keys - b.rows, b.keys, numbers).unsqueeze(1) + zero;
    z = z + bias.index_select(1, distance.clamp(0, bias.size(1) - 1).view(-1)).view({heads, b.rows, b.keys});  // beyond the table lies what no row sees
    z = z.masked_fill(key >= b.on.visible.view({n, 1, b.rows, 1}), -std::numeric_limits<double>::infinity());
    const at::Tensor y = at::bmm(z.softmax(-1).to(q.scalar_type()).view({n * kv, group * b.rows, b.keys}), keys(v));
    out.push_back(y.view({n, heads, b.rows, d}).transpose(1, 2).reshape({n * b.rows, heads, d}));
  }
  return at::cat(out).index_select(0, plan->on_back);
}
