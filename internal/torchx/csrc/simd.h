// FULCRUM_SIMD compiles a function once for each of these processors; the loader picks. Debian builds for the oldest.
// vf and vi are vectors of eight, whatever the processor's width; sums in them keep their order on every machine.
#pragma once

#include <stdint.h>

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
