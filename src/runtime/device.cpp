// SPDX-License-Identifier: Apache-2.0
#include "runtime/device.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <sched.h>

#include <cstdlib>
#include <optional>

#include "base/check.h"
#include "base/sentence.h"
#include "runtime/cuda_plugin.h"

namespace tlt::runtime {
namespace {

constexpr size_t kSmallTensor = size_t{32} << 10;  // smaller ones gain nothing by huge pages

constexpr std::string_view kDigits = "0123456789";

// "cuda" is kCUDA; the name of the backend that a test program registers is kPrivateUse1.
std::optional<at::DeviceType> type_of(std::string_view name) {
  if (name == "cuda") return at::kCUDA;
  if (c10::is_privateuse1_backend_registered() && name == c10::get_privateuse1_backend())
    return at::kPrivateUse1;
  return std::nullopt;
}

// InputError: why there is no such device, without its name.
void open_device(at::DeviceType type, int index) {
  if (type == at::kCUDA) {
    open_cuda(index);
    return;
  }
  const int count = c10::impl::getDeviceGuardImpl(type)->deviceCount();
  TLT_CHECK_INPUT(index < count, "this machine has ", counted(count, "such device"),
                  "; give a number below ", count);
}

}  // namespace

bool tries_cuda() {
  const char* value = std::getenv("TLT_TRY_CUDA");
  return value != nullptr && std::string_view(value) == "1";
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

Device Device::parse(const std::string& name, int threads, std::string_view option) {
  if (name == "cpu") return cpu(threads);
  const std::string set = std::string(option) + (option.starts_with("--") ? " " : "=");
  const size_t colon = std::min(name.find(':'), name.size());
  const std::string number = name.substr(std::min(colon + 1, name.size()));
  const std::optional<at::DeviceType> type = type_of(std::string_view(name).substr(0, colon));
  const bool is_number = !number.empty() && number.size() < 4 &&
                         number.find_first_not_of(kDigits) == std::string::npos;
  TLT_CHECK_INPUT(type && (colon == name.size() || is_number), "unknown device '", name, "'; give ",
                  set, "cpu");
  TLT_CHECK_INPUT(*type != at::kCUDA || tries_cuda(), set, name,
                  ": no GPU has passed the tests yet, so results may be wrong; give ", set,
                  "cpu, or try it all the same with TLT_TRY_CUDA=1 in the environment");
  const int index = number.empty() ? 0 : std::stoi(number);
  try {
    open_device(*type, index);
  } catch (const InputError& error) {
    throw InputError(set + name + ": " + error.what() + ", or give " + set + "cpu");
  }
  Device host = cpu(threads);
  host.device_ = at::Device(*type, static_cast<at::DeviceIndex>(index));
  return host;
}

void Device::wait() const {
  c10::impl::getDeviceGuardImpl(device_.type())->synchronizeDevice(device_.index());
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

bool Device::try_release(const at::Tensor& lasting) const {
  return is_cpu() && HugePages::try_release(lasting.data_ptr(), lasting.nbytes());
}

void Device::release_part(const at::Tensor& part) const {
  TLT_CHECK(part.is_contiguous(), "release of a part with gaps");
  if (is_cpu()) HugePages::release_inside(part.data_ptr(), part.nbytes());
}

}  // namespace tlt::runtime
