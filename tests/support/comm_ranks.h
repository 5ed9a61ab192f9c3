// CommRanks: the ranks of a Comm, as a tensor parallel group.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cluster/comm.h"
#include "model/tensor_parallel.h"

namespace tlt::tests {

class CommRanks final : public model::TensorParallelRanks {
 public:
  explicit CommRanks(cluster::Comm& comm) : comm_(comm) {}
  int64_t rank() const override { return comm_.rank(); }
  int64_t size() const override { return comm_.size(); }
  void all_gather(at::Tensor& parts) override { comm_.all_gather(parts); }

 private:
  cluster::Comm& comm_;
};

}  // namespace tlt::tests
