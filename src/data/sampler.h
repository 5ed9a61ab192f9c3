// Sampler: the order in which prompts are used. Each epoch has its own order, which depends on the
// seed and the epoch only; what is left at its end and is less than a batch is dropped, as verl
// does. Of a part that weighs less than the heaviest, an epoch has only a share of the rows, and
// the next epoch the rows that follow: no row is used twice before each was used once, and never
// twice in an epoch.
//
// Owns       the order of the epoch, 4 bytes a row.
// Threading  one thread.
//
//   Sampler sampler(dataset.parts(), /*shuffle=*/true, /*seed=*/1);
//   std::vector<int64_t> batch = sampler.next_batch(16);
//   SamplerCursor saved = sampler.cursor();    // into the checkpoint; restore(saved) goes on from
//   there
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tlt::data {

// How far a sampler is.
struct SamplerCursor {
  int64_t epoch = 0;
  int64_t index = 0;  // rows of the epoch that were used

  bool operator==(const SamplerCursor&) const = default;
};

// So many rows one after another, and how often each is used compared with those of other parts.
struct SamplerPart {
  int64_t size = 0;
  double weight = 1;
};

class Sampler {
 public:
  Sampler(std::vector<SamplerPart> parts, bool shuffle, int64_t seed);
  Sampler(int64_t size, bool shuffle, int64_t seed)
      : Sampler(std::vector<SamplerPart>{{.size = size}}, shuffle, seed) {}

  // The next `count` indices, all of one epoch. InputError: there are not as many.
  std::vector<int64_t> next_batch(int64_t count);

  // Rows of an epoch.
  int64_t rows() const { return size_; }

  // Whole batches of an epoch.
  int64_t batches_per_epoch(int64_t count) const { return size_ / count; }

  const SamplerCursor& cursor() const { return cursor_; }

  // InputError: no cursor of a sampler of this size.
  void restore(const SamplerCursor& cursor);

 private:
  void start_epoch(int64_t epoch);
  void add_part(size_t part, int64_t first_row, int64_t epoch);

  struct Part {
    int64_t size, used;  // rows, and how many of them an epoch has
  };
  std::vector<Part> parts_;
  int64_t size_ = 0;  // rows of an epoch
  const bool shuffle_;
  const int64_t seed_;
  SamplerCursor cursor_;
  std::vector<uint32_t> order_;
};

}  // namespace tlt::data
