// Checkpoints of a run: written in the background, whole or not at all, and checked when they are
// read.
//
//   checkpoints/step_000010/policy/            Hugging Face folder of the policy
//   checkpoints/step_000010/state/optimizer.safetensors   master weights and moments, float32
//   checkpoints/step_000010/state/loop.json    how far the run was (run/loop_state.h); and other
//   texts checkpoints/step_000010/MANIFEST.json      size and SHA-256 of each file
//   checkpoints/latest                         "step_000010"
//   checkpoints/unfinished_update/             the same within a step, after some optimizer steps
//
// A checkpoint is written under a temporary name, flushed to the disk and renamed: what has its
// final name is whole.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/background_writer.h"
#include "model/safetensors.h"
#include "train/optimizer.h"

namespace tlt::train {

// What is kept in state/ besides the optimizer, by file name; kLoopText is always there.
using StateTexts = std::map<std::string, std::string>;
inline constexpr const char* kLoopText = "loop.json";
// Of a checkpoint within a step: stands for all options that its results depend on.
inline constexpr const char* kOptionsText = "options.sha256";

// What a checkpoint is made of. REQUIRES: copies, since another thread writes them.
struct CheckpointParts {
  std::vector<model::TensorSource> optimizer;  // Optimizer::snapshot()
  StateTexts texts;
  // Each puts files of its own into the checkpoint's folder: policy/, drafter/ …
  std::vector<std::function<void(const std::string& folder)>> files;
};

// Owns a writer thread. Threading: engine thread only.
class CheckpointWriter {
 public:
  // Keeps the newest `keep` of this run's checkpoints, 0: all: those it writes and those up to
  // `resumed_from`, the step of the checkpoint that the run was resumed from (0: none). Newer ones
  // than that are broken or of another run: they are not counted and not deleted.
  CheckpointWriter(std::string folder, int64_t keep, int64_t resumed_from = 0);

  // Writes in the background; waits only when the one before is not written yet. Throws what an
  // earlier write threw. A checkpoint within a step goes when the next whole one is there.
  void save(int64_t step, CheckpointParts parts);
  void save_within_step(CheckpointParts parts);

  // Waits for the disk.
  void drain() { writer_.drain(); }

 private:
  void write(const std::string& name, const CheckpointParts& parts) const;
  void write_whole(int64_t step, const CheckpointParts& parts);
  void push(CheckpointParts parts, std::function<void(const CheckpointParts&)> write);
  void delete_old();

  const std::string folder_;
  const int64_t keep_, resumed_from_;
  std::set<int64_t> written_;  // writer's thread only
  BackgroundWriter writer_;    // last: its jobs use the rest
};

struct CheckpointPlace {
  std::string folder;  // …/checkpoints/step_000010
  int64_t step = 0;    // steps done
  bool is_within_step = false;
};

// The newest checkpoint whose files are all as the manifest says, and whose loop.json is of the
// step in its folder's name; a broken one is named in a warning and the one before it taken.
// nullopt: there is none. InputError: there are some, and all of them are broken.
std::optional<CheckpointPlace> find_latest(const std::string& folder);

// The checkpoint within a step, if there is one that is whole, whose kOptionsText is `options`, and
// whose step is one of the run's; a warning says why another one is not used.
std::optional<CheckpointPlace> find_within_step(const std::string& folder,
                                                const std::string& options, int64_t total_steps);

// Where the checkpoint of a step is, if there is one.
CheckpointPlace place_of(const std::string& folder, int64_t step);
CheckpointPlace place_within_step(const std::string& folder, int64_t steps_done);

// SHA-256 of the manifest, which has those of all files; empty: there is none.
std::string manifest_digest(const CheckpointPlace& place);

// Loads weights and optimizer, whoever shares its state now and then; `optimizer_steps` is what
// loop.json says.
void load_checkpoint(const CheckpointPlace& place, Optimizer& optimizer, int64_t optimizer_steps);
// The same from another file of Optimizer::snapshot(). InputError: it is not there.
void load_optimizer(const std::string& path, Optimizer& optimizer, int64_t optimizer_steps);

// A text of state/; nullopt: that checkpoint has none of this name.
std::optional<std::string> read_text(const CheckpointPlace& place, const std::string& name);

}  // namespace tlt::train
