// HiddenRecorder: an engine that makes samples with hidden states: of responses it generates, or of
// given ones, which it reads like prompts (prefill). The states are those the engine computes
// anyway; there is no second forward pass.
//
// Owns       an engine and the states it offers.
// Borrows    the target and StopString, for its engine.
// Not here   storage of the samples (hidden_store.h).
// Threading  engine thread only.
//
//   HiddenRecorder recorder(target, options, &stop_string);
//   auto samples = recorder.roll_out(prompts, plan);        // nullopt: interrupted
//   auto samples = recorder.read(rows);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "drafter_training/hidden_collector.h"
#include "drafter_training/hidden_store.h"
#include "rollout/engine.h"

namespace tlt::drafter_training {

// A prompt, or a prompt and its response.
struct RecordRow {
  std::vector<int32_t> tokens;
  int32_t response_begin = 0;  // tokens.size() if there is no response
  uint32_t prompt_id = 0;      // its id in the counter of the random numbers
  int64_t prompt = 0;          // StoredSample::prompt
};

struct RecordPlan {
  std::shared_ptr<const rollout::SamplingOptions> sampling;
  int64_t samples = 1;
  uint32_t rl_step = 0;
  uint64_t seed = 0;
};

class HiddenRecorder {
 public:
  // Called with the number of responses finished or rows read.
  using See = std::function<void(int64_t count)>;

  // layers: the layers whose states the samples have (HiddenStateObserver::layers()).
  HiddenRecorder(const model::PolicyModel& target, const rollout::EngineOptions& options,
                 const rollout::StopString* stop_string, See see, rollout::Layers layers = {});

  // Samples in the order of prompts and samples; those of one token are skipped. nullopt: the run
  // was interrupted. REQUIRES: prompt ids differ.
  std::optional<std::vector<StoredSample>> roll_out(std::span<const RecordRow> prompts,
                                                    const RecordPlan& plan);
  // The same for given responses. A row's last token is not read: its state is never needed.
  std::optional<std::vector<StoredSample>> read(std::span<const RecordRow> rows);

 private:
  const See see_;
  HiddenCollector collector_;
  rollout::Engine engine_;
};

}  // namespace tlt::drafter_training
