// SPDX-License-Identifier: Apache-2.0
#include "data/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/random.h"

namespace tlt::data {
namespace {

// Purpose of a random counter, in the high bits of `sample`.
constexpr uint32_t kOrderPurpose = 0xDA7A0003;
constexpr uint32_t kPartPurpose = 0xDA7A0005;

}  // namespace

Sampler::Sampler(const std::vector<SamplerPart>& parts, bool shuffle, int64_t seed)
    : shuffle_(shuffle), seed_(seed) {
  double most = 0;
  for (const SamplerPart& part : parts) most = std::max(most, part.size > 0 ? part.weight : 0);
  TLT_CHECK_INPUT(most > 0, "no prompts in the files that data.train_weights gives a weight");
  for (const SamplerPart& part : parts) {
    const double share = part.weight / most;
    const int64_t used = std::llround(share * static_cast<double>(part.size));
    parts_.push_back({part.size, share > 0 ? std::clamp<int64_t>(used, 1, part.size) : 0});
    size_ += parts_.back().used;
  }
  TLT_CHECK(size_ <= int64_t{UINT32_MAX}, size_);
  start_epoch(0);
}

void Sampler::start_epoch(int64_t epoch) {
  cursor_ = {.epoch = epoch, .index = 0};
  order_.clear();
  int64_t first_row = 0;
  for (size_t i = 0; i < parts_.size(); ++i) {
    add_part(i, first_row, epoch);
    first_row += parts_[i].size;
  }
  if (!shuffle_) return;
  RandomStream random(seed_, {.step = static_cast<uint32_t>(epoch), .sample = kOrderPurpose});
  random.shuffle(order_);
}

// For a weighted part: rotates through its rows in an order that is the same in all epochs.
void Sampler::add_part(size_t part, int64_t first_row, int64_t epoch) {
  const auto [size, used] = parts_[part];
  std::vector<uint32_t> rows(static_cast<size_t>(size));
  std::iota(rows.begin(), rows.end(), static_cast<uint32_t>(first_row));
  if (used == size) {
    order_.insert(order_.end(), rows.begin(), rows.end());
    return;
  }
  if (shuffle_) {
    RandomStream random(seed_, {.step = static_cast<uint32_t>(part), .sample = kPartPurpose});
    random.shuffle(rows);
  }
  for (int64_t i = 0; i < used; ++i)
    order_.push_back(rows[static_cast<size_t>((epoch * used + i) % size)]);
}

std::vector<int64_t> Sampler::next_batch(int64_t count) {
  TLT_CHECK_INPUT(count > 0 && count <= size_, "a batch of ", count, " prompts from ", size_,
                  "; lower data.train_batch_size or give more prompts");
  if (cursor_.index + count > size_) start_epoch(cursor_.epoch + 1);
  const auto begin = order_.begin() + cursor_.index;
  cursor_.index += count;
  return {begin, begin + count};
}

void Sampler::restore(const SamplerCursor& cursor) {
  TLT_CHECK_INPUT(cursor.epoch >= 0 && cursor.index >= 0 && cursor.index <= size_,
                  "the checkpoint is at prompt ", cursor.index, " of epoch ", cursor.epoch,
                  ", but there are ", size_, " prompts; resume with the data it was made with");
  start_epoch(cursor.epoch);
  cursor_.index = cursor.index;
}

}  // namespace tlt::data
