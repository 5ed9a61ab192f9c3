// A libtorch_cuda.so for tests: only says which CUDA it is for, the number of the environment
// variable TLT_TEST_CUDART.
//
// SPDX-License-Identifier: Apache-2.0
#include <ATen/detail/CUDAHooksInterface.h>

#include <cstdlib>

namespace at {

// ATen looks for this name.
class CUDAHooks final : public CUDAHooksInterface {
 public:
  explicit CUDAHooks(CUDAHooksArgs) {}
  bool hasCUDART() const override { return true; }
  long versionCUDART() const override {
    const char* version = std::getenv("TLT_TEST_CUDART");
    return version == nullptr ? 0 : std::atol(version);
  }
};

REGISTER_CUDA_HOOKS(CUDAHooks)

}  // namespace at
