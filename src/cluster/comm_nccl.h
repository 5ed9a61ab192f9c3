// The NCCL backend of ProcessGroupComm. comm_nccl.cpp is compiled in CUDA builds only; other
// builds reject CUDA tensors.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace tlt::cluster {

// Makes a communicator for this process' `cuda_device`. The first collective connects it.
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    int rank, int size, int cuda_device,
                                                    std::chrono::milliseconds timeout);

}  // namespace tlt::cluster
