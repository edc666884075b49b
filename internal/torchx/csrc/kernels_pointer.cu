R"cuda(
// A small model's step beside its products: the optimizer. It follows kernels_vocabulary.cu in the string that is compiled for float.

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
)cuda"
