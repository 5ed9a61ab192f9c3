// SPDX-License-Identifier: Apache-2.0
#include "ops/device_batch.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "ops/cuda/attention_parameters.h"

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

std::vector<int64_t> entries_of(const Batch& batch) {
  std::vector<int64_t> entries;
  for (const Segment& segment : batch.segments)
    for (int32_t row = 0; row < segment.rows; ++row) {
      const int32_t position = segment.first_position + row;
      entries.push_back(segment.is_tree() ? ~int64_t{segment.first_tree_row + row}
                                          : segment.pages[position / kPageSlots] * kPageSlots +
                                                position % kPageSlots);
    }
  return entries;
}

// What attention reads of each row: where its lists begin, and its root.
struct RowLists {
  std::vector<int64_t> tables, roots, paths;

  void add(const Segment& segment, int64_t table, int64_t path) {
    tables.push_back(table);
    roots.push_back(segment.is_tree() ? segment.first_position : INT32_MAX);
    paths.push_back(path);
  }
};

// For the gradient of attention, which walks each key over the queries that see it.
struct KeyWalks {
  std::vector<int64_t> tiles, ends, seen_until;
};

KeyWalks key_walks_of(const Batch& batch) {
  KeyWalks walks;
  for (const Segment& segment : batch.segments) {
    const int64_t end = segment.first_row + segment.rows;
    for (int64_t row = segment.first_row; row < end; row += cuda::kKeyRows)
      walks.tiles.push_back(row);
    walks.ends.resize(static_cast<size_t>(end), end);
    walks.seen_until.resize(static_cast<size_t>(end), end);
    if (segment.shared_prefix < 0) continue;
    const Segment& prefix = batch.segments[static_cast<size_t>(segment.shared_prefix)];
    std::fill_n(walks.seen_until.begin() + prefix.first_row, prefix.rows, end);
  }
  return walks;
}

}  // namespace

DeviceBatch::DeviceBatch(const Batch& batch, const at::Device& device) {
  std::vector<int64_t> all;
  const auto add = [&](const auto& begin, const auto& end) {
    const Part part{std::ssize(all), end - begin};
    all.insert(all.end(), begin, end);
    return part;
  };
  // The lists that become tensors, which are views of one upload.
  std::vector<std::pair<at::Tensor*, Part>> views;
  const auto add_view = [&](const auto& list, at::Tensor& view) {
    views.emplace_back(&view, add(list.begin(), list.end()));
  };
  add_view(batch.tokens, tokens_);
  add_view(batch.positions, positions_);
  add_view(entries_of(batch), entries_);
  const Stored stored = stored_of(batch);
  add_view(stored.rows, stored_rows_);
  add_view(stored.pages, stored_pages_);
  add_view(stored.slots, stored_slots_);
  std::vector<int64_t> path;
  RowLists row_lists;
  for (const Segment& segment : batch.segments) {
    pages_.push_back(add(segment.pages, segment.pages + pages_for(segment.end_position())));
    positions_seen_ = std::max<int64_t>(positions_seen_, segment.end_position());
    for (int32_t row = 0; row < segment.rows; ++row) {
      if (segment.is_tree()) {
        const auto at = static_cast<size_t>(segment.first_row + row);
        path.resize(static_cast<size_t>(batch.positions[at] - segment.first_position));
        path.push_back(segment.first_tree_row + row);
        paths_.push_back(add(path.begin(), path.end()));
      }
      row_lists.add(segment, pages_.back().first, segment.is_tree() ? paths_.back().first : 0);
    }
  }
  add_view(row_lists.tables, tables_);
  add_view(row_lists.roots, roots_);
  add_view(row_lists.paths, row_paths_);
  const KeyWalks walks = key_walks_of(batch);
  add_view(walks.tiles, key_tiles_);
  add_view(walks.ends, ends_);
  add_view(walks.seen_until, seen_until_);
  indices_ = at::tensor(all, at::kLong).to(device);
  for (const auto& [view, which] : views) *view = part(which);
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
