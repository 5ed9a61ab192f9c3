// ProcessGroupComm: the Comm of several workers, over PyTorch's c10d: a TCPStore for the
// rendezvous, Gloo for CPU tensors, NCCL for CUDA tensors.
//
// Every value of the rendezvous is authenticated (authenticated_store.h), every Gloo connection is
// checked once, and then the listening sockets take no further connection (listeners.h). Tensors
// travel in clear: docs/trust.md.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "cluster/comm.h"

namespace tlt::cluster {

// Called by make_comm(); use that.
std::unique_ptr<Comm> make_process_group_comm(const Launch& launch, const CommOptions& options);

}  // namespace tlt::cluster
