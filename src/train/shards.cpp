// SPDX-License-Identifier: Apache-2.0
#include "train/shards.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "train/chunks.h"

namespace tlt::train {

Shards::Shards(const std::vector<model::Parameter>& parameters, int workers,
               const std::vector<bool>& are_whole)
    : workers_(workers) {
  TLT_CHECK(workers >= 1, workers, " workers");
  TLT_CHECK(are_whole.empty() || are_whole.size() == parameters.size());
  for (size_t p = 0; p < parameters.size(); ++p) {
    const std::vector<int64_t> shape = parameters[p].shape();
    Extent extent{shape[0], shape.size() == 2 ? shape[1] : 1, elements_};
    if (!are_whole.empty() && are_whole[p])
      for (const model::Parameter::Part& part : parameters[p].parts)
        extent.tensors.push_back(part.first_row + part.rows);
    elements_ += extent.rows * extent.row_size;
    extents_.push_back(std::move(extent));
  }
}

RowRange Shards::of(size_t parameter, int worker) const {
  const Extent& extent = extents_.at(parameter);
  const int64_t first = first_row(extent, worker);
  return {first, first_row(extent, worker + 1) - first};
}

ElementRange Shards::share_of(int worker) const {
  ElementRange share;
  for (const Extent& extent : extents_) {
    share.first += first_row(extent, worker) * extent.row_size;
    share.last += first_row(extent, worker + 1) * extent.row_size;
  }
  return share;
}

ElementRange Shards::chunks_of(size_t parameter, int worker) const {
  const Extent& extent = extents_.at(parameter);
  // The first chunk that begins there or later.
  const auto next_chunk = [&](int64_t row) {
    return std::min(chunks(row * extent.row_size) * kChunk, extent.rows * extent.row_size);
  };
  return {next_chunk(first_row(extent, worker)), next_chunk(first_row(extent, worker + 1))};
}

ElementRange Shards::chunk_end_of(int worker) const {
  ElementRange rest = {share_of(worker).last, share_of(worker).last};
  for (size_t p = 0; p < extents_.size(); ++p)
    if (const ElementRange own = chunks_of(p, worker); own.size() > 0)
      rest.last = std::max(rest.last, extents_[p].begin + own.last);
  return rest;
}

int64_t Shards::first_row(const Extent& extent, int worker) const {
  const int64_t cut = elements_ / workers_ * worker + elements_ % workers_ * worker / workers_;
  const int64_t before = std::max<int64_t>(0, cut - extent.begin);
  if (!extent.tensors.empty()) {
    const int64_t rows = (before + extent.row_size - 1) / extent.row_size;
    if (rows == 0) return 0;
    const auto end = std::ranges::lower_bound(extent.tensors, rows);
    return end == extent.tensors.end() ? extent.rows : *end;
  }
  const int64_t panel = ops::Weight::kPanel * extent.row_size;
  const int64_t panels = (before + panel - 1) / panel;
  return std::min(extent.rows, panels * ops::Weight::kPanel);
}

}  // namespace tlt::train
