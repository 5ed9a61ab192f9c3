// SPDX-License-Identifier: Apache-2.0
#include "cluster/comm_nccl.h"

#include <c10/cuda/CUDAFunctions.h>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace tlt::cluster {

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    int rank, int size, int cuda_device,
                                                    std::chrono::milliseconds timeout) {
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(cuda_device));
  auto options = c10d::ProcessGroupNCCL::Options::create();
  // c10d's watchdog ends the process when an operation is late. ProcessGroupComm throws at
  // `timeout`; the watchdog's longer limit matters only if this thread is stuck inside the driver.
  options->timeout = 2 * timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, std::move(options));
}

}  // namespace tlt::cluster
