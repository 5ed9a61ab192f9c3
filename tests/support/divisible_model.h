// A tiny model that tensor parallel groups of 2 and 4 can divide; four ranks have padding in the
// vocabulary.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cluster/comm.h"
#include "model/tensor_parallel.h"
#include "tests/support/tiny_model.h"

namespace tlt::tests {

// 4 ranks have 25 rows of the vocabulary each, two of which are padding on the last one.
inline model::ModelConfig divisible_config(model::Family family) {
  model::ModelConfig config = tiny_config(family);
  config.heads = 8;
  config.kv_heads = 4;
  config.intermediate = 128;
  config.vocabulary = 98;
  return config;
}

// The ranks of a Comm.
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
