// Shards: assigns rows of the optimizer's state to workers (ZeRO stage 1: Rajbhandari et al.,
// arXiv 1910.02054).
//
// The parameters, concatenated in their order, are split into one contiguous part per worker, all
// of about the same size. A split is at the end of a panel of rows, since whole panels are written
// faster (ops/weight.h); in a parameter whose tensors must stay whole (muon.h), between two of them.
//
//   const Shards shards(model.parameters(), comm.size());
//   const RowRange mine = shards.of(parameter, comm.rank());   // often none, or all
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "model/parameter.h"

namespace tlt::train {

struct RowRange {
  int64_t first = 0, rows = 0;
};

class Shards {
 public:
  // are_whole: by parameter, whether its tensors stay whole; empty: none of them.
  Shards(const std::vector<model::Parameter>& parameters, int workers,
         const std::vector<bool>& are_whole = {});

  // A worker's rows of a parameter, by its index in the list.
  RowRange of(size_t parameter, int worker) const;

 private:
  struct Extent {
    int64_t rows = 0, row_size = 0;
    int64_t begin = 0;                  // elements of the parameters before it
    std::vector<int64_t> tensors = {};  // where its whole tensors end; empty: split at panels
  };
  // The first of a worker's rows; those of the previous worker end there.
  int64_t first_row(const Extent& extent, int worker) const;

  const int workers_;
  std::vector<Extent> extents_;  // in the order of the parameters
  int64_t elements_ = 0;
};

}  // namespace tlt::train
