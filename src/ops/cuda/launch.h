// launch<Kernel>(parameters): runs a kernel on the device's stream, or on emulated blocks where g++
// compiles it. Only the files that make a table of kernels include this (kernels.cu,
// kernels_emulated.cpp).
//
// A kernel is a struct:
//   Parameters      a struct of pointers and numbers; pointers(visit) visits each address of device
//                   memory in it
//   Shared          its shared memory, of trivial types, at most 48 KB
//   kThreads        of a block
//   blocks(p)       of a launch; 0: nothing to do
//   run(block, p, shared)  the body of one thread
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "ops/cuda/block.h"

namespace tlt::ops::cuda {

// Without opting in, what a block has on every card.
constexpr size_t kMostShared = 48 << 10;

template <class Kernel>
int64_t checked_blocks(const typename Kernel::Parameters& parameters) {
  static_assert(sizeof(typename Kernel::Shared) <= kMostShared);
  static_assert(sizeof(typename Kernel::Parameters) <= 4096);
  const int64_t blocks = Kernel::blocks(parameters);
  if (blocks < 0 || blocks > INT32_MAX)
    throw std::length_error("a launch of " + std::to_string(blocks) + " blocks");
  return blocks;
}

#ifdef __CUDACC__

// The stream of the launches of this host thread.
inline cudaStream_t& launch_stream() {
  thread_local cudaStream_t stream = nullptr;
  return stream;
}

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 1)
    run_kernel(const __grid_constant__ typename Kernel::Parameters parameters) {
  __shared__ typename Kernel::Shared shared;
  Kernel::run(Block{}, parameters, shared);
}

template <class Kernel>
void launch(const typename Kernel::Parameters& parameters) {
  const int64_t blocks = checked_blocks<Kernel>(parameters);
  if (blocks == 0) return;
  run_kernel<Kernel>
      <<<static_cast<unsigned>(blocks), Kernel::kThreads, 0, launch_stream()>>>(parameters);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess)
    throw std::runtime_error(std::string("a kernel did not start: ") + cudaGetErrorString(error));
}

#else

template <class Kernel>
void launch(typename Kernel::Parameters parameters) {
  const int64_t blocks = checked_blocks<Kernel>(parameters);
  if (blocks == 0) return;
  parameters.pointers([](auto*& pointer) {
    pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(
        reinterpret_cast<uintptr_t>(pointer) & ~kFarBit);
  });
  launch_emulated([blocks, parameters] {
    run_emulated({.blocks = blocks,
                  .threads = Kernel::kThreads,
                  .shared_bytes = sizeof(typename Kernel::Shared),
                  .body =
                      [](const Block& block, const void* p, void* shared) {
                        Kernel::run(block, *static_cast<const typename Kernel::Parameters*>(p),
                                    *static_cast<typename Kernel::Shared*>(shared));
                      },
                  .parameters = &parameters});
  });
}

#endif

}  // namespace tlt::ops::cuda
