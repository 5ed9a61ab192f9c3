// Sampler: the order in which prompts are used. Each epoch has its own order, which depends on the
// seed and the epoch only; a rest that is smaller than a batch is dropped, as in verl. Of a part
// with less than the largest weight, an epoch has only some of the rows, and the next epoch the
// rows that follow: no row is used twice before each was used once, and never twice in an epoch.
//
// Owns       the order of the epoch, 4 bytes per row.
// Threading  one thread.
//
//   Sampler sampler(dataset.parts(), /*shuffle=*/true, /*seed=*/1);
//   std::vector<int64_t> batch = sampler.next_batch(16);
//   SamplerCursor saved = sampler.cursor();    // into the checkpoint; restore(saved) resumes
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tlt::data {

// Position of a sampler.
struct SamplerCursor {
  int64_t epoch = 0;
  int64_t index = 0;  // rows of the epoch that were used

  bool operator==(const SamplerCursor&) const = default;
};

// A range of consecutive rows, and how often each is used relative to those of other parts.
struct SamplerPart {
  int64_t size = 0;
  double weight = 1;
};

class Sampler {
 public:
  Sampler(const std::vector<SamplerPart>& parts, bool shuffle, int64_t seed);
  Sampler(int64_t size, bool shuffle, int64_t seed)
      : Sampler(std::vector<SamplerPart>{{.size = size}}, shuffle, seed) {}

  // The next `count` indices, all of one epoch. InputError: there are fewer.
  std::vector<int64_t> next_batch(int64_t count);

  // Rows of an epoch.
  int64_t rows() const { return size_; }

  // Whole batches of an epoch.
  int64_t batches_per_epoch(int64_t count) const { return size_ / count; }

  const SamplerCursor& cursor() const { return cursor_; }

  // InputError: the cursor is of a sampler of another size.
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
