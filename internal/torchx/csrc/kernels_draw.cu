R"cuda(
// A token drawn from each row of logits by the rules of SampleTokens (sample.go): one block for each row, which it reads once where
// nothing but a temperature and suppressed ids shape it, and once more for each digit of a threshold.
//
// Top-k and top-p keep what lies above a threshold, found by a radix search: of three digits of the ordered bits of the
// logits, each time the bin in which a count or a mass is passed. Masses are integers, 2^-40 of the most probable token, so that
// their sums have no order. Of equal logits at a threshold those of lower ids leave first.

const int kTile = 1024, kTiles = 512, kBins = 2048;  // a row has at most kTile·kTiles tokens (sample.cc)

struct Mass { float top, total; };  // max x, Σ e^((x-top)·inverse)

__device__ inline Mass join(Mass a, Mass b, float inverse) {
  const float top = fmaxf(a.top, b.top);
  return {top, (a.total == 0 ? 0 : a.total * expf((a.top - top) * inverse)) + (b.total == 0 ? 0 : b.total * expf((b.top - top) * inverse))};
}
__device__ inline Mass join_warp(Mass m, float inverse) {
  for (int o = 16; o > 0; o /= 2) {
    const Mass other = {__shfl_xor_sync(~0u, m.top, o), __shfl_xor_sync(~0u, m.total, o)};
    m = threadIdx.x & o ? join(other, m, inverse) : join(m, other, inverse);  // the same order in every lane
  }
  return m;
}
template <int W> __device__ inline void take(Mass &m, const float (&x)[W], float inverse) {
  float top = x[0];
  for (int i = 1; i < W; i++) top = fmaxf(top, x[i]);
  if (top > m.top) {
    m.total *= m.total == 0 ? 0 : expf((m.top - top) * inverse);
    m.top = top;
  }
  for (int i = 0; i < W; i++) m.total += expf((x[i] - m.top) * inverse);
}

// The bits of a logit, ordered as the logits are, and back.
__device__ inline unsigned ordered(float x) {
  const unsigned bits = __float_as_uint(x + 0.0f);  // one zero
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ inline float unordered(unsigned key) { return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key); }

// A row and what is left of it.
struct Row {
  const float *z;
  const unsigned char *seen;  // nullptr: no penalty
  index v;
  float penalty, inverse;
  float top;           // the largest logit, penalties included
  float least;         // tokens below it have left,
  index from;          // and those at it with lower ids
  __device__ float logit(index j) const {
    const float x = z[j];
    return seen == nullptr || !seen[j] ? x : x < 0 ? x * penalty : x / penalty;
  }
  __device__ bool stays(index j, float x) const { return x > least || (x == least && j >= from); }
  __device__ float weight(index j, float x) const { return stays(j, x) ? expf((x - top) * inverse) : 0; }
  __device__ unsigned long long mass(index j, float x) const { return static_cast<unsigned long long>(weight(j, x) * 1099511627776.0f); }
};

// Calls f(tile, j, logits of tokens j …) for all tokens; a warp has whole tiles, a thread of it the same tokens each time.
template <int W, class F> __device__ inline void each(const Row &row, F f) {
  for (int tile = threadIdx.x / 32; tile * static_cast<index>(kTile) < row.v; tile += blockDim.x / 32)
#pragma unroll 2
    for (int k = 0; k < kTile; k += 32 * W) {
      const index j = tile * static_cast<index>(kTile) + k + threadIdx.x % 32 * W;
      if (j >= row.v) break;
      float x[W];
      load<W>(row.z + j, x);
      if (row.seen != nullptr)
        for (int i = 0; i < W; i++) x[i] = row.logit(j + i);
      f(tile, j, x);
    }
}

// sums[tile] = Σ of of(j, logit) over its tokens.
template <int W, class F> __device__ __noinline__ void sum_tiles(const Row &row, double *sums, F of) {
  for (int tile = threadIdx.x; tile < kTiles; tile += blockDim.x) sums[tile] = 0;
  __syncthreads();
  for (int tile = threadIdx.x / 32; tile * static_cast<index>(kTile) < row.v; tile += blockDim.x / 32) {
    double total = 0;
#pragma unroll 2
    for (int k = 0; k < kTile; k += 32 * W) {
      const index j = tile * static_cast<index>(kTile) + k + threadIdx.x % 32 * W;
      if (j >= row.v) break;
      float x[W], part = 0;
      load<W>(row.z + j, x);
      for (int i = 0; i < W; i++) part += of(j + i, row.seen == nullptr ? x[i] : row.logit(j + i));
      total += part;
    }
    for (int o = 16; o > 0; o /= 2) total += __shfl_xor_sync(~0u, total, o);
    if (threadIdx.x % 32 == 0) sums[tile] = total;
  }
  __syncthreads();
}

// The first token at which the running sum of of(j, logit) passes target, the last one with a share where rounding leads
// behind it. sums are those of the tiles.
template <class F> __device__ __noinline__ index locate(const Row &row, const double *sums, double target, F of) {
  __shared__ index found;
  if (threadIdx.x == 0) found = 0;
  __syncthreads();
  if (threadIdx.x < 32) {
    int tile = 0;
    double before = 0, until = 0;
    for (int t = 0; t * static_cast<index>(kTile) < row.v; t++) {
      if (sums[t] <= 0) continue;
      tile = t, before = until;
      until += sums[t];
      if (target < until) break;
    }
    const index first = tile * static_cast<index>(kTile) + threadIdx.x * (kTile / 32);
    double own = 0;
    for (index j = first; j < first + kTile / 32 && j < row.v; j++) own += of(j, row.logit(j));
    double at = own;
    for (int o = 1; o < 32; o *= 2) {
      const double other = __shfl_up_sync(~0u, at, o);
      if (threadIdx.x >= o) at += other;
    }
    at += before - own;
    index passed = -1, last = -1;
    for (index j = first; j < first + kTile / 32 && j < row.v; j++) {
      const double share = of(j, row.logit(j));
      if (share <= 0) continue;
      at += share, last = j;
      if (passed < 0 && target < at) passed = j;
    }
    const unsigned has_passed = __ballot_sync(~0u, passed >= 0), has_last = __ballot_sync(~0u, last >= 0);
    if (has_passed != 0 ? threadIdx.x == __ffs(has_passed) - 1 : threadIdx.x == 31 - __clz(has_last)) found = has_passed != 0 ? passed : last;
  }
  __syncthreads();
  const index answer = found;
  __syncthreads();
  return answer;
}

// The ordered bits of the logit at which the running sum of of(j, logit), in the order of the logits, passes limit; below gets
// the sum over all lesser ones. high and low are room for kBins numbers.
template <int W, class F>
__device__ __noinline__ unsigned passing(const Row &row, unsigned long long limit, unsigned *high, unsigned *low, unsigned long long &below, F of) {
  __shared__ unsigned digit;
  __shared__ unsigned long long sum;
  unsigned prefix = 0;
  below = 0;
  for (int shift = 21, bits = 11; shift >= 0; bits = shift == 10 ? 10 : 11, shift -= shift == 0 ? 1 : bits) {
    for (int b = threadIdx.x; b < kBins; b += blockDim.x) high[b] = low[b] = 0;
    if (threadIdx.x == 0) digit = 0, sum = below;
    __syncthreads();
    each<W>(row, [&](int, index j, const float (&x)[W]) {
      for (int i = 0; i < W; i++) {
        const unsigned key = ordered(x[i]);
        if (shift < 21 && key >> (shift + bits) != prefix) continue;
        const unsigned long long n = of(j + i, x[i]);
        if (n == 0) continue;
        const unsigned b = key >> shift & ((1u << bits) - 1), less = static_cast<unsigned>(n);
        const unsigned carry = atomicAdd(low + b, less) > ~less ? 1 : 0;
        if ((n >> 32) + carry != 0) atomicAdd(high + b, static_cast<unsigned>(n >> 32) + carry);
      }
    });
    __syncthreads();
    if (threadIdx.x < 32) {
      auto bin = [&](int b) { return static_cast<unsigned long long>(high[b]) << 32 | low[b]; };
      const int first = threadIdx.x * (kBins / 32);
      unsigned long long own = 0;
      for (int b = first; b < first + kBins / 32; b++) own += bin(b);
      unsigned long long at = own;
      for (int o = 1; o < 32; o *= 2) {
        const unsigned long long other = __shfl_up_sync(~0u, at, o);
        if (threadIdx.x >= o) at += other;
      }
      at += below - own;
      if (at <= limit && limit < at + own) {
        int b = first;
        while (at + bin(b) <= limit) at += bin(b++);
        digit = b, sum = at;
      }
    }
    __syncthreads();
    prefix = prefix << bits | digit, below = sum;
    __syncthreads();
  }
  return prefix;
}

template <int W>
__global__ void draw(float *logits, const unsigned char *seen, const index *suppress, const double *uniforms, index *ids, double *kept, double *logp, index v,
                     index suppressed, float inverse, float penalty, index top_k, double top_p) {
  __shared__ double sums[kTiles];
  __shared__ Mass tiles[kTiles], lost_parts[32];
  __shared__ unsigned high[kBins], low[kBins];
  float *z = logits + blockIdx.x * v;
  const int warps = blockDim.x / 32;
  Mass lost = {-3e38f, 0};  // what is suppressed
  for (index i = threadIdx.x; i < suppressed; i += blockDim.x) {
    bool twice = false;
    for (index k = 0; k < i; k++) twice = twice || suppress[k] == suppress[i];
    if (twice) continue;
    const float x[1] = {z[suppress[i]]};
    take<1>(lost, x, inverse);
  }
  __syncthreads();
  for (index i = threadIdx.x; i < suppressed; i += blockDim.x) z[suppress[i]] = __uint_as_float(0xff800000);
  lost = join_warp(lost, inverse);
  if (threadIdx.x % 32 == 0) lost_parts[threadIdx.x / 32] = lost;
  __syncthreads();

  Row row = {z, nullptr, v, penalty, inverse, 0, __uint_as_float(0xff800000), 0};
  for (int t = threadIdx.x; t < kTiles; t += blockDim.x) tiles[t] = {-3e38f, 0};
  __syncthreads();
  for (int tile = threadIdx.x / 32; tile * static_cast<index>(kTile) < v; tile += warps) {
    Mass m = {-3e38f, 0};
#pragma unroll 4
    for (int k = 0; k < kTile; k += 32 * W) {
      const index j = tile * static_cast<index>(kTile) + k + threadIdx.x % 32 * W;
      if (j >= v) break;
      float x[W];
      load<W>(z + j, x);
      take<W>(m, x, inverse);
    }
    m = join_warp(m, inverse);
    if (threadIdx.x % 32 == 0) tiles[tile] = m;
  }
  __syncthreads();
  Mass own = {-3e38f, 0};
  for (int t = threadIdx.x % 32; t < kTiles; t += 32) own = join(own, tiles[t], inverse);
  own = join_warp(own, inverse);  // the same in every warp
  row.top = own.top;
  for (int w = 0; w < warps; w++) own = join(own, lost_parts[w], inverse);

  bool shaped = false;
  if (seen != nullptr) {  // another row: its largest logit
    shaped = true;
    row.seen = seen + blockIdx.x * v;
    __shared__ float tops[32];
    float top = -3e38f;
    each<W>(row, [&](int, index, const float (&x)[W]) {
      for (int i = 0; i < W; i++) top = fmaxf(top, x[i]);
    });
    top = warp_max(top);
    if (threadIdx.x % 32 == 0) tops[threadIdx.x / 32] = top;
    __syncthreads();
    row.top = tops[0];
    for (int w = 1; w < warps; w++) row.top = fmaxf(row.top, tops[w]);
  }
  if (top_k > 0 && top_k < v) {
    shaped = true;
    unsigned long long below;
    row.least = unordered(passing<W>(row, v - top_k, high, low, below, [](index, float) { return 1ull; }));
  }
  if (top_p > 0 && top_p < 1) {
    shaped = true;
    __shared__ unsigned long long total;
    unsigned long long mine = 0;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    each<W>(row, [&](int, index j, const float (&x)[W]) {
      for (int i = 0; i < W; i++) mine += row.mass(j + i, x[i]);
    });
    atomicAdd(&total, mine);
    __syncthreads();
    const double share = floor((1 - top_p) * static_cast<double>(total));
    unsigned long long limit = static_cast<unsigned long long>(share), below;
    if (limit >= total) limit = total - 1;
    const Row all = row;
    const float least = unordered(passing<W>(row, limit, high, low, below, [&](index j, float x) { return all.mass(j, x); }));
    const unsigned long long leaving = (limit - below) / static_cast<unsigned long long>(expf((least - row.top) * inverse) * 1099511627776.0f);
    if (leaving > 0) {
      auto tie = [&](index j, float x) { return all.stays(j, x) && x == least ? 1.0f : 0.0f; };
      sum_tiles<W>(row, sums, tie);
      row.from = locate(row, sums, static_cast<double>(leaving), tie);
    }
    row.least = least;
  }

  auto weight = [&](index j, float x) { return row.weight(j, x); };
  if (shaped) {
    sum_tiles<W>(row, sums, weight);
  } else {
    for (int t = threadIdx.x; t < kTiles; t += blockDim.x) sums[t] = tiles[t].total == 0 ? 0 : static_cast<double>(tiles[t].total) * exp((static_cast<double>(tiles[t].top) - row.top) * inverse);
    __syncthreads();
  }
  double total = 0;
  for (int t = 0; t * static_cast<index>(kTile) < v; t++) total += sums[t];
  const index id = locate(row, sums, uniforms[blockIdx.x] * total, weight);
  double same = !shaped && suppressed == 0 ? 1 : total * exp((static_cast<double>(row.top) - own.top) * inverse) / own.total;  // of the row's own distribution
  if (seen != nullptr) {
    const Row drawn = row, mine = {z, nullptr, v, penalty, inverse, own.top, __uint_as_float(0xff800000), 0};
    const float share = static_cast<float>(1 / total), part = 1 / own.total;
    sum_tiles<W>(row, sums, [&](index j, float x) { return fminf(drawn.weight(j, x) * share, mine.weight(j, z[j]) * part); });
    same = 0;
    for (int t = 0; t * static_cast<index>(kTile) < v; t++) same += sums[t];
  }
  if (threadIdx.x != 0) return;
  ids[blockIdx.x] = id;
  kept[blockIdx.x] = same > 1 ? 1 : same;
  logp[blockIdx.x] = (static_cast<double>(z[id]) - own.top) * inverse - log(static_cast<double>(own.total));
}
)cuda"
