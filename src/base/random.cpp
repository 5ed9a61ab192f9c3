// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include <cmath>
#include <numbers>

#include "base/check.h"
#include "base/random_block.h"

namespace tlt {

std::array<uint32_t, 4> philox(uint64_t key, std::array<uint32_t, 4> counter) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  uint32_t key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
#pragma GCC unroll 10  // a loop takes 1.6 times as long
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = static_cast<uint64_t>(kMultiplier0) * counter[0];
    const uint64_t product1 = static_cast<uint64_t>(kMultiplier1) * counter[2];
    counter = {
        static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(product1),
        static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return counter;
}

namespace {

double to_unit(uint32_t high, uint32_t low) {
  const uint64_t bits = (static_cast<uint64_t>(high) << 32 | low) >> 11;
  return static_cast<double>(bits) * 0x1.0p-53;
}

}  // namespace

double uniform(uint64_t seed, const RandomCounter& counter) {
  const auto words = philox(seed, {counter.step, counter.prompt, counter.sample, counter.position});
  return to_unit(words[0], words[1]);
}

void fill_uniforms(uint64_t seed, RandomCounter first, std::span<double> uniforms) {
  for (double& it : uniforms) it = uniform(seed, first), ++first.position;
}

double RandomStream::uniform() {
  const double value = tlt::uniform(seed_, counter_);
  ++counter_.position;
  return value;
}

uint64_t RandomStream::below(uint64_t limit) {
  TLT_CHECK(limit > 0);
  const uint64_t bound =
      limit * (UINT64_MAX / limit);  // values from here on would favour small results
  while (true) {
    const auto words =
        philox(seed_, {counter_.step, counter_.prompt, counter_.sample, counter_.position++});
    const uint64_t value = static_cast<uint64_t>(words[2]) << 32 | words[3];
    if (value < bound) return value % limit;
  }
}

double RandomStream::normal() {
  const double radius = std::sqrt(-2 * std::log1p(-uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

}  // namespace tlt
