// SPDX-License-Identifier: Apache-2.0
#include "train/shards.h"

#include <algorithm>

#include "base/check.h"

namespace tlt::train {

Shards::Shards(const std::vector<model::Parameter>& parameters, int workers) : workers_(workers) {
  TLT_CHECK(workers >= 1, workers, " workers");
  for (const model::Parameter& parameter : parameters) {
    const std::vector<int64_t> shape = parameter.shape();
    const Extent extent{shape[0], shape.size() == 2 ? shape[1] : 1, elements_};
    extents_.push_back(extent);
    elements_ += extent.rows * extent.row_size;
  }
}

RowRange Shards::of(size_t parameter, int worker) const {
  const Extent& extent = extents_.at(parameter);
  const int64_t first = first_row(extent, worker);
  return {first, first_row(extent, worker + 1) - first};
}

int64_t Shards::first_row(const Extent& extent, int worker) const {
  const int64_t cut = elements_ / workers_ * worker + elements_ % workers_ * worker / workers_;
  const int64_t panel = ops::Weight::kPanel * extent.row_size;
  const int64_t panels = (std::max<int64_t>(0, cut - extent.begin) + panel - 1) / panel;
  return std::min(extent.rows, panels * ops::Weight::kPanel);
}

}  // namespace tlt::train
