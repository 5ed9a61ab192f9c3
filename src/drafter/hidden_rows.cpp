// SPDX-License-Identifier: Apache-2.0
#include "drafter/hidden_rows.h"

#include <ATen/ATen.h>

#include <cstring>

#include "base/check.h"

namespace tlt::drafter {
namespace {

constexpr int64_t kFirstRows = 16;

}  // namespace

void copy_row(const at::Tensor& from, int64_t from_row, at::Tensor& to, int64_t to_row) {
  TLT_CHECK(from.scalar_type() == to.scalar_type() && from.size(1) == to.size(1) &&
                from_row < from.size(0) && to_row < to.size(0),
            "row ", from_row, " of ", from.size(0), " to row ", to_row, " of ", to.size(0));
  if (!to.is_cpu()) {
    to.select(0, to_row).copy_(from.select(0, from_row));
    return;
  }
  const auto bytes = static_cast<size_t>(to.size(1)) * to.element_size();
  std::memcpy(static_cast<char*>(to.data_ptr()) + static_cast<size_t>(to_row) * bytes,
              static_cast<const char*>(from.const_data_ptr()) +
                  static_cast<size_t>(from_row * from.stride(0)) * from.element_size(),
              bytes);
}

void HiddenRows::reserve(int64_t count, const at::Tensor& like) {
  const int64_t have = memory_.defined() ? memory_.size(0) : 0;
  const int64_t want = std::min(count, limit_);
  if (want <= have) return;
  at::Tensor more = at::empty(
      {std::min(limit_, std::max({want, 2 * have, kFirstRows})), like.size(1)}, like.options());
  if (have > 0) more.narrow(0, 0, have).copy_(memory_);  // less than the limit: not wrapped yet
  memory_ = std::move(more);
}

void HiddenRows::append(const at::Tensor& hidden, int64_t first, int64_t count) {
  reserve(count_ + count, hidden);
  for (int64_t row = first; row < first + count; ++row)
    copy_row(hidden, row, memory_, count_++ % limit_);
}

void HiddenRows::append(const at::Tensor& hidden, std::span<const int32_t> rows) {
  reserve(count_ + std::ssize(rows), hidden);
  const auto kept = rows.last(std::min(rows.size(), static_cast<size_t>(limit_)));
  count_ += std::ssize(rows) - std::ssize(kept);
  for (const int32_t row : kept) copy_row(hidden, row, memory_, count_++ % limit_);
}

void HiddenRows::copy(int64_t index, at::Tensor& to, int64_t to_row) const {
  TLT_CHECK(index >= first() && index < count_, "row ", index, " of ", first(), " to ", count_);
  copy_row(memory_, index % limit_, to, to_row);
}

}  // namespace tlt::drafter
