// Activations: the working memory of PolicyModel::forward for the engine. It is kept between calls,
// so that a decode step does not allocate.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "model/policy_model.h"
#include "model/row_graphs.h"

namespace tlt::model {

class Activations {
 public:
  // Memory for passes of up to max_rows token rows; longer ones grow it.
  Activations(const PolicyModel& model, int64_t max_rows);

  // From now on forward captures the inputs of these layers; index L means the final hidden
  // states. captured() is [T, layers D], concatenated by columns, valid until the next pass;
  // undefined without layers. These are the auxiliary hidden states of an EAGLE-3 draft model.
  void capture(std::vector<int64_t> layers) { captured_layers_ = std::move(layers); }
  const at::Tensor& captured() { return captured_.view(); }

  // From now on `graphs`, which outlives the passes, launches what works on rows alone in passes of
  // up to 512 rows. After capture(); not on the CPU.
  void use(const PolicyModel& model, RowGraphs& graphs);

 private:
  friend class PolicyModel;

  // Memory of everything that a pass of this number of rows writes.
  void reserve(const PolicyModel& model, int64_t rows);
  // Rows that a pass of `rows` is computed with.
  int64_t padded(const PolicyModel& model, int64_t rows);

  int64_t max_rows_;
  RowGraphs* graphs_ = nullptr;
  int64_t reserved_rows_ = 0;  // with graphs_

  RowBuffer residual_;  // [T, D]
  RowBuffer hidden_;    // [T, D]
  LayerActivations layer_;
  std::vector<int64_t> captured_layers_;
  RowBuffer captured_;
};

}  // namespace tlt::model
