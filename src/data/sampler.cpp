// SPDX-License-Identifier: Apache-2.0
#include "data/sampler.h"

#include <numeric>

#include "base/check.h"
#include "base/random.h"

namespace tlt::data {
namespace {

constexpr uint32_t kOrderPurpose = 0xDA7A0003;  // in the sample's high bits of a random place

}  // namespace

Sampler::Sampler(int64_t size, bool shuffle, int64_t seed)
    : size_(size), shuffle_(shuffle), seed_(seed) {
  TLT_CHECK(size > 0 && size <= int64_t{UINT32_MAX}, size);
  start_epoch(0);
}

void Sampler::start_epoch(int64_t epoch) {
  cursor_ = {.epoch = epoch, .index = 0};
  order_.resize(size_);
  std::iota(order_.begin(), order_.end(), 0U);
  if (!shuffle_) return;
  RandomStream random(seed_, {.step = static_cast<uint32_t>(epoch), .sample = kOrderPurpose});
  random.shuffle(order_);
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
                  "the checkpoint stands at prompt ", cursor.index, " of epoch ", cursor.epoch,
                  ", but there are ", size_, " prompts; resume with the data it was made with");
  start_epoch(cursor.epoch);
  cursor_.index = cursor.index;
}

}  // namespace tlt::data
