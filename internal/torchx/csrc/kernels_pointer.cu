R"cuda(
// A pointer's step beside its products with weights: pools, gathered rows, bias gradients, the optimizer. It follows
// kernels_vocabulary.cu in the string that is compiled for float.

__device__ inline double block_sum(double x) {
  __shared__ double parts[32];
  for (int o = 16; o > 0; o /= 2) x += __shfl_xor_sync(~0u, x, o);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  x = threadIdx.x % 32 < blockDim.x / 32 ? parts[threadIdx.x % 32] : 0;
  for (int o = 16; o > 0; o /= 2) x += __shfl_xor_sync(~0u, x, o);
  __syncthreads();
  return x;
}

// --- Σ x² in float64, and AdamW: blocks of kStretch elements (adamw.cc)

const int kStretch = 4096;

template <int W> __global__ void squares(const float *x, double *partial, index n) {
  const index first = static_cast<index>(blockIdx.x) * kStretch, end = min(n, first + kStretch);
  double total = 0;
  for (index j = first + threadIdx.x * W; j < end; j += blockDim.x * W) {
    float a[W];
    load<W>(x + j, a);
    for (int i = 0; i < W; i++) total += static_cast<double>(a[i]) * a[i];
  }
  total = block_sum(total);
  if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

// out = Σ partial. One block.
template <int W> __global__ void total(const double *partial, double *out, index n) {
  double sum = 0;
  for (index j = threadIdx.x; j < n; j += blockDim.x) sum += partial[j];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *out = sum;
}

// fc_adamw's update. rates: lr, 1 - β₁^t, √(1 - β₂^t), t. With guarded nothing changes where the norm or a loss is not finite, nor in any
// step after that: *refused remembers it, so that steps may be queued before the host has seen the norm.
template <int W>
__global__ void adamw(float *p, float *g, float *m, float *v, const float *lr_scale, const float *decay_mask, const double *squares, const float *losses,
                      index count, float *refused, const double *rates, double clip, float b1, float c1, float b2, float c2, float eps, double weight_decay,
                      index n, int guarded, int clear) {
  const double norm = sqrt(*squares);
  bool bad = *refused != 0 || !isfinite(norm);
  for (index i = 0; i < count; i++) bad = bad || !isfinite(losses[i]);
  if (guarded && bad) {  // the same in all blocks, whether they see what this writes or not
    if (blockIdx.x == 0 && threadIdx.x == 0) *refused = 1;
    return;
  }
  const double factor = clip / (norm + 1e-6);
  const float scale = clip > 0 && !(factor >= 1) ? factor : 1;  // NaN stays NaN
  const float decay = rates[0] * weight_decay, size = rates[0] / rates[1], inverse = 1 / rates[2];
  const index first = static_cast<index>(blockIdx.x) * kStretch, end = min(n, first + kStretch);
  for (index j = first + threadIdx.x * W; j < end; j += blockDim.x * W) {
    float a[W], d[W], s[W], q[W], r[W], k[W];
    load<W>(p + j, a);
    load<W>(g + j, d);
    load<W>(m + j, s);
    load<W>(v + j, q);
    for (int i = 0; i < W; i++) r[i] = k[i] = 1;
    if (lr_scale != nullptr) load<W>(lr_scale + j, r);
    if (decay_mask != nullptr) load<W>(decay_mask + j, k);
    for (int i = 0; i < W; i++) {
      const float gradient = d[i] * scale;
      s[i] = b1 * s[i] + c1 * gradient;
      q[i] = b2 * q[i] + c2 * gradient * gradient;
      a[i] = a[i] * (1 - decay * r[i] * k[i]) - size * r[i] * s[i] / (sqrtf(q[i]) * inverse + eps);
      d[i] = 0;
    }
    store<W>(p + j, a);
    store<W>(m + j, s);
    store<W>(v + j, q);
    if (clear) store<W>(g + j, d);
  }
}

// --- pools: candidate j of query b is row pool[b·k + j] of c [·, d], or row j where there is no pool. A warp makes a candidate's
// products, a thread a column's sums.

__device__ inline const float *candidate(const float *c, const index *pool, index b, int k, int j, int d) {
  return c + (pool == nullptr ? j : pool[b * k + j]) * d;
}
template <int W> __device__ inline float dot_warp(const float *x, const float *y, int d) {
  float total = 0;
  for (int i = threadIdx.x % 32 * W; i < d; i += 32 * W) {
    float a[W], b[W];
    load<W>(x + i, a);
    load<W>(y + i, b);
    for (int l = 0; l < W; l++) total += a[l] * b[l];
  }
  return warp_sum(total);
}

// A block for each query and head: weights a = softmax(scale·u·c) and their mean ctx of the candidates.
template <int W>
__global__ void pool_attend(const float *u, const float *c, const index *pool, const bool *padding, float *a, float *ctx, int heads, int k, int d, float scale) {
  const index b = blockIdx.x / heads, row = static_cast<index>(blockIdx.x) * k;
  for (int j = threadIdx.x / 32; j < k; j += blockDim.x / 32) {
    const float dot = dot_warp<W>(u + static_cast<index>(blockIdx.x) * d, candidate(c, pool, b, k, j, d), d);
    if (threadIdx.x % 32 == 0) a[row + j] = padding != nullptr && padding[b * k + j] ? -1e9f : dot * scale;
  }
  __syncthreads();
  float top = -3e38f, total = 0;  // every warp for itself
  for (int j = threadIdx.x % 32; j < k; j += 32) top = fmaxf(top, a[row + j]);
  top = warp_max(top);
  for (int j = threadIdx.x % 32; j < k; j += 32) total += expf(a[row + j] - top);
  total = warp_sum(total);
  __syncthreads();
  for (int j = threadIdx.x; j < k; j += blockDim.x) a[row + j] = expf(a[row + j] - top) / total;
  __syncthreads();
  for (int i = threadIdx.x; i < d; i += blockDim.x) {
    float sum = 0;
#pragma unroll 8
    for (int j = 0; j < k; j++) sum += a[row + j] * candidate(c, pool, b, k, j, d)[i];
    ctx[static_cast<index>(blockIdx.x) * d + i] = sum;
  }
}

// ds = scale·a (da - Σ a da), da = dctx·c: the gradient of the products u·c; du = Σ ds c.
template <int W>
__global__ void pool_attend_back(const float *c, const index *pool, const float *a, const float *dctx, float *ds, float *du, int heads, int k, int d, float scale) {
  const index b = blockIdx.x / heads, row = static_cast<index>(blockIdx.x) * k;
  for (int j = threadIdx.x / 32; j < k; j += blockDim.x / 32) {
    const float dot = dot_warp<W>(dctx + static_cast<index>(blockIdx.x) * d, candidate(c, pool, b, k, j, d), d);
    if (threadIdx.x % 32 == 0) ds[row + j] = dot;
  }
  __syncthreads();
  float along = 0;
  for (int j = threadIdx.x % 32; j < k; j += 32) along += a[row + j] * ds[row + j];
  along = warp_sum(along);
  __syncthreads();
  for (int j = threadIdx.x; j < k; j += blockDim.x) ds[row + j] = scale * a[row + j] * (ds[row + j] - along);
  __syncthreads();
  for (int i = threadIdx.x; i < d; i += blockDim.x) {
    float sum = 0;
#pragma unroll 8
    for (int j = 0; j < k; j++) sum += ds[row + j] * candidate(c, pool, b, k, j, d)[i];
    du[static_cast<index>(blockIdx.x) * d + i] = sum;
  }
}

const int kTile = 8;  // queries that a candidate is read once for

// z [·, n, k] = scores of n queries q [·, n, d] for the candidates of their pool. Blocks (pools, candidates / warps).
template <int W> __global__ void pool_score(const float *q, const float *c, const index *pool, float *z, int n, int k, int d) {
  const index b = blockIdx.x;
  const int j = blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32;
  if (j >= k) return;
  const float *row = candidate(c, pool, b, k, j, d);
  for (int first = 0; first < n; first += kTile) {
    float sum[kTile] = {};
    for (int i = threadIdx.x % 32 * W; i < d; i += 32 * W) {
      float x[W], y[W];
      load<W>(row + i, x);
#pragma unroll
      for (int t = 0; t < kTile; t++)
        if (first + t < n) {
          load<W>(q + (b * n + first + t) * d + i, y);
          for (int l = 0; l < W; l++) sum[t] += x[l] * y[l];
        }
    }
#pragma unroll
    for (int t = 0; t < kTile; t++)
      if (first + t < n) {
        const float dot = warp_sum(sum[t]);
        if (threadIdx.x % 32 == 0) z[(b * n + first + t) * k + j] = dot;
      }
  }
}

// dq = dz·c. Blocks (pools, columns / threads).
template <int W> __global__ void pool_score_back(const float *dz, const float *c, const index *pool, float *dq, int n, int k, int d) {
  const index b = blockIdx.x;
  const int i = blockIdx.y * blockDim.x + threadIdx.x;
  if (i >= d) return;
  for (int first = 0; first < n; first += kTile) {
    float sum[kTile] = {};
#pragma unroll 4
    for (int j = 0; j < k; j++) {
      const float x = candidate(c, pool, b, k, j, d)[i];
#pragma unroll
      for (int t = 0; t < kTile; t++)
        if (first + t < n) sum[t] += dz[(b * n + first + t) * k + j] * x;
    }
#pragma unroll
    for (int t = 0; t < kTile; t++)
      if (first + t < n) dq[(b * n + first + t) * d + i] = sum[t];
  }
}

// dc of row r: Σ over the places (b, j) of the row and n vectors of x1[b, ·, j] v1[b, ·] (+ x2 v2). A row's places are
// order[starts[r]] … order[starts[r+1]], or candidate r of all pools where there is no order. Blocks (rows, columns); a block's threads
// are columns, and parts of the places.
template <int W>
__global__ void pool_rows_back(const int *order, const int *starts, const float *x1, const float *v1, const float *x2, const float *v2, float *dc, index pools, int n,
                               int k, int d, int columns) {
  __shared__ float sums[1024];
  const int column = threadIdx.x % columns, i = blockIdx.y * columns + column, parts = blockDim.x / columns;
  const index r = blockIdx.x, first = order == nullptr ? 0 : starts[r], end = order == nullptr ? pools : starts[r + 1];
  float sum = 0;
  if (i < d)
#pragma unroll 2
    for (index p = first + threadIdx.x / columns; p < end; p += parts) {
      const int place = order == nullptr ? p * k + r : order[p], b = place / k, j = place % k;
      for (int t = 0; t < n; t++) {
        const index at = static_cast<index>(b) * n + t;
        sum += x1[at * k + j] * v1[at * d + i];
        if (x2 != nullptr) sum += x2[at * k + j] * v2[at * d + i];
      }
    }
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x >= columns || i >= d) return;
  for (int part = 1; part < parts; part++) sum += sums[part * columns + column];
  dc[r * d + i] = sum;
}

// dx of row r of a table: Σ dy over the n places that took it, in their order. Blocks (rows, columns / threads).
template <int W> __global__ void gather_back(const float *dy, const index *taken, float *dx, index n, int d) {
  __shared__ int hits[1024], counts[32];
  const int i = blockIdx.y * blockDim.x + threadIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float sum = 0;
  for (index from = 0; from < n; from += blockDim.x) {
    const bool hit = from + threadIdx.x < n && taken[from + threadIdx.x] == blockIdx.x;
    const unsigned warp_hits = __ballot_sync(~0u, hit);
    if (lane == 0) counts[warp] = __popc(warp_hits);
    __syncthreads();
    int before = 0, all = 0;
    for (int w = 0; w < blockDim.x / 32; w++) {
      if (w < warp) before += counts[w];
      all += counts[w];
    }
    if (hit) hits[before + __popc(warp_hits & ((1u << lane) - 1))] = threadIdx.x;
    __syncthreads();
    if (i < d)
      for (int h = 0; h < all; h++) sum += dy[(from + hits[h]) * d + i];
    __syncthreads();
  }
  if (i < d) dx[static_cast<index>(blockIdx.x) * d + i] = sum;
}

// out += the sums of the columns of x [n, d]. Blocks of 32 columns by 32 rows.
template <int W> __global__ void add_columns(const float *x, float *out, index n, int d) {
  __shared__ float sums[32][33];
  const int lane = threadIdx.x % 32, part = threadIdx.x / 32, i = blockIdx.x * 32 + lane;
  float sum = 0;
  if (i < d)
#pragma unroll 8
    for (index r = part; r < n; r += 32) sum += x[r * d + i];
  sums[part][lane] = sum;
  __syncthreads();
  sum = warp_sum(sums[lane][part]);
  if (lane == 0 && blockIdx.x * 32 + part < d) out[blockIdx.x * 32 + part] += sum;
}

// --- losses over n candidates of t steps: one block; gradients of the steps are those of the loss

// loss = factor·Σ weight·Σ_t logp.
template <int W> __global__ void weighted_logp(const float *logp, const float *weight, const float *factor, float *loss, float *dlogp, int n, int t) {
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    float sequence = 0;
    for (int s = 0; s < t; s++) {
      sequence += logp[i * t + s];
      dlogp[i * t + s] = *factor * weight[i];
    }
    sum += weight[i] * sequence;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) *loss = *factor * sum;
}

__device__ inline float clamp(float x, float low, float high) { return x < low ? low : x > high ? high : x; }  // NaN stays NaN

// An estimate of the KL penalty from r = log π - log π_ref, cut to ±limit where it is exponentiated, and its derivative.
__device__ inline float estimate(int kind, float r, float limit, float &slope) {
  const float cut = clamp(r, -limit, limit), inside = fabsf(r) <= limit ? 1 : 0;
  switch (kind) {
    case 1: slope = 1; return r;
    case 2: slope = r; return r * r * 0.5f;
    case 3: slope = (1 - expf(-cut)) * inside; return expf(-cut) + cut - 1;
    default: slope = (expf(cut) - 1) * inside; return expf(cut) - 1 - cut;
  }
}

// PPO's clipped surrogate and the KL penalty of sequences: parts = [loss, ppo, kl], terms of each [n]. kind 0: the penalty is given, and
// dgiven is its gradient. beta: none where the penalty is not in the loss.
template <int W>
__global__ void surrogate(const float *logp, const float *old, const float *ref, const float *given, const float *adv, const float *weight, const float *share,
                          const float *minus_share, const float *beta, float *parts, float *sequences, float *log_ratios, float *penalties, float *dlogp, float *dgiven,
                          float limit, float low, float high, int kind, int n, int t) {
  float gains = 0, kls = 0;
  const float along = beta == nullptr ? 0 : *beta * *share;
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    float sequence = 0;
    for (int s = 0; s < t; s++) sequence += logp[i * t + s];
    const float d = sequence - old[i], ratio = expf(clamp(d, -limit, limit)), clipped = clamp(ratio, 1 - low, 1 + high), a = adv[i], w = weight[i];
    const float free = ratio * a, cut = clipped * a, at_cut = clipped == ratio ? a : 0;
    gains += (free < cut || free != free ? free : cut) * w;
    const float slope = free < cut ? a : free > cut ? at_cut : 0.5f * (a + at_cut);  // as torch.minimum's
    float kl_slope = 0;
    const float kl = kind == 0 ? given[i] : estimate(kind, sequence - ref[i], limit, kl_slope);
    kls += kl * w;
    const float gradient = *minus_share * w * slope * ratio * (fabsf(d) <= limit ? 1 : 0) + along * w * kl_slope;
    for (int s = 0; s < t; s++) dlogp[i * t + s] = gradient;
    if (kind == 0) dgiven[i] = along * w;
    sequences[i] = sequence;
    log_ratios[i] = d;
    penalties[i] = kl;
  }
  gains = block_sum(gains);
  kls = block_sum(kls);
  if (threadIdx.x != 0) return;
  const float ppo = *minus_share * gains, kl = *share * kls;
  parts[0] = beta == nullptr ? ppo : ppo + *beta * kl;
  parts[1] = ppo;
  parts[2] = kl;
}

// --- the gate of a pointer's state: y = u/|u|, u = c + z (s - c), z = σ(p + q). Rows of d; s and p are one row for n of c and q, or for one

// Blocks (rows of c).
template <int W>
__global__ void gate(const float *s, const float *p, const float *c, const float *q, float *y, float *z, float *inverse, int n, int d, float eps) {
  const index row = static_cast<index>(blockIdx.x) * d, shared = static_cast<index>(blockIdx.x / n) * d;
  float squares = 0;
  for (int i = threadIdx.x; i < d; i += blockDim.x) {
    const float g = sigmoid(p[shared + i] + q[row + i]), u = c[row + i] + g * (s[shared + i] - c[row + i]);
    z[row + i] = g;
    y[row + i] = u;
    squares += u * u;
  }
  const float norm = sqrtf(block_sum(squares)), scale = 1 / (norm <= eps ? eps : norm);
  if (threadIdx.x == 0) inverse[blockIdx.x] = norm <= eps ? -scale : scale;
  for (int i = threadIdx.x; i < d; i += blockDim.x) y[row + i] *= scale;
}

// Blocks (rows of s).
template <int W>
__global__ void gate_back(const float *s, const float *c, const float *y, const float *z, const float *inverse, const float *dy, float *ds, float *dp, float *dc,
                          float *dq, int n, int d) {
  const index shared = static_cast<index>(blockIdx.x) * d;
  for (int j = 0; j < n; j++) {
    const index at = static_cast<index>(blockIdx.x) * n + j, row = at * d;
    float dot = 0;
    for (int i = threadIdx.x; i < d; i += blockDim.x) dot += y[row + i] * dy[row + i];
    const float scale = inverse[at], along = scale < 0 ? 0 : block_sum(dot);
    for (int i = threadIdx.x; i < d; i += blockDim.x) {
      const float du = (dy[row + i] - y[row + i] * along) * fabsf(scale), g = z[row + i];
      const float inner = du * (s[shared + i] - c[row + i]) * g * (1 - g), state = du * g;
      dc[row + i] = du - state;
      dq[row + i] = inner;
      ds[shared + i] = j == 0 ? state : ds[shared + i] + state;
      dp[shared + i] = j == 0 ? inner : dp[shared + i] + inner;
    }
  }
}
)cuda"
