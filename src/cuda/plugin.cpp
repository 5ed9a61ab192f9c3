// What libtlt_cuda.so exports (runtime/cuda_plugin.h): its build, its accelerator and the settings of
// CUDA's libraries. The kernels are exported by src/ops/cuda/kernels.cu, NCCL by nccl.cpp.
//
// SPDX-License-Identifier: Apache-2.0
#include <ATen/Context.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "base/version.h"
#include "cuda/accelerator_cuda.h"
#include "runtime/cuda_plugin.h"

namespace {

using tlt::kCommit, tlt::kVersion, tlt::runtime::kCudaBuildMark;

// "tlt CUDA plug-in, build 0.1.0 (0123456789ab)"
constexpr auto kBuild = [] {
  std::array<char, sizeof kCudaBuildMark + sizeof kVersion + sizeof kCommit + 3> text{};
  char* to = text.data();
  for (const std::string_view part : {kCudaBuildMark, kVersion, " (", kCommit, ")"})
    to = std::copy(part.begin(), part.end(), to);
  return text;
}();

}  // namespace

extern "C" {

// In the file for those who look without opening it.
extern const decltype(kBuild) tlt_cuda_build;
const decltype(kBuild) tlt_cuda_build = kBuild;

tlt::runtime::Accelerator* tlt_cuda_accelerator() { return &tlt::cuda::accelerator(); }

// A row of a product must not depend on the other rows: cuBLASLt, which can be told not to divide a
// sum among blocks (split-K), no reduced precision, and an error for what cannot be reproduced.
void tlt_cuda_choose_products() {
  // ATen refuses products unless it is set to this or to :16:8, cuBLAS's condition.
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::Context& context = at::globalContext();
  context.setBlasPreferredBackend(at::BlasBackend::Cublaslt);
  context.setAllowBF16ReductionCuBLAS(/*allow_reduced_precision=*/false, /*allow_splitk=*/false);
  context.setFloat32MatmulPrecision("highest");  // no TF32
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  // Otherwise every new tensor would be filled with NaN: one kernel more for each.
  context.setDeterministicFillUninitializedMemory(false);
}

}  // extern "C"
