// SPDX-License-Identifier: Apache-2.0
#include "cuda/accelerator_cuda.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

namespace tlt::cuda {
namespace {

class CudaGraph final : public runtime::Graph {
 public:
  explicit CudaGraph(at::Device device) : device_(device) {}

  // `stream` must not be the default one, which cannot be captured.
  void capture(at::cuda::CUDAStream stream, at::cuda::MempoolId_t pool,
               const std::function<void()>& body) {
    const c10::cuda::CUDAStreamGuard guard(stream);
    // Only this thread's calls are checked: others may allocate memory meanwhile.
    graph_.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    try {
      body();
    } catch (...) {
      end_failed_capture(pool);
      throw;
    }
    graph_.capture_end();
  }

  void replay() override {
    const c10::cuda::CUDAGuard guard(device_);
    graph_.replay();
  }

 private:
  // A capture that an error has made invalid ends with a second error, and leaves the allocator's
  // state to the caller.
  void end_failed_capture(at::cuda::MempoolId_t pool) noexcept {
    try {
      graph_.capture_end();
    } catch (const std::exception&) {
      (void)cudaGetLastError();
      end_allocations(pool);
    }
  }
  void end_allocations(at::cuda::MempoolId_t pool) noexcept {
    try {
      c10::cuda::CUDACachingAllocator::endAllocateToPool(device_.index(), pool);
    } catch (const std::exception&) {  // it had ended
    }
  }

  at::Device device_;
  at::cuda::CUDAGraph graph_;
};

class CudaAccelerator final : public runtime::Accelerator {
 public:
  std::unique_ptr<runtime::Graph> capture(at::Device device,
                                          const std::function<void()>& body) override {
    const c10::cuda::CUDAGuard guard(device);
    auto graph = std::make_unique<CudaGraph>(device);
    if (!has_pool_) pool_ = at::cuda::graph_pool_handle();
    has_pool_ = true;
    C10_CUDA_CHECK(cudaDeviceSynchronize());  // work before it on other streams
    graph->capture(at::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index()), pool_,
                   body);
    return graph;
  }

  runtime::DeviceMemory memory(at::Device device) override {
    const c10::cuda::CUDAGuard guard(device);
    size_t free = 0, total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return {.free_bytes = static_cast<int64_t>(free), .total_bytes = static_cast<int64_t>(total)};
  }

  at::Tensor pinned(at::IntArrayRef sizes, at::ScalarType type) override {
    return at::empty(sizes, at::TensorOptions().dtype(type).pinned_memory(true));
  }

 private:
  at::cuda::MempoolId_t pool_;  // of all graphs
  bool has_pool_ = false;
};

}  // namespace

runtime::Accelerator& accelerator() {
  static CudaAccelerator accelerator;
  return accelerator;
}

}  // namespace tlt::cuda
