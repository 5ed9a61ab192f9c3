// SPDX-License-Identifier: Apache-2.0
#include "ops/device_batch.h"

#include <ATen/ATen.h>

#include <algorithm>

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

// Of each row.
struct Seen {
  std::vector<int64_t> tables, roots, paths;

  void add(const Segment& segment, int64_t table, int64_t path) {
    tables.push_back(table);
    roots.push_back(segment.is_tree() ? segment.first_position : INT32_MAX);
    paths.push_back(path);
  }
};

// For the walks of keys over the queries that see them.
struct Seeing {
  std::vector<int64_t> tiles, ends, until;
};

Seeing seeing_of(const Batch& batch) {
  Seeing seeing;
  for (const Segment& segment : batch.segments) {
    const int64_t end = segment.first_row + segment.rows;
    for (int64_t row = segment.first_row; row < end; row += cuda::kKeyRows)
      seeing.tiles.push_back(row);
    seeing.ends.resize(static_cast<size_t>(end), end);
    seeing.until.resize(static_cast<size_t>(end), end);
    if (segment.shared_prefix < 0) continue;
    const Segment& prefix = batch.segments[static_cast<size_t>(segment.shared_prefix)];
    std::fill_n(seeing.until.begin() + prefix.first_row, prefix.rows, end);
  }
  return seeing;
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
  const Part tokens = add_all(batch.tokens), positions = add_all(batch.positions),
             entries = add_all(entries_of(batch));
  const Stored stored = stored_of(batch);
  const Part rows = add_all(stored.rows), pages = add_all(stored.pages),
             slots = add_all(stored.slots);
  std::vector<int64_t> path;
  Seen seen;
  for (const Segment& segment : batch.segments) {
    pages_.push_back(add(segment.pages, segment.pages + pages_for(segment.end_position())));
    positions_seen_ = std::max<int64_t>(positions_seen_, segment.end_position());
    for (int32_t row = 0; row < segment.rows; ++row) {
      if (segment.is_tree()) {
        const auto at = static_cast<size_t>(segment.first_row + row);
        path.resize(static_cast<size_t>(batch.positions[at] - segment.first_position));
        path.push_back(segment.first_tree_row + row);
        paths_.push_back(add_all(path));
      }
      seen.add(segment, pages_.back().first, segment.is_tree() ? paths_.back().first : 0);
    }
  }
  const Part tables = add_all(seen.tables), roots = add_all(seen.roots),
             row_paths = add_all(seen.paths);
  const Seeing seeing = seeing_of(batch);
  const Part tiles = add_all(seeing.tiles), ends = add_all(seeing.ends),
             until = add_all(seeing.until);
  indices_ = at::tensor(all, at::kLong).to(device);
  tokens_ = part(tokens);
  positions_ = part(positions);
  entries_ = part(entries);
  stored_rows_ = part(rows);
  stored_pages_ = part(pages);
  stored_slots_ = part(slots);
  tables_ = part(tables);
  roots_ = part(roots);
  row_paths_ = part(row_paths);
  key_tiles_ = part(tiles);
  ends_ = part(ends);
  seen_until_ = part(until);
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
