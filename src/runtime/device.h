// Device: where tensors are and the threads that compute on them; passed to every operation, never
// global.
//
//   const Device device = Device::cpu(/*threads=*/2);
//   at::Tensor x = device.empty({T, D}, at::kBFloat16);
//
// Threading  one thread drives a device.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <string_view>

#include "runtime/huge_pages.h"
#include "runtime/thread_pool.h"

namespace tlt::runtime {

class Device {
 public:
  static Device cpu(int threads);
  static Device cuda(int index);  // InputError when there is no such device
  // "cpu", "cuda" or "cuda:1". `threads` is for the CPU; 0 means all cores this process may use.
  // InputError: the device does not exist, or CUDA is not enabled (cuda_is_tried()); the message
  // names `option`, which the user set.
  static Device parse(const std::string& name, int threads, std::string_view option = "--device");

  bool is_cpu() const { return device_.is_cpu(); }
  const at::Device& torch() const { return device_; }
  ThreadPool& pool() const { return *pool_; }
  std::string name() const { return device_.str(); }

  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType type) const;
  at::Tensor zeros(at::IntArrayRef sizes, at::ScalarType type) const;
  // Zeros for long-lived memory that is read repeatedly: weights, KV cache (huge_pages.h).
  at::Tensor lasting_zeros(at::IntArrayRef sizes, at::ScalarType type) const;

 private:
  Device(at::Device device, int threads);

  at::Device device_;
  std::shared_ptr<ThreadPool> pool_;
  std::shared_ptr<HugePages> huge_pages_;
};

// Whether CUDA devices are accepted: the environment has TLT_TRY_CUDA=1, as tests with the label
// `cuda` set it, and a CUDA device exists. Otherwise CUDA is refused, because no GPU has passed
// those tests yet.
bool cuda_is_tried();

// Cores this process may use (its affinity mask).
int available_cores();

}  // namespace tlt::runtime

namespace tlt {
using runtime::Device;
}
