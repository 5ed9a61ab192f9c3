// SPDX-License-Identifier: Apache-2.0
#include "ops/device_batch.h"

#include <ATen/ATen.h>

#include "base/check.h"

namespace tlt::ops {
namespace {

struct Stored {
  std::vector<int64_t> rows, pages, slots;
};

Stored stored_of(const Batch& batch) {
  Stored stored;
  for (const Segment& segment : batch.segments)
    for (int32_t row = 0; row < segment.rows && !segment.is_tree(); ++row) {
      const int32_t position = segment.first_position + row;
      stored.rows.push_back(segment.first_row + row);
      stored.pages.push_back(segment.pages[position / kPageSlots]);
      stored.slots.push_back(position % kPageSlots);
    }
  return stored;
}

}  // namespace

DeviceBatch::DeviceBatch(const Batch& batch, const at::Device& device) {
  std::vector<int64_t> all;
  const auto add = [&](const auto& begin, const auto& end) {
    const Part part{std::ssize(all), end - begin};
    all.insert(all.end(), begin, end);
    return part;
  };
  const auto add_all = [&](const auto& list) { return add(list.begin(), list.end()); };
  const Part tokens = add_all(batch.tokens), positions = add_all(batch.positions);
  const Stored stored = stored_of(batch);
  const Part rows = add_all(stored.rows), pages = add_all(stored.pages),
             slots = add_all(stored.slots);
  std::vector<int64_t> path;
  for (const Segment& segment : batch.segments) {
    pages_.push_back(add(segment.pages, segment.pages + pages_for(segment.end_position())));
    for (int32_t row = 0; row < segment.rows && segment.is_tree(); ++row) {
      const auto at = static_cast<size_t>(segment.first_row + row);
      path.resize(static_cast<size_t>(batch.positions[at] - segment.first_position));
      path.push_back(segment.first_tree_row + row);
      paths_.push_back(add_all(path));
    }
  }
  indices_ = at::tensor(all, at::kLong).to(device);
  tokens_ = part(tokens);
  positions_ = part(positions);
  stored_rows_ = part(rows);
  stored_pages_ = part(pages);
  stored_slots_ = part(slots);
}

at::Tensor DeviceBatch::part(const Part& which) const {
  return indices_.narrow(0, which.first, which.count);
}

at::Tensor DeviceBatch::pages(size_t segment, int64_t positions) const {
  const Part& all = pages_[segment];
  const int64_t count = pages_for(positions);
  TLT_CHECK(count <= all.count, count, " pages of ", all.count);
  return part({all.first, count});
}

at::Tensor DeviceBatch::path(int64_t tree_row) const {
  return part(paths_[static_cast<size_t>(tree_row)]);
}

}  // namespace tlt::ops
