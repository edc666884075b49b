// The kernel of kernels_decode.cu on a CPU: 128 threads in step where a warp's instructions have them so, these instructions by the
// layouts of PTX's manual ("mma.m16n8k16", "ldmatrix", "cp.async"), bfloat16. A copy arrives when it is waited for, never earlier. The
// program draws decodings, compares each with float64 and prints how far it is off; a piece that lies outside of its memory is an error.
#include <barrier>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <thread>
#include <vector>

typedef long long index_t;
#define index index_t
#define __device__
#define __shared__ static
using std::min;

struct bf16 { unsigned short bits; };
typedef bf16 T;
static float number(bf16 x) {
  const unsigned bits = static_cast<unsigned>(x.bits) << 16;
  float f;
  memcpy(&f, &bits, 4);
  return f;
}
static void round_to(float x, bf16 &to) {
  unsigned bits;
  memcpy(&bits, &x, 4);
  to.bits = static_cast<unsigned short>(x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static float half(unsigned pair, int which) { return number(bf16{static_cast<unsigned short>(pair >> 16 * which)}); }

constexpr int kThreads = 128, kMemory = 512 * 128;
struct Place { int x, y; };
static thread_local Place threadIdx;
static Place blockIdx, blockDim = {kThreads, 1};
alignas(16) static unsigned char shared_memory[kMemory];
static std::unique_ptr<std::barrier<>> block, warps[4];
static void __syncthreads() { block->arrive_and_wait(); }
static void __syncwarp() { warps[threadIdx.x / 32]->arrive_and_wait(); }

// What the lanes of a warp show each other.
static unsigned shown[4][32][6];
static const unsigned char *rows_of[4][32];
static float __shfl_xor_sync(unsigned, float x, int other) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  memcpy(shown[warp][lane], &x, 4);
  __syncwarp();
  memcpy(&x, shown[warp][lane ^ other], 4);
  __syncwarp();
  return x;
}
static bool __any_sync(unsigned, bool mine) {
  const int warp = threadIdx.x / 32;
  shown[warp][threadIdx.x % 32][0] = mine;
  __syncwarp();
  bool any = false;
  for (const auto &lane : shown[warp]) any = any || lane[0];
  __syncwarp();
  return any;
}

struct Copy { void *to; const void *from; };
static thread_local std::vector<Copy> asked;
static thread_local std::deque<std::vector<Copy>> groups;
static std::vector<bf16> keys_there, values_there;
static bool within(const void *p, const void *first, size_t bytes) {
  const unsigned char *at = static_cast<const unsigned char *>(p), *begin = static_cast<const unsigned char *>(first);
  return at >= begin && at + 16 <= begin + bytes && (at - begin) % 16 == 0;
}
static void copy_piece(void *to, const void *from) {
  if (!within(to, shared_memory, kMemory) || (!within(from, keys_there.data(), 2 * keys_there.size()) && !within(from, values_there.data(), 2 * values_there.size()))) {
    puts("a piece lies outside of its memory");
    exit(1);
  }
  asked.push_back({to, from});
}
static void commit_group() {
  groups.push_back(asked);
  asked.clear();
}
static void wait_group(size_t left) {
  for (; groups.size() > left; groups.pop_front())
    for (const Copy &c : groups.front()) memcpy(c.to, c.from, 16);
}

static unsigned pair_at(const unsigned char *low, const unsigned char *high) {
  unsigned short a, b;
  memcpy(&a, low, 2);
  memcpy(&b, high, 2);
  return a | static_cast<unsigned>(b) << 16;
}
static void matrices(unsigned (&x)[4], const void *row, bool transposed) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, high = lane / 4, pairs = lane % 4 * 2;
  rows_of[warp][lane] = static_cast<const unsigned char *>(row);
  __syncwarp();
  for (int m = 0; m < 4; m++) {
    const auto *of = rows_of[warp] + 8 * m;
    x[m] = transposed ? pair_at(of[pairs] + 2 * high, of[pairs + 1] + 2 * high) : pair_at(of[high] + 2 * pairs, of[high] + 2 * pairs + 2);
  }
  __syncwarp();
}
static void load_matrices(unsigned (&x)[4], const void *row) { matrices(x, row, false); }
static void load_transposed(unsigned (&x)[4], const void *row) { matrices(x, row, true); }
static void add_product(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, bf16) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  unsigned(&mine)[6] = shown[warp][lane];
  memcpy(mine, a, 16);
  mine[4] = b0;
  mine[5] = b1;
  __syncwarp();
  for (int i = 0; i < 4; i++) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    double sum = 0;
    for (int k = 0; k < 16; k++) {
      const double x = half(shown[warp][row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2], k % 2);
      sum += x * half(shown[warp][column * 4 + k % 8 / 2][4 + k / 8], k % 2);
    }
    c[i] += static_cast<float>(sum);
  }
  __syncwarp();
}

#include "kernel.inc"

static std::mt19937 random_numbers(1);
static int below(int n) { return static_cast<int>(random_numbers() % static_cast<unsigned>(n)); }
static std::vector<bf16> drawn(size_t n) {
  std::normal_distribution<float> normal;
  std::vector<bf16> x(n);
  for (bf16 &y : x) round_to(normal(random_numbers), y);
  return x;
}

template <int D> static double off(int prompts, int samples, int kv, int group, bool shared) {
  const int n = prompts * samples, heads = kv * group;
  const double scale = 0.3;
  std::vector<int> prefix, prefix_len, own, own_len;
  int m = 0;
  auto stretch = [&](std::vector<int> &starts, std::vector<int> &lengths, int most) {
    lengths.push_back(1 + below(most));
    starts.push_back(m += below(3));
    m += lengths.back();
  };
  for (int i = 0; i < prompts; i++) stretch(prefix, prefix_len, 150);
  for (int i = 0; i < n; i++) stretch(own, own_len, 60);
  const std::vector<bf16> q = drawn(static_cast<size_t>(n) * heads * D);
  keys_there = drawn(static_cast<size_t>(m) * kv * D);
  values_there = drawn(static_cast<size_t>(m) * kv * D);
  std::vector<bf16> out(q.size(), bf16{0x7fc0});  // NaN

  const int completions = shared ? samples : 1, together = std::max(1, std::min(completions, 16 / group));
  const int blocks = n / completions * ((completions + together - 1) / together);
  for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++)
    for (blockIdx.y = 0; blockIdx.y < kv * ((group + 15) / 16); blockIdx.y++) {
      memset(shared_memory, 0xff, kMemory);
      block = std::make_unique<std::barrier<>>(kThreads);
      for (auto &w : warps) w = std::make_unique<std::barrier<>>(32);
      std::vector<std::thread> threads;
      for (int t = 0; t < kThreads; t++)
        threads.emplace_back([&, t] {
          threadIdx = {t, 0};
          attend<D>(q.data(), keys_there.data(), values_there.data(), out.data(), shared ? prefix.data() : nullptr, shared ? prefix_len.data() : nullptr, own.data(),
                    own_len.data(), completions, together, group, kv, static_cast<float>(scale * M_LOG2E));
        });
      for (std::thread &t : threads) t.join();
    }

  double distance = 0, norm = 0;
  for (int i = 0; i < n; i++)
    for (int h = 0; h < heads; h++) {
      std::vector<int> seen;
      for (int j = 0; shared && j < prefix_len[i / samples]; j++) seen.push_back(prefix[i / samples] + j);
      for (int j = 0; j < own_len[i]; j++) seen.push_back(own[i] + j);
      const size_t row = (static_cast<size_t>(i) * heads + h) * D;
      auto at = [&](const std::vector<bf16> &x, int key, int d) { return static_cast<double>(number(x[(static_cast<size_t>(key) * kv + h / group) * D + d])); };
      std::vector<double> weights;
      double total = 0;
      for (const int key : seen) {
        double z = 0;
        for (int d = 0; d < D; d++) z += number(q[row + d]) * at(keys_there, key, d);
        weights.push_back(exp(z * scale));
        total += weights.back();
      }
      for (int d = 0; d < D; d++) {
        double want = 0;
        for (size_t j = 0; j < seen.size(); j++) want += weights[j] / total * at(values_there, seen[j], d);
        const double got = number(out[row + d]);
        distance += (got - want) * (got - want);
        norm += want * want;
      }
    }
  return sqrt(distance / norm);
}

// With an argument it draws few.
int main(int arguments, char **) {
  const int shapes[][3] = {{2, 6, 128}, {2, 7, 64}, {3, 3, 64}, {2, 1, 64}, {1, 32, 128}, {1, 20, 128}}, rows[][2] = {{2, 1}, {2, 5}, {1, 17}};
  for (const auto &[kv, group, d] : shapes)
    for (const auto &[prompts, samples] : rows) {
      if (arguments > 1 && (prompts == 1 || group == 32 || group < 6)) continue;
      for (const bool shared : {true, false})
        printf("%.9f %d heads of %d numbers for each of %d, %d prompts, %d completions, prefixes %d\n",
               d == 64 ? off<64>(prompts, samples, kv, group, shared) : off<128>(prompts, samples, kv, group, shared), group, d, kv, prompts, samples, shared);
    }
}
