// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>

namespace tlt::runtime {
namespace {

// A driver runs all minor versions of the major one that it supports.
constexpr int kNeededVersion = kCudaMajor * 1000;
constexpr const char* kNeededDriver = "580";
// mma.sync of bfloat16, and asynchronous copies.
constexpr int kOldestMajor = 8;

// As cuda.h has them; the driver keeps its ABI.
constexpr int kSuccess = 0, kNoDevice = 100;
constexpr int kMajorAttribute = 75, kMinorAttribute = 76;
using Uuid = std::array<unsigned char, 16>;

// Functions of the driver that end with an error code, 0 without one.
class Library {
 public:
  // It stays open: the driver's threads would not survive.
  Library() : handle_(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {}

  bool is_open() const { return handle_ != nullptr; }

  // A driver without the function is one that cannot be used.
  template <class... Arguments>
  int call(const char* name, Arguments... arguments) const {
    constexpr int kNotFound = 500;
    auto* function = reinterpret_cast<int (*)(Arguments...)>(dlsym(handle_, name));
    return function == nullptr ? kNotFound : function(arguments...);
  }

 private:
  void* handle_;
};

// Fills `card` from the driver's device `index`.
int read_card(const Library& driver, int index, CudaCard& card) {
  std::array<char, 256> name{};
  Uuid uuid{};
  size_t bytes = 0;
  int device = 0;
  int error = driver.call("cuDeviceGet", &device, index);
  const auto next = [&](int result) { error = error == kSuccess ? result : error; };
  next(driver.call("cuDeviceGetName", name.data(), static_cast<int>(name.size()) - 1, device));
  next(driver.call("cuDeviceGetUuid_v2", &uuid, device));
  next(driver.call("cuDeviceTotalMem_v2", &bytes, device));
  next(driver.call("cuDeviceGetAttribute", &card.major, kMajorAttribute, device));
  next(driver.call("cuDeviceGetAttribute", &card.minor, kMinorAttribute, device));
  card.name = name.data();
  card.bytes = static_cast<int64_t>(bytes);
  for (const unsigned char byte : uuid) card.uuid += fmt::format("{:02x}", byte);
  return error;
}

}  // namespace

std::string cuda_version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string card_fault(const CudaCard& card) {
  if (card.major >= kOldestMajor) return "";
  return fmt::format("{} is sm_{}{}, and the kernels need sm_{}0 or newer; give another card",
                     card.name, card.major, card.minor, kOldestMajor);
}

CudaDriver read_cuda_driver() {
  static const Library library;
  CudaDriver driver;
  if (!library.is_open()) {
    driver.fault = fmt::format(
        "this machine has no NVIDIA driver (no libcuda.so.1); install driver {} or newer",
        kNeededDriver);
    return driver;
  }
  int error = library.call("cuDriverGetVersion", &driver.version);
  if (error == kSuccess && driver.version < kNeededVersion) {
    driver.fault = fmt::format(
        "the NVIDIA driver supports CUDA {}, and CUDA {} is needed; install driver {} or newer",
        cuda_version_text(driver.version), cuda_version_text(kNeededVersion), kNeededDriver);
    return driver;
  }
  int count = 0;
  if (error == kSuccess) error = library.call("cuInit", 0U);
  if (error == kSuccess) error = library.call("cuDeviceGetCount", &count);
  for (int i = 0; i < count && error == kSuccess; ++i)
    error = read_card(library, i, driver.cards.emplace_back());
  if (error == kNoDevice || (error == kSuccess && count == 0))
    driver.fault = "the NVIDIA driver shows no card; see nvidia-smi and CUDA_VISIBLE_DEVICES";
  else if (error != kSuccess)
    driver.fault =
        fmt::format("the NVIDIA driver does not work (its error {}); see nvidia-smi", error);
  return driver;
}

}  // namespace tlt::runtime
