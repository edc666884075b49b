R"cuda(
// Attention of a step of decoding on tensor cores (compute capability 8.0 and up), for bf16 and f16: one launch, no stacked or joined
// rows. A block has the query heads that read one key head, of as many completions of a prompt as make 16 rows, the height of a
// product; each of its warps takes every fourth 16 keys of the prompt and of these completions' own, by a softmax of its own (Milakov
// & Gimelshein 2018, arXiv:1805.02867), and the four are joined at the end, always in the same order. Keys and values come by
// asynchronous copies, 16 keys ahead, their pieces of 16 bytes turned so that eight rows lie in different banks.
//
// Sums have another order than in FlashAttention, which is what training's forward pass takes: see generation.kernel in the docs.

const int kKeys = 16, kWarps = 4;

__device__ inline unsigned place(const void *shared) { return static_cast<unsigned>(__cvta_generic_to_shared(shared)); }
__device__ inline void copy_piece(void *to, const void *from) { asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place(to)), "l"(from) : "memory"); }
__device__ inline void load_matrices(unsigned (&x)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(place(row)) : "memory");
}
__device__ inline void load_transposed(unsigned (&x)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(place(row)) : "memory");
}
// c [16, 8] += a [16, 16] · b [16, 8], in the registers of a warp as PTX lays them out.
__device__ inline void add_product(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, bf16) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline void add_product(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, f16) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline unsigned pair(float low, float high) {
  T a, b;
  round_to(low, a);
  round_to(high, b);
  return a.bits | static_cast<unsigned>(b.bits) << 16;
}

// Up to 16 keys that follow each other: of the prompt (0) or of own keys (1 + completion).
struct Chunk { int stretch, key, left; };

// q, out [N, kv·group, D]; k, v [M, kv, D]; `completions` rows share each prompt, `together` of them are a block's.
template <int D> __device__ inline void attend(const T *q, const T *k, const T *v, T *out, const int *prefix, const int *prefix_len, const int *own, const int *own_len,
                                               int completions, int together, int group, int kv, float scale) {
  constexpr int kRow = D * 2, kHalf = kKeys * kRow, kPieces = D / 8;  // bytes of a key, of the keys of a chunk; pieces of a key
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ float tops[kWarps][16], totals[kWarps][16];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, high = lane / 4, pairs = lane % 4 * 2;
  const int tall = (group + 15) / 16, head = blockIdx.y / tall, first = blockIdx.y % tall * 16, heads = min(16, group - first);
  const int blocks = (completions + together - 1) / together, prompt = blockIdx.x / blocks, from = blockIdx.x % blocks * together;
  const int n = min(together, completions - from), rows = n * heads;
  const index row0 = static_cast<index>(prompt) * completions + from;
  auto place_of = [&](int r) { return ((row0 + r / heads) * kv * group + head * group + first + r % heads) * D; };

  unsigned a[D / 16][4];
#pragma unroll
  for (int s = 0; s < D / 16; s++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int r = high + i % 2 * 8;
      a[s][i] = r < rows ? *reinterpret_cast<const unsigned *>(q + place_of(r) + 16 * s + i / 2 * 8 + pairs) : 0;
    }

  int stretch = 0, base = 0;  // of the chunk that was asked for last
  auto chunk = [&](int c) -> Chunk {
    for (; stretch <= n; stretch++) {
      const int length = stretch > 0 ? own_len[row0 + stretch - 1] : prefix == nullptr ? 0 : prefix_len[prompt], chunks = (length + kKeys - 1) / kKeys;
      if (c < base + chunks) return {stretch, (stretch > 0 ? own[row0 + stretch - 1] : prefix[prompt]) + (c - base) * kKeys, length - (c - base) * kKeys};
      base += chunks;
    }
    return {0, 0, 0};
  };
  unsigned char *stages = memory + warp * 4 * kHalf;
  auto fetch = [&](const Chunk &c, unsigned char *to) {
    if (c.left > 0)
#pragma unroll
      for (int j = 0; j < D / 16; j++) {
        const int piece = j * 32 + lane, r = piece / kPieces, column = piece % kPieces, at = r * kRow + ((column ^ (r & 7)) * 16);
        const index key = ((static_cast<index>(c.key) + min(r, c.left - 1)) * kv + head) * D + column * 8;
        copy_piece(to + at, k + key);
        copy_piece(to + kHalf + at, v + key);
      }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };

  float o[D / 8][4] = {}, top[2] = {-1e30f, -1e30f}, total[2] = {0, 0};
  int c = warp, stage = 0;
  Chunk now = chunk(c);
  fetch(now, stages);
  while (now.left > 0) {
    const Chunk then = chunk(c += kWarps);
    fetch(then, stages + (stage ^ 1) * 2 * kHalf);
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncwarp();
    const unsigned char *keys = stages + stage * 2 * kHalf, *values = keys + kHalf;
    float z[2][4] = {};
#pragma unroll
    for (int s = 0; s < D / 16; s++) {
      const int r = (lane & 7) + lane / 16 * 8, column = 2 * s + (lane / 8 & 1);
      unsigned b[4];
      load_matrices(b, keys + r * kRow + ((column ^ (r & 7)) * 16));
      add_product(z[0], a[s], b[0], b[1], T());
      add_product(z[1], a[s], b[2], b[3], T());
    }
    float less[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const bool sees = now.stretch == 0 || (high + 8 * half) / heads == now.stretch - 1;
      float most = top[half];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        float &x = z[i / 2][2 * half + i % 2];
        x = sees && i / 2 * 8 + pairs + i % 2 < now.left ? x * scale : -3e38f;
        most = fmaxf(most, x);
      }
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
      less[half] = exp2f(top[half] - most);
      top[half] = most;
      total[half] *= less[half];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        float &x = z[i / 2][2 * half + i % 2];
        x = exp2f(x - most);
        total[half] += x;
      }
    }
    if (__any_sync(~0u, less[0] != 1 || less[1] != 1)) {
#pragma unroll
      for (int j = 0; j < D / 8; j++)
        for (int i = 0; i < 4; i++) o[j][i] *= less[i / 2];
    }
    const unsigned p[4] = {pair(z[0][0], z[0][1]), pair(z[0][2], z[0][3]), pair(z[1][0], z[1][1]), pair(z[1][2], z[1][3])};
#pragma unroll
    for (int s = 0; s < D / 16; s++) {
      const int r = (lane & 7) + (lane / 8 & 1) * 8, column = 2 * s + lane / 16;
      unsigned b[4];
      load_transposed(b, values + r * kRow + ((column ^ (r & 7)) * 16));
      add_product(o[2 * s], p, b[0], b[1], T());
      add_product(o[2 * s + 1], p, b[2], b[3], T());
    }
    __syncwarp();
    now = then;
    stage ^= 1;
  }

  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
  float *parts = reinterpret_cast<float *>(memory);  // [kWarps, 16, D]
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int r = high + 8 * half;
    total[half] += __shfl_xor_sync(~0u, total[half], 1);
    total[half] += __shfl_xor_sync(~0u, total[half], 2);
    if (pairs == 0) {
      tops[warp][r] = top[half];
      totals[warp][r] = total[half];
    }
#pragma unroll
    for (int j = 0; j < D / 8; j++)
      for (int i = 0; i < 2; i++) parts[(warp * 16 + r) * D + 8 * j + pairs + i] = o[j][2 * half + i];
  }
  __syncthreads();
  for (int e = threadIdx.x; e < rows * D; e += blockDim.x) {
    const int r = e / D, d = e % D;
    float most = tops[0][r], sum = 0, x = 0;
    for (int w = 1; w < kWarps; w++) most = fmaxf(most, tops[w][r]);
    for (int w = 0; w < kWarps; w++) {
      const float share = exp2f(tops[w][r] - most);
      sum += share * totals[w][r];
      x += share * parts[(w * 16 + r) * D + d];
    }
    round_to(x / sum, out[place_of(r) + d]);
  }
}

#define ATTEND(D)                                                                                                                                                      \
  template <int W> __global__ void __launch_bounds__(kWarps * 32, 3)                                                                                                   \
      decode_##D(const T *q, const T *k, const T *v, T *out, const int *prefix, const int *prefix_len, const int *own, const int *own_len, int completions, int together, \
                 int group, int kv, float scale) {                                                                                                                     \
    attend<D>(q, k, v, out, prefix, prefix_len, own, own_len, completions, together, group, kv, scale);                                                                \
  }
ATTEND(64)
ATTEND(128)
)cuda"
