// HiddenStore: samples with their hidden states on disk, in parts that are complete or absent.
//
//   <folder>/store.json               identity: target and data
//   <folder>/part_000003.safetensors  tokens of all samples of the part, states of each
//   <folder>/part_000003.json         size, SHA-256 and the samples' lengths; written last
//
// A part that a crash has cut off, or whose bytes have changed, counts as absent and is made again.
// A store of another target or of other prompts is rejected. Several workers may write different
// parts of one store.
//
// Owns       only the tokens of parts opened for reading; states are read on demand.
// Not here   computing the states (hidden_recorder.h).
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

#include "drafter_training/draft_sample.h"
#include "model/policy_model.h"
#include "model/safetensors.h"

namespace tlt::drafter_training {

// SHA-256 of all weights and their names: differs for another model, another dtype or another
// training step.
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

// Bytes of the samples' states.
int64_t bytes_of(std::span<const StoredSample> samples);

class HiddenStore {
 public:
  // Opens the store or creates it. Throws InputError if it is of another target or other prompts.
  HiddenStore(std::string folder, const StoreIdentity& identity);

  // True if the part is complete and has the bytes it was written with. Logs a warning if it is
  // damaged.
  bool has(int64_t part) const;
  // Replaces the part. `samples` may be empty: no sample of these prompts was usable.
  void write(int64_t part, std::span<const StoredSample> samples);
  void remove(int64_t part);
  // Bytes of the part's states. REQUIRES: has(part).
  int64_t bytes(int64_t part) const;

  // All samples of parts 0 … parts - 1. REQUIRES: has() of each. The samples may outlive the store;
  // reading their states throws InputError if the files are gone.
  std::vector<StoredSample> samples(int64_t parts) const;

 private:
  std::string path(int64_t part, const char* ending) const;

  const std::string folder_;
};

}  // namespace tlt::drafter_training
