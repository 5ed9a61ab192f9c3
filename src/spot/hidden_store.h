// HiddenStore: samples with their hidden states on the disk, in parts that are whole or not there.
//
//   <folder>/store.json               whose states these are
//   <folder>/part_000003.safetensors  tokens of all samples of the part, states of each
//   <folder>/part_000003.json         size, SHA-256 and the samples' lengths; written last
//
// A part that was cut off by a crash, or whose bytes have changed, is not there: it is made again.
// A store of another target or of other prompts is refused. Several workers may write different
// parts of one store.
//
// Owns       nothing but the tokens of what was opened for reading; states are read when asked for.
// Not here   how states are made (hidden_recorder.h).
// Threading  one thread at a time for each object.
//
//   HiddenStore store(folder, {.target = target_digest(model), .source = digest});
//   if (!store.has(3)) store.write(3, samples);
//   std::vector<DraftSample> samples = store.samples(/*parts=*/4);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/policy_model.h"
#include "model/safetensors.h"
#include "spot/draft_sample.h"

namespace tlt::spot {

// SHA-256 of all weights and their names: another model, another dtype or another training step
// has another.
std::string target_digest(const model::PolicyModel& target);

struct StoreIdentity {
  std::string target;  // target_digest()
  std::string source;  // options_digest() of what the samples depend on
};

// A sample of the store and which prompt it came from.
struct StoredSample {
  DraftSample sample;
  int64_t prompt = 0;  // index of the prompt, for the held-out split
};

// Of the samples' states.
int64_t bytes_of(std::span<const StoredSample> samples);

class HiddenStore {
 public:
  // Opens the store or begins it. InputError: it is another target's, or of other prompts.
  HiddenStore(std::string folder, const StoreIdentity& identity);

  // Whether the part is there, with the bytes it was written with. Says so once where it is not
  // whole.
  bool has(int64_t part) const;
  // Replaces the part. `samples` may be empty: then nothing of these prompts was of use.
  void write(int64_t part, std::span<const StoredSample> samples);
  void remove(int64_t part);
  // Of the part's states. REQUIRES: has(part).
  int64_t bytes(int64_t part) const;

  // All samples of parts 0 … parts - 1. REQUIRES: they are there. The samples may outlive the
  // store; InputError when states cannot be read any more.
  std::vector<StoredSample> samples(int64_t parts) const;

 private:
  std::string path(int64_t part, const char* ending) const;

  const std::string folder_;
};

}  // namespace tlt::spot
