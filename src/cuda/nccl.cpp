// The NCCL backend of cluster's ProcessGroupComm.
//
// SPDX-License-Identifier: Apache-2.0
#include <c10/cuda/CUDAFunctions.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

// A communicator for `card` of this process. The first collective connects it.
extern "C" c10d::Backend* tlt_make_nccl_backend(c10d::Store* store, int rank, int size, int card,
                                                int64_t timeout_milliseconds) {
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(card));
  auto options = c10d::ProcessGroupNCCL::Options::create();
  // c10d's watchdog ends the process when an operation is late. ProcessGroupComm throws at the
  // timeout; the watchdog's longer limit matters only if this thread is stuck inside the driver.
  options->timeout = 2 * std::chrono::milliseconds(timeout_milliseconds);
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(
             c10::intrusive_ptr<c10d::Store>::reclaim_copy(store), rank, size, std::move(options))
      .release();
}
