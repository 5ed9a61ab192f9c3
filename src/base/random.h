// Random numbers that belong to a place, not to a call: Philox4x32-10 (Salmon et al., SC'11) keyed
// by the run's seed and counted by the place, so a number is the same whatever else runs beside it.
// Nobody holds random state.
//
//   const double u = uniform(seed, {.step = 3, .prompt = 17, .sample = 0, .position = 41});
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tlt {

// Where a random number is used. `sample` has room for a purpose in its high bits (see
// RandomStream).
struct Place {
  uint32_t step = 0;      // RL step, epoch
  uint32_t prompt = 0;    // prompt id
  uint32_t sample = 0;    // sample of the group
  uint32_t position = 0;  // token position, draw number
};

// Four words of Philox4x32-10.
std::array<uint32_t, 4> philox(uint64_t key, std::array<uint32_t, 4> counter);

// A number in [0, 1) with 53 random bits.
double uniform(uint64_t seed, const Place& place);

// A sequence of numbers of one purpose (shuffling, initial weights, problems): the place's position
// counts up.
class RandomStream {
 public:
  RandomStream(uint64_t seed, const Place& start) : seed_(seed), place_(start) {}

  double uniform();                // [0, 1)
  uint64_t below(uint64_t limit);  // [0, limit), without bias. REQUIRES: limit > 0.
  double normal();                 // standard normal (Box-Muller)
  template <class T>
  void shuffle(std::vector<T>& items) {  // Fisher-Yates
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  uint64_t seed_;
  Place place_;
};

}  // namespace tlt
