// Shards: assigns rows of the optimizer's state to workers (ZeRO stage 1: Rajbhandari et al.,
// arXiv 1910.02054).
//
// The parameters, concatenated in their order, are split into one contiguous part per worker, all
// of about the same size. A split is at the end of a panel of rows, since whole panels are written
// faster (ops/weight.h); in a parameter whose tensors must stay whole (muon.h), between two of them.
//
//   const Shards shards(model.parameters(), comm.size());
//   const RowRange mine = shards.of(parameter, comm.rank());   // often none, or all
//   const ElementRange share = shards.share_of(comm.rank());    // of all parameters
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

struct ElementRange {
  int64_t first = 0, last = 0;

  int64_t size() const { return last - first; }
};

class Shards {
 public:
  // are_whole: by parameter, whether its tensors stay whole; empty: none of them.
  Shards(const std::vector<model::Parameter>& parameters, int workers,
         const std::vector<bool>& are_whole = {});

  // A worker's rows of a parameter, by its index in the list.
  RowRange of(size_t parameter, int worker) const;
  // The same for all parameters, concatenated.
  ElementRange share_of(int worker) const;

  // The chunks (chunks.h) of a parameter that begin in a worker's rows: elements of the parameter.
  // This worker sums their squares, in the order in which a worker alone would.
  ElementRange chunks_of(size_t parameter, int worker) const;
  // The end of these chunks, if it is in other workers' rows: elements of all parameters,
  // concatenated, from the end of the worker's share on.
  ElementRange chunk_end_of(int worker) const;

  int workers() const { return workers_; }

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
