// DraftData: the training data of a draft model's warm-up: samples with the target's hidden states,
// computed on the first start, kept in a store, and split into training and held-out samples.
//
// Owns       the tokens of the rows; the hidden states stay on disk.
// Borrows    run context and options.
// Threading  engine thread only.
//
//   DraftData data(options, context, layers);
//   if (!data.try_make()) return;             // interrupted; finished parts are kept
//   use(data.training(), data.held_out());
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "drafter_training/hidden_recorder.h"
#include "drafter_training/hidden_store.h"
#include "run/run_context.h"
#include "run/run_options.h"

namespace tlt::warmup {

class DraftData {
 public:
  // Reads the rows. `layers`: the layers whose hidden states are recorded
  // (HiddenStateObserver::layers()). InputError: as Dataset::load and SftDataset::load.
  DraftData(const run::RunOptions& options, run::RunContext& context, rollout::Layers layers);

  // Computes the hidden states that the store lacks; all workers together. False: interrupted.
  // InputError: the store belongs to another target or has other data.
  [[nodiscard]] bool try_make();

  // The prompt of the first row.
  std::vector<int32_t> example_prompt() const;
  const std::vector<drafter_training::DraftSample>& training() const { return training_; }
  const std::vector<drafter_training::DraftSample>& held_out() const { return held_out_; }

 private:
  using Part = std::optional<std::vector<drafter_training::StoredSample>>;

  std::span<const drafter_training::RecordRow> rows_of(int64_t part) const;
  int64_t parts() const;
  // Computes the samples of a part with the engine; nullopt: interrupted.
  Part record(int64_t part);
  // Computes one part per worker, starting at part `first`. False: a worker was interrupted.
  bool make_round(int64_t first);
  void split();

  const run::RunOptions& options_;
  run::RunContext& context_;
  const rollout::Layers layers_;
  std::vector<drafter_training::RecordRow> rows_;
  int64_t rows_per_part_ = 1;
  std::unique_ptr<rollout::StopString> stop_string_;
  std::unique_ptr<drafter_training::HiddenStore> store_;
  std::unique_ptr<drafter_training::HiddenRecorder>
      recorder_;  // null until a part has to be computed
  std::unique_ptr<Progress> progress_;
  int64_t made_parts_ = 0, bytes_ = 0;
  std::vector<drafter_training::DraftSample> training_, held_out_;
};

}  // namespace tlt::warmup
