// SPDX-License-Identifier: Apache-2.0
#include "runtime/device.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <sched.h>

#include <cstdlib>

#include "base/check.h"

namespace tlt::runtime {
namespace {

constexpr size_t kSmallTensor = size_t{32} << 10;  // smaller ones gain nothing by huge pages

}  // namespace

bool cuda_is_tried() {
  const char* value = std::getenv("TLT_TRY_CUDA");
  return value != nullptr && std::string_view(value) == "1" && at::hasCUDA();
}

int available_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

Device::Device(at::Device device, int threads)
    : device_(device),
      pool_(std::make_shared<ThreadPool>(threads)),
      huge_pages_(std::make_shared<HugePages>()) {}

Device Device::cpu(int threads) {
  TLT_CHECK_INPUT(threads >= 0 && threads <= 1024, "trainer.threads is ", threads,
                  "; give 0 (all cores) or a number up to 1024");
  // ATen is used off the hot path only; its own threads would compete with the pool's.
  at::set_num_threads(1);
  return Device(at::Device(at::kCPU), threads == 0 ? available_cores() : threads);
}

Device Device::cuda(int index) {
  TLT_CHECK_INPUT(at::hasCUDA(), "no CUDA device: this machine has none, or tlt was built without");
  const int count = at::detail::getCUDAHooks().deviceCount();
  TLT_CHECK_INPUT(index >= 0 && index < count, "no device cuda:", index, "; this machine has ",
                  count);
  at::set_num_threads(1);
  return Device(at::Device(at::kCUDA, static_cast<at::DeviceIndex>(index)), 1);
}

Device Device::parse(const std::string& name, int threads, std::string_view option) {
  if (name == "cpu") return cpu(threads);
  const std::string set = std::string(option) + (option.starts_with("--") ? " " : "=");
  const bool indexed = name.rfind("cuda:", 0) == 0 && name.size() > 5 && name.size() < 9 &&
                       name.find_first_not_of("0123456789", 5) == std::string::npos;
  TLT_CHECK_INPUT(name == "cuda" || indexed, "unknown device '", name, "'; give ", set, "cpu");
  TLT_CHECK_INPUT(cuda_is_tried(), set, name,
                  ": CUDA is not supported yet, no GPU has passed the tests yet; give ", set,
                  "cpu");
  return cuda(indexed ? std::stoi(name.substr(5)) : 0);
}

at::Tensor Device::empty(at::IntArrayRef sizes, at::ScalarType type) const {
  return at::empty(sizes, at::TensorOptions().dtype(type).device(device_));
}

at::Tensor Device::zeros(at::IntArrayRef sizes, at::ScalarType type) const {
  return at::zeros(sizes, at::TensorOptions().dtype(type).device(device_));
}

at::Tensor Device::lasting_zeros(at::IntArrayRef sizes, at::ScalarType type) const {
  size_t bytes = c10::elementSize(type);
  for (const int64_t size : sizes) bytes *= static_cast<size_t>(size);
  if (!is_cpu() || bytes < kSmallTensor) return zeros(sizes, type);
  const std::shared_ptr<void> memory = huge_pages_->take(bytes);
  return at::from_blob(
      memory.get(), sizes, [memory](void*) {}, at::TensorOptions().dtype(type));
}

}  // namespace tlt::runtime
