// RowGraphs: who launches the parts of a forward pass that work on rows alone, all of it but the
// attention. A pass has one part more than layers: each ends where an attention begins, or with the
// pass. Off the CPU a part can be recorded once and replayed (rollout/graph_cache.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

namespace tlt::model {

class RowGraphs {
 public:
  virtual ~RowGraphs() = default;

  // Launches the work of a part of a pass of `rows` padded rows (ops/padded_rows.h), which is the
  // same in each such pass and reads and writes the same memory. Parts are launched in order, from
  // part 0 on.
  virtual void launch(int64_t rows, int64_t part, const std::function<void()>& work) = 0;

  // The memory that the parts read and write has moved.
  virtual void clear() = 0;
};

}  // namespace tlt::model
