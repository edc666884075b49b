// Attention over pools and their scores without a copy of the candidates for each query, and gradients in a fixed order without
// sorting: what autograd makes of gathered candidates took 0.45 ms of a step of 1.2 ms on an H100 (docs/benchmarks.md).
#include "pool.h"

#include "cuda_kernels.h"
#include "guard.h"

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kThreads = 256;
constexpr int64_t kBlock = 1024;  // the most that a block has

int as_int(int64_t x) { return static_cast<int>(x); }
int64_t over(int64_t x, int64_t by) { return (x + by - 1) / by; }

// Σ over a row's places of x1·v1 (+ x2·v2): x [B, N, K], v [B, N, D] → [U, D].
at::Tensor rows_back(const at::Tensor &c, const at::Tensor &order, const at::Tensor &starts, const at::Tensor &x1, const at::Tensor &v1, const at::Tensor &x2,
                     const at::Tensor &v2) {
  const int64_t d = c.size(1), columns = std::min<int64_t>(over(d, 32) * 32, kThreads);
  const int64_t threads = order.defined() ? columns : kBlock / columns * columns;  // a shared pool has few rows with many places
  at::Tensor dc = at::empty_like(c);
  cuda::run({"pool_rows_back", c, false}, c.size(0), over(d, columns), threads, order, starts, x1, v1, x2, v2, dc, x1.size(0), as_int(x1.size(1)),
            as_int(x1.size(2)), as_int(d), as_int(columns));
  return dc;
}

struct PoolAttend : torch::autograd::Function<PoolAttend> {
  static at::Tensor forward(AutogradContext *ctx, at::Tensor input, at::Tensor candidates, c10::optional<at::Tensor> pool, c10::optional<at::Tensor> mask,
                            c10::optional<at::Tensor> places, c10::optional<at::Tensor> from, double scale) {
    const at::Tensor u = input.contiguous(), c = candidates.contiguous(), none, index = pool.value_or(none), padding = mask.value_or(none);
    const int64_t b = u.size(0), heads = u.size(1), d = u.size(2), k = index.defined() ? index.size(1) : c.size(0);
    const at::Tensor a = at::empty({b, heads, k}, u.options()), out = at::empty_like(u);
    cuda::run({"pool_attend", u, cuda::wide(d, {&u, &c})}, b * heads, 1, kThreads, u, c, index, padding, a, out, as_int(heads), as_int(k), as_int(d),
              static_cast<float>(scale));
    ctx->save_for_backward({u, c, index, a, places.value_or(none), from.value_or(none)});
    ctx->saved_data["scale"] = scale;
    return out;
  }
  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &u = saved[0], &c = saved[1], &index = saved[2], &a = saved[3];
    const at::Tensor dctx = grads[0].contiguous(), ds = at::empty_like(a), du = at::empty_like(u);
    const int64_t heads = u.size(1), d = u.size(2), k = a.size(2);
    cuda::run({"pool_attend_back", u, cuda::wide(d, {&dctx, &c})}, u.size(0) * heads, 1, kThreads, c, index, a, dctx, ds, du, as_int(heads), as_int(k), as_int(d),
              static_cast<float>(ctx->saved_data["scale"].toDouble()));
    const at::Tensor none;
    return {du, rows_back(c, saved[4], saved[5], a, dctx, ds, u), none, none, none, none, none};
  }
};

struct PoolScore : torch::autograd::Function<PoolScore> {
  static at::Tensor forward(AutogradContext *ctx, at::Tensor query, at::Tensor candidates, at::Tensor index, at::Tensor order, at::Tensor starts) {
    const at::Tensor q = query.contiguous(), c = candidates.contiguous();
    const int64_t b = q.size(0), n = q.size(1), d = q.size(2), k = index.size(1);
    const at::Tensor z = at::empty({b, n, k}, q.options());
    cuda::run({"pool_score", q, cuda::wide(d, {&q, &c})}, b, over(k, kThreads / 32), kThreads, q, c, index, z, as_int(n), as_int(k), as_int(d));
    ctx->save_for_backward({q, c, index, order, starts});
    return z;
  }
  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &q = saved[0], &c = saved[1];
    const at::Tensor dz = grads[0].contiguous(), dq = at::empty_like(q), none;
    const int64_t d = q.size(2), columns = std::min<int64_t>(over(d, 32) * 32, kThreads);
    cuda::run({"pool_score_back", q, false}, q.size(0), over(d, columns), columns, dz, c, saved[2], dq, as_int(q.size(1)), as_int(dz.size(2)), as_int(d));
    return {dq, rows_back(c, saved[3], saved[4], dz, q, none, none), none, none, none};
  }
};

// Rows of a table, whose gradient is summed by looking through the index for each row.
struct GatheredRows : torch::autograd::Function<GatheredRows> {
  static bool suits(const at::Tensor &table, const at::Tensor &index) {
    constexpr int64_t kRows = 1 << 16, kPlaces = 1 << 12;  // beyond, libtorch's sorting is faster
    return at::GradMode::is_enabled() && table.requires_grad() && cuda::runs(table) && table.scalar_type() == at::kFloat && table.dim() == 2 &&
           table.size(0) <= kRows && index.numel() <= kPlaces && index.scalar_type() == at::kLong;
  }
  static at::Tensor forward(AutogradContext *ctx, at::Tensor table, at::Tensor index) {
    ctx->save_for_backward({index.contiguous()});
    ctx->saved_data["rows"] = table.size(0);
    return at::embedding(table, index);
  }
  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    const at::Tensor index = ctx->get_saved_variables()[0], dy = grads[0].contiguous();
    const int64_t rows = ctx->saved_data["rows"].toInt(), d = dy.size(-1), columns = std::min<int64_t>(over(d, 32) * 32, kThreads);
    const at::Tensor dx = at::empty({rows, d}, dy.options());
    cuda::run({"gather_back", dy, false}, rows, over(d, columns), columns, dy, index, dx, index.numel(), as_int(d));
    return {dx, at::Tensor()};
  }
};

c10::optional<at::Tensor> given(Tensor x) { return x == nullptr ? c10::optional<at::Tensor>() : *x; }

void check_rows(const at::Tensor &x, const at::Tensor &c) {
  TORCH_CHECK(x.dim() == 3 && c.dim() == 2 && x.size(2) == c.size(1) && c.scalar_type() == x.scalar_type() && c.device() == x.device(), "pool: x ", x.sizes(),
              " and candidates ", c.sizes(), ": want [B, N, D] and [U, D] of one type and device");
}

}  // namespace

extern "C" {

bool fc_pool_runs(Tensor x) { return cuda::runs(*x) && x->scalar_type() == at::kFloat; }

const char *fc_pool_attend(Tensor u, Tensor c, Tensor index, Tensor padding, Tensor order, Tensor starts, double scale, Tensor *out) {
  return guard([&] {
    check_rows(*u, *c);
    *out = wrap(PoolAttend::apply(*u, *c, given(index), given(padding), given(order), given(starts), scale));
  });
}

// Rows of table [N, D] by index (int64, any shape) → [..., D]. Its gradient adds whole rows, where
// index_select's goes through one small tensor operation a row.
const char *fc_embedding(Tensor table, Tensor index, Tensor *out) {
  return guard([&] { *out = wrap(GatheredRows::suits(*table, *index) ? GatheredRows::apply(*table, *index) : at::embedding(*table, *index)); });
}

const char *fc_pool_score(Tensor q, Tensor c, Tensor index, Tensor order, Tensor starts, Tensor *out) {
  return guard([&] {
    check_rows(*q, *c);
    *out = wrap(PoolScore::apply(*q, *c, *index, *order, *starts));
  });
}

}  // extern "C"
