// The NVIDIA driver and the cards it shows, read from the driver's library (libcuda.so.1) without
// anything of CUDA's toolkit or of PyTorch: what `tlt doctor` says, and why `--device cuda` is
// refused before a library of hundreds of megabytes is opened.
//
// Threading  any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tlt::runtime {

// Of the wheel torch 2.11.0, and so of the plug-in.
inline constexpr int kCudaMajor = 13;

struct CudaCard {
  std::string name;
  std::string uuid;          // 32 hexadecimal digits, the same for every process of the host
  int major = 0, minor = 0;  // compute capability: sm_90 has 9 and 0
  int64_t bytes = 0;
};

struct CudaDriver {
  int version = 0;              // the newest CUDA it supports: 13000 is 13.0; 0: no driver
  std::vector<CudaCard> cards;  // those of CUDA_VISIBLE_DEVICES if that is set
  // Why no card can be used, as the end of a sentence; empty: the cards can.
  std::string fault;
};

// "13.0" of 13000.
std::string cuda_version_text(int version);

// Why this card cannot run tlt's kernels; empty: it can.
std::string card_fault(const CudaCard& card);

CudaDriver read_cuda_driver();

}  // namespace tlt::runtime
