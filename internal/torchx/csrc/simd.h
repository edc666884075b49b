// FULCRUM_SIMD compiles a function once for each of these processors; the loader picks. Debian builds for the oldest.
// vf and vi are vectors of eight, whatever the processor's width; sums in them keep their order on every machine.
#pragma once

#include <stdint.h>

#include <cmath>
#include <cstring>

// (arch=haswell would be chosen on Intel's Haswell alone: a model, not a set of instructions.)
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define FULCRUM_SIMD __attribute__((target_clones("arch=x86-64-v3", "default"), optimize("O3")))
#elif defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FULCRUM_SIMD __attribute__((target_clones("avx2", "default"), optimize("O3")))
#else
#define FULCRUM_SIMD
#endif
#define INLINE inline __attribute__((always_inline))

constexpr int kLanes = 8;
typedef float vf __attribute__((vector_size(32)));
typedef int32_t vi __attribute__((vector_size(32)));

INLINE vf load(const float *p) {
  vf v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
typedef uint16_t vh __attribute__((vector_size(16)));
typedef uint32_t vu __attribute__((vector_size(32)));
INLINE vf load(const uint16_t *p) {  // of bfloat16, the upper halves of floats
  vh h;
  std::memcpy(&h, p, sizeof h);
  return (vf)(__builtin_convertvector(h, vu) << 16);
}
INLINE void store(float *p, vf v) { std::memcpy(p, &v, sizeof v); }
INLINE float sum(vf v) { return ((v[0] + v[4]) + (v[1] + v[5])) + ((v[2] + v[6]) + (v[3] + v[7])); }
INLINE vf fill(float x) { return vf{x, x, x, x, x, x, x, x}; }
INLINE vf max(vf a, vf b) { return a > b ? a : b; }

// e^x for x ≤ 88 by Cephes' polynomial, relative error 2e-7; below -87 it is e^-87.
INLINE vf exp(vf x) {
  x = x < -87.0f ? fill(-87.0f) : x;
  const vf shifted = x * 1.44269504f + 12582912.0f;  // 1.5·2^23: the integer part lands in the low bits
  const vf n = shifted - 12582912.0f;
  const vf r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  vf y = 1.9875691500e-4f * r + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = y * r * r + r + 1.0f;
  return y * (vf)(((vi)shifted - (0x4B400000 - 127)) << 23);
}
