// HiddenCollector: keeps the hidden states that the engine offers, sequence by sequence, until they
// are taken as samples.
//
// Owns       the states it was offered and that were not taken, in memory.
// Not here   the choice of sequences; files (hidden_store.h).
// Threading  engine thread only.
//
//   HiddenCollector collector;
//   Engine engine(model, options, nullptr, &collector);
//   … a response finishes …
//   std::optional<DraftSample> sample = collector.take(prompt_id, tokens, response, id);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "drafter_training/draft_sample.h"
#include "rollout/hidden_state_observer.h"
#include "rollout/request.h"

namespace tlt::drafter_training {

class HiddenCollector final : public rollout::HiddenStateObserver {
 public:
  // layers: HiddenStateObserver::layers().
  explicit HiddenCollector(rollout::Layers layers = {}) : layers_(std::move(layers)) {}

  rollout::Layers layers() const override { return layers_; }
  void offer(uint32_t prompt_id, uint32_t sample, int32_t position, const at::Tensor& hidden,
             std::span<const int32_t> tokens) override;

  // The states of prompt and response as one sample of the tokens that have a state: all but the
  // response's last one. Drops the response's states; the prompt's stay for the rest of the group.
  // nullopt: fewer than two tokens have states. REQUIRES: the response is finished.
  std::optional<DraftSample> take(const std::vector<int32_t>& prompt,
                                  const rollout::Response& response, uint32_t id);
  // The same for a prompt alone; drops its states.
  std::optional<DraftSample> take_prompt(uint32_t prompt_id, int32_t response_begin, uint32_t id);
  // Drops a prompt's states: the group is done or not needed.
  void forget_prompt(uint32_t prompt_id) { kept_.erase({prompt_id, kPrompt}); }

  // Bytes of all states that are kept.
  int64_t bytes() const;

 private:
  // Grows as rows are offered.
  struct Kept {
    std::vector<int32_t> tokens;
    int32_t first_position = 0;
    std::string rows;  // raw bytes of the states
    int64_t hidden = 0;
    at::ScalarType type = at::kFloat;
  };
  static at::Tensor join(std::span<const Kept* const> parts);

  const rollout::Layers layers_;
  std::map<std::pair<uint32_t, uint32_t>, Kept> kept_;  // by prompt and sample
};

}  // namespace tlt::drafter_training
