// SPDX-License-Identifier: Apache-2.0
#include "drafter/eagle/eagle_states.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace tlt::drafter {
namespace {

constexpr int64_t kFirstStates = 16;

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

void EagleStates::reserve(const Device& device, int64_t count, const at::Tensor& like) {
  const int64_t have = states_.defined() ? states_.size(0) : 0;
  const int64_t want = std::min(count, window_);
  if (want <= have) return;
  at::Tensor more =
      device.empty({std::min(window_, std::max({want, 2 * have, kFirstStates})), like.size(1)},
                   like.scalar_type());
  if (have > 0) more.narrow(0, 0, have).copy_(states_);  // less than a window: not wrapped yet
  states_ = std::move(more);
}

void EagleStates::append(const Device& device, const at::Tensor& hidden,
                         std::span<const int32_t> rows) {
  reserve(device, count_ + std::ssize(rows), hidden);
  const auto kept = rows.last(std::min(rows.size(), static_cast<size_t>(window_)));
  count_ += std::ssize(rows) - std::ssize(kept);
  for (const int32_t row : kept) copy_row(hidden, row, states_, count_++ % window_);
}

void EagleStates::append_all(const Device& device, const at::Tensor& hidden) {
  reserve(device, count_ + hidden.size(0), hidden);
  for (int64_t row = 0; row < hidden.size(0); ++row)
    copy_row(hidden, row, states_, count_++ % window_);
}

void EagleStates::copy(int64_t index, at::Tensor& to, int64_t row) const {
  TLT_CHECK(index >= first() && index < count_, "state ", index, " of ", first(), " to ", count_);
  copy_row(states_, index % window_, to, row);
}

int64_t EagleStates::memory_bytes() const {
  return states_.defined() ? static_cast<int64_t>(states_.nbytes()) : 0;
}

}  // namespace tlt::drafter
