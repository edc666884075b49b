R"cuda(
// Rows of floats: logits of a language model's vocabulary, a pointer's scores, unit vectors. It follows kernels.cu in the string that
// is compiled for float.

// What is known of a row's distribution so far: max z, Σ e^(z-top), Σ e^(z-top) (z-top).
struct Running { float top, total, dot; };

__device__ inline Running join(Running a, Running b) {
  const float top = fmaxf(a.top, b.top), da = a.top - top, db = b.top - top, fa = __expf(da), fb = __expf(db);
  return {top, a.total * fa + b.total * fb, (a.dot + a.total * da) * fa + (b.dot + b.total * db) * fb};
}
__device__ inline Running join_warp(Running r) {
  for (int o = 16; o > 0; o /= 2) {
    const Running other = {__shfl_xor_sync(~0u, r.top, o), __shfl_xor_sync(~0u, r.total, o), __shfl_xor_sync(~0u, r.dot, o)};
    r = threadIdx.x & o ? join(other, r) : join(r, other);  // the same order in every lane
  }
  return r;
}
__device__ inline Running join_block(Running r) {
  __shared__ Running parts[32];
  r = join_warp(r);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = r;
  __syncthreads();
  const Running none = {-3e38f, 0, 0};
  r = join_warp(threadIdx.x % 32 < blockDim.x / 32 ? parts[threadIdx.x % 32] : none);
  __syncthreads();
  return r;
}
template <int W> __device__ inline void take(Running &r, const float (&z)[W]) {
  float top = z[0];
  for (int i = 1; i < W; i++) top = fmaxf(top, z[i]);
  if (top > r.top) {
    const float shift = r.top - top, f = __expf(shift);
    r.dot = (r.dot + r.total * shift) * f;
    r.total *= f;
    r.top = top;
  }
  for (int i = 0; i < W; i++) {
    const float d = z[i] - r.top, e = __expf(d);
    r.total += e;
    r.dot += e * d;
  }
}

// log Σ e^z, log π of the target and the entropy of rows z·inverse of v logits; a target outside of them gives NaN.
template <int W> __global__ void token_stats(const float *z, const index *targets, float *logp, float *entropy, float *lse, index v, float inverse) {
  const float *row = z + blockIdx.x * v;
  Running r = {-3e38f, 0, 0};
#pragma unroll 4
  for (index j = threadIdx.x * W; j < v; j += static_cast<index>(blockDim.x) * W) {
    float x[W];
    load<W>(row + j, x);
    for (int i = 0; i < W; i++) x[i] *= inverse;
    take<W>(r, x);
  }
  r = join_block(r);
  if (threadIdx.x != 0) return;
  const float log_total = logf(r.total), all = r.top + log_total;
  const index t = targets[blockIdx.x];
  lse[blockIdx.x] = all;
  logp[blockIdx.x] = t >= 0 && t < v ? row[t] * inverse - all : __uint_as_float(0x7fc00000);
  entropy[blockIdx.x] = log_total - r.dot / r.total;
}

// dz = inverse·(g·(onehot - p) - h·p·(log p + entropy)): the gradient of g·log π + h·entropy of the row. z and dz may be
// one memory where their types are one.
template <int W, class Out>
__device__ inline void token_row_back(const float *z, const index *targets, const float *g, const float *h, const float *entropy, const float *lse, Out *dz, index v,
                                      float inverse) {
  const index row = blockIdx.x, target = targets[row];
  const float gradient = g == nullptr ? 0 : g[row] * inverse, along = h == nullptr ? 0 : -h[row] * inverse, all = lse[row];
  const float constant = along * entropy[row] - gradient;
#pragma unroll 4
  for (index j = threadIdx.x * W; j < v; j += static_cast<index>(blockDim.x) * W) {
    float x[W];
    load<W>(z + row * v + j, x);
    for (int i = 0; i < W; i++) {
      const float d = x[i] * inverse - all;
      x[i] = __expf(d) * (constant + along * d) + (j + i == target ? gradient : 0);
    }
    store<W>(dz + row * v + j, x);
  }
}
#define TOKEN_BACK(name, Out)                                                                                                                                  \
  template <int W>                                                                                                                                             \
  __global__ void name(const float *z, const index *t, const float *g, const float *h, const float *entropy, const float *lse, Out *dz, index v, float inverse) { \
    token_row_back<W, Out>(z, t, g, h, entropy, lse, dz, v, inverse);                                                                                          \
  }
TOKEN_BACK(token_back, float)
TOKEN_BACK(token_back_bf16, bf16)
TOKEN_BACK(token_back_f16, f16)

// KL(p ‖ q) of the distributions of rows of logits z and y: Σ p (z - y) - log Σ e^z + log Σ e^y.
template <int W> __global__ void token_kl(const float *z, const float *y, float *kl, index v) {
  const index row = blockIdx.x * v;
  float top = -3e38f, total = 0, dot = 0;  // dot: Σ e^(z-top) (z - y)
  Running other = {-3e38f, 0, 0};
#pragma unroll 2
  for (index j = threadIdx.x * W; j < v; j += static_cast<index>(blockDim.x) * W) {
    float a[W], b[W];
    load<W>(z + row + j, a);
    load<W>(y + row + j, b);
    float high = a[0];
    for (int i = 1; i < W; i++) high = fmaxf(high, a[i]);
    if (high > top) {
      const float f = __expf(top - high);
      total *= f;
      dot *= f;
      top = high;
    }
    for (int i = 0; i < W; i++) {
      const float e = __expf(a[i] - top);
      total += e;
      dot += e * (a[i] - b[i]);
    }
    take<W>(other, b);
  }
  other = join_block(other);
  const Running all = join_block({top, total, 0});
  dot = block_sum(dot * __expf(top - all.top));
  if (threadIdx.x == 0) kl[blockIdx.x] = dot / all.total - (all.top + logf(all.total)) + (other.top + logf(other.total));
}

// --- a pointer's steps: a warp for each row of k scores, float only (rows.cc has the layout and the plain loops)

struct Step {  // of candidate g, at step t; with first, the row of all candidates
  index query;
  int t, g, last;
};
__device__ inline Step step_of(index row, int r, int g, bool shared) {
  const int i = row % r;
  if (!shared) return {row / r, i / g, i % g, i % g + 1};
  if (i == 0) return {row / r, 0, 0, g};
  return {row / r, 1 + (i - 1) / g, (i - 1) % g, (i - 1) % g + 1};
}
// Whether the candidate has taken action j before step t.
__device__ inline bool gone(const index *actions, int t, index j) {
  for (int s = 0; s < t; s++)
    if (actions[s] == j) return true;
  return false;
}

template <int W>
__global__ void pick(const float *logits, const index *actions, float taken, const float *ref, float *logp, float *entropy, float *kl, float *lse, float *row_kl,
                     index rows, int r, int k, int g, int steps, int shared) {
  const index row = (static_cast<index>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (row >= rows) return;
  const int lane = threadIdx.x % 32;
  const Step at = step_of(row, r, g, shared);
  const index *act = actions + (at.query * g + at.g) * steps;
  const float *z = logits + row * k;
  float top = -3e38f;
  for (int j = lane; j < k; j += 32) top = fmaxf(top, gone(act, at.t, j) ? taken : z[j]);
  top = warp_max(top);
  float total = 0, dot = 0;
  for (int j = lane; j < k; j += 32) {
    const float d = (gone(act, at.t, j) ? taken : z[j]) - top, e = expf(d);
    total += e;
    dot += e * d;
  }
  total = warp_sum(total);
  dot = warp_sum(dot);
  const float log_total = logf(total), all = top + log_total;
  float divergence = 0;
  if (ref != nullptr) {
    const float *reference = ref + ((at.query * g + at.g) * steps + at.t) * k;
    for (int j = lane; j < k; j += 32) {
      const float d = (gone(act, at.t, j) ? taken : z[j]) - all;
      divergence += expf(d) * (d - reference[j]);
    }
    divergence = warp_sum(divergence);
  }
  if (lane == 0) {
    lse[row] = all;
    row_kl[row] = divergence;
  }
  for (int i = at.g + lane; i < at.last; i += 32) {
    const index out = (at.query * g + i) * steps + at.t, a = actions[out];
    logp[out] = (gone(actions + (at.query * g + i) * steps, at.t, a) ? taken : z[a]) - all;
    entropy[out] = log_total - dot / total;
    if (ref != nullptr) kl[out] = divergence;
  }
}

template <int W>
__global__ void pick_back(const float *logits, const index *actions, float taken, const float *ref, const float *lse, const float *row_kl, const float *grad,
                          const float *grad_kl, float *dx, index rows, int r, int k, int g, int steps, int shared) {
  const index row = (static_cast<index>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (row >= rows) return;
  const int lane = threadIdx.x % 32;
  const Step at = step_of(row, r, g, shared);
  const index *act = actions + (at.query * g + at.g) * steps;
  float total = 0, along = 0;
  for (int i = at.g; i < at.last; i++) {
    const index out = (at.query * g + i) * steps + at.t;
    total += grad[out];
    if (ref != nullptr) along += grad_kl[out];
  }
  const float all = lse[row], divergence = row_kl[row];
  for (int j = lane; j < k; j += 32) {
    float d = 0;
    if (!gone(act, at.t, j)) {  // a taken action's logit is a constant
      const float log_p = logits[row * k + j] - all;
      float scale = -total;
      if (ref != nullptr) scale += along * (log_p - ref[((at.query * g + at.g) * steps + at.t) * k + j] - divergence);
      d = expf(log_p) * scale;
      for (int i = at.g; i < at.last; i++) {
        const index out = (at.query * g + i) * steps + at.t;
        if (actions[out] == j) d += grad[out];
      }
    }
    dx[row * k + j] = d;
  }
}

// --- unit vectors

// y = x / max(|x|, eps); inverse gets 1/max(…), negative where that is 1/eps: then the norm is a constant to the gradient.
template <int W> __global__ void unit_rows(const float *x, float *y, float *inverse, index k, float eps) {
  const index row = blockIdx.x * k, step = static_cast<index>(blockDim.x) * W;
  float squares = 0;
  for (index j = threadIdx.x * W; j < k; j += step) {
    float a[W];
    load<W>(x + row + j, a);
    for (int i = 0; i < W; i++) squares += a[i] * a[i];
  }
  const float norm = sqrtf(block_sum(squares)), scale = 1 / (norm <= eps ? eps : norm);
  if (threadIdx.x == 0) inverse[blockIdx.x] = norm <= eps ? -scale : scale;
  for (index j = threadIdx.x * W; j < k; j += step) {
    float a[W];
    load<W>(x + row + j, a);
    for (int i = 0; i < W; i++) a[i] *= scale;
    store<W>(y + row + j, a);
  }
}

// dx = (dy - y (y·dy))·|inverse|.
template <int W> __global__ void unit_rows_back(const float *y, const float *dy, const float *inverse, float *dx, index k) {
  const index row = blockIdx.x * k, step = static_cast<index>(blockDim.x) * W;
  const float scale = inverse[blockIdx.x];
  float dot = 0;
  for (index j = threadIdx.x * W; j < k; j += step) {
    float a[W], d[W];
    load<W>(y + row + j, a);
    load<W>(dy + row + j, d);
    for (int i = 0; i < W; i++) dot += a[i] * d[i];
  }
  const float along = scale < 0 ? 0 : block_sum(dot);
  for (index j = threadIdx.x * W; j < k; j += step) {
    float a[W], d[W];
    load<W>(y + row + j, a);
    load<W>(dy + row + j, d);
    for (int i = 0; i < W; i++) d[i] = (d[i] - a[i] * along) * fabsf(scale);
    store<W>(dx + row + j, d);
  }
}
)cuda"
