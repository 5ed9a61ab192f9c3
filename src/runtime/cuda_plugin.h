// CUDA as a plug-in: `tlt` is linked with nothing of it. `--device cuda` opens PyTorch's
// libtorch_cuda.so, from the folder of the libtorch_cpu.so in use, and then tlt's own
// libtlt_cuda.so (kernels of src/ops/cuda, and src/cuda), which must be of the same build.
//
//   open_cuda(/*card=*/0);  // InputError: what is missing, in one sentence
//   cuda_function<const DeviceKernels*()>("tlt_device_kernels")()
//
// Owns       the libraries, which stay open until the program ends.
// Threading  the thread that drives the device.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "runtime/cuda_driver.h"

namespace tlt::runtime {

// What `--device cuda` needs, and for each part why it cannot be used; empty: it can, as far as can
// be seen without opening it.
struct CudaParts {
  CudaDriver driver;
  std::string torch_path, torch_fault;    // libtorch_cuda.so
  std::string plugin_path, plugin_fault;  // libtlt_cuda.so
};
CudaParts examine_cuda();

// Opens both libraries, registers CUDA's accelerator (accelerator.h), chooses batch-invariant
// products (cuBLASLt without split-K) and makes `card` the current one. A second call only does the
// latter. InputError: no driver or one that is too old, no such card or one that is too old, a
// library that is missing or of another version.
// REQUIRES: no function of ATen that looks for CUDA was called before, as at::show_config() does.
void open_cuda(int card);

// A function that libtlt_cuda.so exports. REQUIRES: open_cuda() was called.
void* cuda_symbol(const char* name);
template <class Function>
Function* cuda_function(const char* name) {
  return reinterpret_cast<Function*>(cuda_symbol(name));
}

// What stands in libtlt_cuda.so before the version of the build that it is of.
inline constexpr char kCudaBuildMark[] = "tlt CUDA plug-in, build ";

}  // namespace tlt::runtime
