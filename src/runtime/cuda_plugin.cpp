// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda_plugin.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <caffe2/core/common.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <filesystem>
#include <string_view>

#include "base/check.h"
#include "base/files.h"
#include "base/sentence.h"
#include "base/version.h"
#include "runtime/accelerator.h"

namespace tlt::runtime {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTorchLibrary = "libtorch_cuda.so";
constexpr const char* kPluginLibrary = "libtlt_cuda.so";
// The plug-in has 2 MB; what is larger is none.
constexpr int64_t kPluginBytes = int64_t{64} << 20;

std::string this_build() { return fmt::format("{} ({})", kVersion, kCommit); }

// The folder of the libtorch_cpu.so that this process has loaded.
fs::path torch_folder() {
  Dl_info info{};
  const auto* address = reinterpret_cast<const void*>(&caffe2::GetBuildOptions);
  TLT_CHECK(dladdr(address, &info) != 0 && info.dli_fname != nullptr, "where is libtorch_cpu.so?");
  return fs::weakly_canonical(fs::path(info.dli_fname).parent_path());
}

// TORCH_VERSION of the loaded libtorch_cpu.so.
std::string torch_version() {
  const auto& options = caffe2::GetBuildOptions();
  const auto found = options.find("TORCH_VERSION");
  return found == options.end() ? "unknown" : found->second;
}

std::string torch_fault(const fs::path& path) {
  const std::string version = torch_version(), folder = path.parent_path().string();
  if (version != TORCH_VERSION)
    return fmt::format("{} has torch {}, and tlt was built with {}; install that", folder, version,
                       TORCH_VERSION);
  std::error_code error;
  if (!fs::exists(path, error))
    return fmt::format("no {} in {}; install the whole wheel torch {} for CUDA {} (docs/gpu.md)",
                       kTorchLibrary, folder, TORCH_VERSION, kCudaMajor);
  return "";
}

// In the program's folder, or where `make install` puts libraries.
fs::path plugin_path() {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  const fs::path installed = folder.parent_path() / "lib/tlt" / kPluginLibrary;
  const fs::path built = folder / kPluginLibrary;
  return fs::exists(built, error) || !fs::exists(installed, error) ? built : installed;
}

std::string plugin_fault(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error))
    return fmt::format("no {} in {}; build tlt where nvcc of CUDA {} is", kPluginLibrary,
                       path.parent_path().string(), kCudaMajor);
  std::string build = "unknown";
  if (static_cast<int64_t>(fs::file_size(path, error)) <= kPluginBytes && !error) {
    const std::string text = read_file(path.string(), kPluginBytes);
    const size_t begin = text.find(kCudaBuildMark);
    if (begin != text.npos) build = text.c_str() + begin + std::string_view(kCudaBuildMark).size();
  }
  if (build == this_build()) return "";
  return fmt::format("{} is of build {}, and this program of {}; build both together",
                     path.string(), build, this_build());
}

// Opens a library with its symbols visible to those opened later.
void* open_library(const std::string& path, const char* advice) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  const char* reason = library == nullptr ? dlerror() : nullptr;
  TLT_CHECK_INPUT(library != nullptr, path, " cannot be opened (", reason ? reason : "unknown",
                  "); ", advice);
  return library;
}

void* plugin = nullptr;

void check(const CudaParts& parts, int card) {
  const int count = static_cast<int>(parts.driver.cards.size());
  TLT_CHECK_INPUT(parts.driver.fault.empty(), parts.driver.fault);
  TLT_CHECK_INPUT(card < count, "this machine has ", counted(count, "card"),
                  "; give a number below ", count);
  const std::string fault = card_fault(parts.driver.cards[static_cast<size_t>(card)]);
  TLT_CHECK_INPUT(fault.empty(), fault);
  TLT_CHECK_INPUT(parts.torch_fault.empty(), parts.torch_fault);
  TLT_CHECK_INPUT(parts.plugin_fault.empty(), parts.plugin_fault);
}

void open_libraries(const CudaParts& parts) {
  open_library(parts.torch_path, "it is of another version, or lacks a library that it needs");
  const auto& hooks = at::detail::getCUDAHooks();
  TLT_CHECK(hooks.hasCUDART(), "libtorch looked for CUDA before it was opened");
  const auto version = static_cast<int>(hooks.versionCUDART());
  TLT_CHECK_INPUT(version / 1000 == kCudaMajor, parts.torch_path, " is for CUDA ",
                  cuda_version_text(version), "; install the wheel torch ", TORCH_VERSION,
                  " for CUDA ", kCudaMajor);
  plugin = open_library(parts.plugin_path, "build tlt again");
  cuda_function<void()>("tlt_cuda_choose_products")();
  register_accelerator(at::kCUDA, *cuda_function<Accelerator*()>("tlt_cuda_accelerator")());
}

}  // namespace

CudaParts examine_cuda() {
  const fs::path torch = torch_folder() / kTorchLibrary, plugin_file = plugin_path();
  return {.driver = read_cuda_driver(),
          .torch_path = torch.string(),
          .torch_fault = torch_fault(torch),
          .plugin_path = plugin_file.string(),
          .plugin_fault = plugin_fault(plugin_file)};
}

void open_cuda(int card) {
  const CudaParts parts = examine_cuda();
  check(parts, card);
  if (plugin == nullptr) open_libraries(parts);
  c10::impl::getDeviceGuardImpl(at::kCUDA)->setDevice(
      at::Device(at::kCUDA, static_cast<at::DeviceIndex>(card)));
}

void* cuda_symbol(const char* name) {
  TLT_CHECK(plugin != nullptr, "CUDA is not open");
  void* found = dlsym(plugin, name);
  TLT_CHECK(found != nullptr, kPluginLibrary, " does not export ", name);
  return found;
}

}  // namespace tlt::runtime
