// Thin wrappers over libtorch operations: no logic, no exceptions out. What Go can compose, Go composes.
#include <cmath>

#include "beside.h"
#include "guard.h"
#include "rounding.h"
#include "wide.h"

int planted_rounding = 0;

extern "C" {

// --- elementwise

const char *fc_unary(const char *op, Tensor x, Tensor *out) {
  return guard([&] {
    const std::string name(op);
    at::Tensor y;
    if (name == "exp") y = x->exp();
    else if (name == "log") y = x->log();
    else if (name == "neg") y = x->neg();
    else if (name == "sqrt") y = x->sqrt();
    else if (name == "square") y = x->square();
    else if (name == "gelu") y = at::gelu(*x);
    else if (name == "silu") y = at::silu(*x);
    else if (name == "logical_not") y = x->logical_not();
    else throw std::invalid_argument("no such elementwise operation: " + name);
    *out = wrap(std::move(y));
  });
}

const char *fc_add(Tensor a, Tensor b, Tensor *out) {
  return guard([&] { *out = wrap(at::add(*a, *b)); });
}
const char *fc_sub(Tensor a, Tensor b, Tensor *out) {
  return guard([&] { *out = wrap(at::sub(*a, *b)); });
}
const char *fc_add_scalar(Tensor x, double s, Tensor *out) {
  return guard([&] { *out = wrap(x->add(s)); });
}
const char *fc_mul_scalar(Tensor x, double s, Tensor *out) {
  return guard([&] { *out = wrap(x->mul(s)); });
}
const char *fc_clamp(Tensor x, double lo, double hi, Tensor *out) {
  return guard([&] {
    c10::optional<at::Scalar> low, high;
    if (!std::isnan(lo)) low = lo;
    if (!std::isnan(hi)) high = hi;
    *out = wrap(x->clamp(low, high));
  });
}
const char *fc_minimum(Tensor a, Tensor b, Tensor *out) {
  return guard([&] { *out = wrap(at::minimum(*a, *b)); });
}
const char *fc_maximum(Tensor a, Tensor b, Tensor *out) {
  return guard([&] { *out = wrap(at::maximum(*a, *b)); });
}
const char *fc_compare(const char *op, Tensor x, double s, Tensor *out) {
  return guard([&] {
    const std::string name(op);
    if (name == "eq") *out = wrap(x->eq(s));
    else if (name == "ne") *out = wrap(x->ne(s));
    else if (name == "lt") *out = wrap(x->lt(s));
    else if (name == "le") *out = wrap(x->le(s));
    else if (name == "gt") *out = wrap(x->gt(s));
    else if (name == "ge") *out = wrap(x->ge(s));
    else throw std::invalid_argument("no such comparison: " + name);
  });
}
const char *fc_where(Tensor cond, Tensor a, Tensor b, Tensor *out) {
  return guard([&] { *out = wrap(at::where(*cond, *a, *b)); });
}
const char *fc_masked_fill(Tensor x, Tensor mask, double value, Tensor *out) {
  return guard([&] { *out = wrap(x->masked_fill(*mask, value)); });
}
const char *fc_cast(Tensor x, int8_t dtype, Tensor *out) {
  return guard([&] { *out = wrap(x->to(static_cast<at::ScalarType>(dtype))); });
}
const char *fc_to_device(Tensor x, const char *device, Tensor *out) {
  return guard([&] { *out = wrap(x->to(at::Device(std::string(device)))); });
}

// --- products

const char *fc_matmul(Tensor a, Tensor b, Tensor *out) {
  return guard([&] { *out = wrap(at::matmul(*a, *b)); });
}
// out[i] = add[i] + a[i]·b[i]
const char *fc_baddbmm(Tensor add, Tensor a, Tensor b, Tensor *out) {
  return guard([&] { *out = wrap(at::baddbmm(*add, *a, *b)); });
}

// --- reductions

const char *fc_sum(Tensor x, const int64_t *dims, int64_t n, bool keepdim, Tensor *out) {
  return guard([&] { *out = wrap(n == 0 ? x->sum() : x->sum(ints(dims, n), keepdim)); });
}
const char *fc_mean(Tensor x, const int64_t *dims, int64_t n, bool keepdim, Tensor *out) {
  return guard([&] { *out = wrap(n == 0 ? x->mean() : x->mean(ints(dims, n), keepdim)); });
}
const char *fc_logsumexp(Tensor x, int64_t dim, bool keepdim, Tensor *out) {
  return guard([&] { *out = wrap(x->logsumexp(dim, keepdim)); });
}
const char *fc_softmax(Tensor x, int64_t dim, Tensor *out) {
  return guard([&] { *out = wrap(x->softmax(dim)); });
}
const char *fc_log_softmax(Tensor x, int64_t dim, Tensor *out) {
  return guard([&] { *out = wrap(x->log_softmax(dim)); });
}
const char *fc_argmax(Tensor x, int64_t dim, Tensor *out) {
  return guard([&] { *out = wrap(x->argmax(dim)); });
}
const char *fc_topk(Tensor x, int64_t k, int64_t dim, Tensor *values, Tensor *indices) {
  return guard([&] {
    auto r = x->topk(k, dim);
    *values = wrap(std::get<0>(r));
    *indices = wrap(std::get<1>(r));
  });
}
void fc_plant_rounding(int operations) { planted_rounding = operations; }
const char *fc_layer_norm(Tensor x, Tensor weight, Tensor bias, double eps, Tensor *out) {
  return guard([&] {
    const at::ScalarType type = x->scalar_type(), in = wide(*x, Wide::norm);
    if (type == in && x->element_size() == 2) {  // planted
      const at::Tensor d = *x - x->mean(-1, true);
      *out = wrap(d * (d.square().mean(-1, true) + eps).rsqrt() * *weight + *bias);
    } else if (x->is_cpu()) {  // where libtorch 1.13 rounds the mean and the deviation of 16-bit rows
      *out = wrap(at::layer_norm(x->to(in), {x->size(-1)}, weight->to(in), bias->to(in), eps).to(type));
    } else {
      *out = wrap(at::layer_norm(*x, {x->size(-1)}, *weight, *bias, eps));
    }
  });
}
const char *fc_all_finite(Tensor x, bool *out) {
  return guard([&] { *out = at::isfinite(*x).all().item<bool>(); });
}

// --- indexing and shape

const char *fc_gather(Tensor x, int64_t dim, Tensor index, Tensor *out) {
  return guard([&] { *out = wrap(x->gather(dim, *index)); });
}
const char *fc_scatter_value(Tensor x, int64_t dim, Tensor index, double value, Tensor *out) {
  return guard([&] { *out = wrap(x->scatter(dim, *index, value)); });
}
const char *fc_index_select(Tensor x, int64_t dim, Tensor index, Tensor *out) {
  return guard([&] { *out = wrap(x->index_select(dim, *index)); });
}
const char *fc_replace_rows(Tensor x, Tensor rows, Tensor src, Tensor *out) {
  return guard([&] { *out = wrap(x->index_copy(0, *rows, *src)); });
}
static std::vector<at::Tensor> list(Tensor *xs, int64_t n) {
  std::vector<at::Tensor> v;
  v.reserve(n);
  for (int64_t i = 0; i < n; i++) v.push_back(*xs[i]);
  return v;
}
const char *fc_cat(Tensor *xs, int64_t n, int64_t dim, Tensor *out) {
  return guard([&] { *out = wrap(at::cat(list(xs, n), dim)); });
}
const char *fc_stack(Tensor *xs, int64_t n, int64_t dim, Tensor *out) {
  return guard([&] { *out = wrap(at::stack(list(xs, n), dim)); });
}
const char *fc_narrow(Tensor x, int64_t dim, int64_t start, int64_t length, Tensor *out) {
  return guard([&] { *out = wrap(x->narrow(dim, start, length)); });
}
// The first rows along dim and the others; their gradients are joined in one pass, where two narrows' are two whole
// tensors of zeros and a sum.
const char *fc_split(Tensor x, int64_t dim, int64_t first, Tensor *a, Tensor *b) {
  return guard([&] {
    auto parts = x->split_with_sizes({first, x->size(dim) - first}, dim);
    *a = wrap(parts[0]);
    *b = wrap(parts[1]);
  });
}
const char *fc_reshape(Tensor x, const int64_t *shape, int64_t dims, Tensor *out) {
  return guard([&] { *out = wrap(x->reshape(ints(shape, dims))); });
}
const char *fc_expand(Tensor x, const int64_t *shape, int64_t dims, Tensor *out) {
  return guard([&] { *out = wrap(x->expand(ints(shape, dims))); });
}
const char *fc_transpose(Tensor x, int64_t a, int64_t b, Tensor *out) {
  return guard([&] { *out = wrap(x->transpose(a, b)); });
}
const char *fc_unsqueeze(Tensor x, int64_t dim, Tensor *out) {
  return guard([&] { *out = wrap(x->unsqueeze(dim)); });
}
const char *fc_squeeze(Tensor x, int64_t dim, Tensor *out) {
  return guard([&] { *out = wrap(x->squeeze(dim)); });
}
const char *fc_contiguous(Tensor x, Tensor *out) {
  return guard([&] { *out = wrap(x->contiguous()); });
}

// --- autograd

bool fc_set_grad_enabled(bool on) {
  const bool before = at::GradMode::is_enabled();
  at::GradMode::set_enabled(on);
  return before;
}
const char *fc_detach(Tensor x, Tensor *out) {
  return guard([&] { *out = wrap(x->detach()); });
}
const char *fc_backward(Tensor x, Tensor grad, bool keep_graph) {
  return guard([&] {
    x->backward(grad == nullptr ? at::Tensor() : *grad, keep_graph);
    beside::join();
  });
}
bool fc_grad_enabled(void) { return at::GradMode::is_enabled(); }
bool fc_is_leaf(Tensor x) { return x->is_leaf(); }
bool fc_has_grad(Tensor x) { return x->grad().defined(); }
const char *fc_alias(Tensor x, Tensor *out) {
  return guard([&] { *out = wrap(*x); });
}
int64_t fc_use_count(Tensor x) { return static_cast<int64_t>(x->use_count()); }
const char *fc_require_grad(Tensor x) {
  return guard([&] { x->set_requires_grad(true); });
}
const char *fc_grad(Tensor x, Tensor *out) {
  return guard([&] {
    TORCH_CHECK(x->grad().defined(), "no gradient has reached this tensor");
    *out = wrap(x->grad());
  });
}
// A leaf of the given shape whose storage is flat[offset:] and whose gradient is flat_grad[offset:],
// so that autograd accumulates into the flat buffer and the optimiser makes one pass over it.
const char *fc_param_view(Tensor flat, Tensor flat_grad, int64_t offset, const int64_t *shape, int64_t dims, Tensor *out) {
  return guard([&] {
    int64_t n = 1;
    for (int64_t i = 0; i < dims; i++) n *= shape[i];
    at::Tensor p = flat->detach().narrow(0, offset, n).view(ints(shape, dims)).detach();
    p.set_requires_grad(true);
    p.mutable_grad() = flat_grad->detach().narrow(0, offset, n).view(ints(shape, dims)).detach();
    *out = wrap(std::move(p));
  });
}

// Part of a parameter (narrow) as a leaf of its own: its gradient goes straight into the parameter's, without the
// zeros of the whole that a narrow's gradient would add.
const char *fc_param_part(Tensor param, int64_t dim, int64_t start, int64_t length, Tensor *out) {
  return guard([&] {
    at::Tensor p = param->detach().narrow(dim, start, length).detach();
    p.set_requires_grad(param->requires_grad());
    p.mutable_grad() = param->grad().detach().narrow(dim, start, length).detach();
    *out = wrap(std::move(p));
  });
}

}  // extern "C"
