// Block: what a kernel sees of its block of threads. Compiled by nvcc it is the hardware, by g++ an
// emulation (ops/cuda/emulated_block.h), so a kernel is one source for a GPU and for tests without
// one.
//
// A kernel is a struct (ops/cuda/launch.h) of Parameters, Shared, kThreads, blocks() and run(), the
// body of one thread. It includes nothing of torch or of the standard library's containers.
//
// All lanes of a warp must reach the same shuffle or product, and all threads of a block the same
// sync(); the emulation throws where they do not.
//
// Rounding  nvcc is given -fmad=false and g++ -ffp-contract=off: only fmaf() fuses a product and a
//           sum, so the copies of an inlined function round alike.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#define TLT_DEVICE __device__ __forceinline__
#define TLT_UNROLL_LOOP _Pragma("unroll")
#define TLT_UNROLL_BY_4 _Pragma("unroll 4")
#define TLT_NO_UNROLL _Pragma("unroll 1")
#else
#include "ops/cuda/emulated_block.h"
#define TLT_DEVICE inline
#define TLT_UNROLL_LOOP
#define TLT_UNROLL_BY_4
#define TLT_NO_UNROLL
#endif

namespace tlt::ops::cuda {

constexpr int kWarp = 32;  // lanes

#ifdef __CUDACC__

class Block {
 public:
  __device__ __forceinline__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ __forceinline__ int lane() const { return thread() % kWarp; }
  __device__ __forceinline__ int warp() const { return thread() / kWarp; }
  // Of the block in the launch.
  __device__ __forceinline__ int index() const { return static_cast<int>(blockIdx.x); }

  __device__ __forceinline__ void sync() const { __syncthreads(); }
  __device__ __forceinline__ void sync_warp() const { __syncwarp(); }
  // x of the lane whose number differs in the bits of `mask`; of `lane`.
  template <class T>
  __device__ __forceinline__ T shuffle_xor(T x, int mask) const {
    return __shfl_xor_sync(~0u, x, mask);
  }
  template <class T>
  __device__ __forceinline__ T shuffle(T x, int lane) const {
    return __shfl_sync(~0u, x, lane);
  }
  // d += a b of a warp: [16, 16] x [16, 8] of bfloat16 pairs, float32 sums, in the fragments of
  // mma.m16n8k16.
  __device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4],
                                           const uint32_t (&b)[2]) const {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};

#else

class Block {
 public:
  explicit Block(EmulatedBlock& block) : block_(block) {}

  int thread() const { return block_.thread(); }
  int lane() const { return thread() % kWarp; }
  int warp() const { return thread() / kWarp; }
  int index() const { return block_.index(); }

  void sync() const { block_.sync(); }
  void sync_warp() const { block_.meet(WarpOperation::kSync, nullptr, 0); }
  template <class T>
  T shuffle_xor(T x, int mask) const {
    return exchange(x, lane() ^ mask);
  }
  template <class T>
  T shuffle(T x, int lane) const {
    return exchange(x, lane);
  }
  void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) const {
    uint32_t words[kWarpWords];
    std::memcpy(words, a, sizeof a);
    std::memcpy(words + 4, b, sizeof b);
    std::memcpy(words + 6, d, sizeof d);
    const auto& all = block_.meet(WarpOperation::kMultiply, words, sizeof words, multiply_warp);
    std::memcpy(d, all[lane()] + 6, sizeof d);
  }

 private:
  template <class T>
  T exchange(T x, int from) const {
    static_assert(sizeof(T) <= sizeof(uint32_t) * kWarpWords);
    const auto& all = block_.meet(WarpOperation::kShuffle, &x, sizeof x);
    std::memcpy(&x, all[from], sizeof x);
    return x;
  }

  EmulatedBlock& block_;
};

#endif

}  // namespace tlt::ops::cuda
