// Random numbers by counter instead of by call order: Philox4x32-10 (Salmon et al., SC'11) keyed by
// the run's seed, with the use (step, prompt, sample, position) as counter. A uniform is the same
// whatever else runs, and no code holds random state.
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

// The counter of a uniform. The high bits of `sample` can hold a purpose (see RandomStream).
struct RandomCounter {
  uint32_t step = 0;      // RL step, epoch
  uint32_t prompt = 0;    // prompt id
  uint32_t sample = 0;    // sample of the group
  uint32_t position = 0;  // token position, index of a draw
};

// Four words of Philox4x32-10.
std::array<uint32_t, 4> philox(uint64_t key, std::array<uint32_t, 4> counter);

// A uniform in [0, 1) with 53 random bits.
double uniform(uint64_t seed, const RandomCounter& counter);

// A sequence of random numbers for one purpose (shuffling, initial weights, problems): the
// counter's position counts up.
class RandomStream {
 public:
  RandomStream(uint64_t seed, const RandomCounter& start) : seed_(seed), counter_(start) {}

  double uniform();                // [0, 1)
  uint64_t below(uint64_t limit);  // [0, limit), without bias. REQUIRES: limit > 0.
  double normal();                 // standard normal (Box-Muller)
  template <class T>
  void shuffle(std::vector<T>& items) {  // Fisher-Yates
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  uint64_t seed_;
  RandomCounter counter_;
};

}  // namespace tlt
