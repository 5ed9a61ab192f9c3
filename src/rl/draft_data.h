// DraftData: what a drafter's warm-up learns from: samples with the target's hidden states, made on
// the first start and kept in a store, split into those to learn from and those held out.
//
// Owns       the rows' tokens; the states stay on the disk.
// Borrows    workplace and options.
// Threading  engine thread only.
//
//   DraftData data(options, place, folder);
//   if (!data.try_make()) return;            // interrupted; what was made is kept
//   use(data.training(), data.held_out());
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "rl/run_options.h"
#include "rl/workplace.h"
#include "spot/hidden_recorder.h"
#include "spot/hidden_store.h"

namespace tlt::rl {

class DraftData {
 public:
  // Reads the rows. `layers`: which states the samples have (HiddenStateObserver::layers()). InputError: as
  // Dataset::load and SftDataset::load.
  DraftData(const RunOptions& options, Workplace& place, rollout::Layers layers);

  // Makes the states that are not in the store yet; all workers together. False: interrupted.
  // InputError: the store is another target's, or does not hold a single part.
  [[nodiscard]] bool try_make();

  // Of the first row.
  std::vector<int32_t> example_prompt() const;
  const std::vector<spot::DraftSample>& training() const { return training_; }
  const std::vector<spot::DraftSample>& held_out() const { return held_out_; }

 private:
  using Part = std::optional<std::vector<spot::StoredSample>>;

  std::span<const spot::RecordRow> rows_of(int64_t part) const;
  int64_t parts() const;
  // The part's samples by the engine; nullopt: interrupted.
  Part record(int64_t part);
  // The next part of each worker, from `first` on. False: interrupted, or the store is full.
  bool make_round(int64_t first);
  void split();

  const RunOptions& options_;
  Workplace& place_;
  const rollout::Layers layers_;
  std::vector<spot::RecordRow> rows_;
  int64_t rows_per_part_ = 1;
  std::unique_ptr<rollout::StopString> stop_text_;
  std::unique_ptr<spot::HiddenStore> store_;
  std::unique_ptr<spot::HiddenRecorder> recorder_;  // made when there is something to record
  std::unique_ptr<Progress> progress_;
  int64_t made_parts_ = 0, bytes_ = 0;
  bool full_ = false;
  std::vector<spot::DraftSample> training_, held_out_;
};

}  // namespace tlt::rl
