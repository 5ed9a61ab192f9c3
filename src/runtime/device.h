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
  // "cpu", "cuda" or "cuda:1"; in a program with a PrivateUse1 backend, as tests have one
  // (tests/support/far_device.h), also its name. `threads` compute on the host: everything on the
  // CPU; of other devices the optimizer, and sampling that truncates. 0: all cores this process
  // may use.
  // InputError: the device does not exist, or CUDA is not tried (tries_cuda()); the message names
  // `option`, which the user set.
  static Device parse(const std::string& name, int threads, std::string_view option = "--device");

  bool is_cpu() const { return device_.is_cpu(); }
  const at::Device& torch() const { return device_; }
  ThreadPool& pool() const { return *pool_; }
  std::string name() const { return device_.str(); }
  // Waits until the device has done all work that was launched on it; the CPU has none. Before the
  // end of a timing, which is one of the launches otherwise.
  void synchronize() const {
    if (!is_cpu()) wait();
  }

  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType type) const;
  at::Tensor zeros(at::IntArrayRef sizes, at::ScalarType type) const;
  // Zeros for long-lived memory that is read repeatedly: weights, KV cache (huge_pages.h).
  at::Tensor lasting_zeros(at::IntArrayRef sizes, at::ScalarType type) const;
  // Returns the memory of a whole lasting_zeros() tensor to the system until it is written again:
  // at the same address, and zero again. False: it stays as it is, because it is small or not on
  // the CPU.
  [[nodiscard]] bool try_release(const at::Tensor& lasting) const;
  // The same for part of such a tensor, whose values are lost: as much of its memory as is in pages
  // of their own.
  void release_part(const at::Tensor& part) const;

 private:
  Device(at::Device device, int threads);

  void wait() const;

  at::Device device_;
  std::shared_ptr<ThreadPool> pool_;
  std::shared_ptr<HugePages> huge_pages_;
};

// Whether the user tries CUDA all the same: the environment has TLT_TRY_CUDA=1, as the tests with the
// label `cuda` set it. Otherwise CUDA is refused, because no GPU has passed those tests yet.
bool tries_cuda();

// Cores this process may use (its affinity mask).
int available_cores();

}  // namespace tlt::runtime

namespace tlt {
using runtime::Device;
}
