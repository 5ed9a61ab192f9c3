// HiddenCollector: keeps the tokens and hidden states that the engine offers, by sequence. The
// samples of a group share their prompt's.
//
// Owns       the states, in the target's compute type, on the CPU.
// Not here   choosing sequences to train on (draft_buffer.h); files (hidden_store.h).
// Threading  engine thread only.
// Invariant  row i of a sequence's states is the state at its token i.
//
//   HiddenCollector collector;
//   Engine engine(model, options, nullptr, &collector);
//   … a response finishes …
//   std::optional<DraftSample> sample = collector.take(prompt, response, id);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "drafter/hidden_rows.h"
#include "drafter_training/draft_sample.h"
#include "rollout/hidden_state_observer.h"
#include "rollout/request.h"

namespace tlt::drafter_training {

// Successive tokens and their hidden states.
class TokenStates {
 public:
  // Adds the memory that it has to `bytes`.
  explicit TokenStates(std::shared_ptr<int64_t> bytes) : bytes_(std::move(bytes)) {}
  ~TokenStates() { *bytes_ -= counted_; }
  TokenStates(const TokenStates&) = delete;
  TokenStates& operator=(const TokenStates&) = delete;

  int64_t size() const { return std::ssize(tokens_); }
  const std::vector<int32_t>& tokens() const { return tokens_; }
  // A view of `count` tokens' states from `first` on, [count, S]. REQUIRES: size() > 0.
  at::Tensor states(int64_t first, int64_t count) const {
    return rows_.memory().narrow(0, first, count);
  }
  const std::shared_ptr<int64_t>& bytes() const { return bytes_; }
  void append(const rollout::HiddenStateObserver::Rows& hidden, std::span<const int32_t> tokens);

 private:
  const std::shared_ptr<int64_t> bytes_;
  std::vector<int32_t> tokens_;
  drafter::HiddenRows rows_;
  int64_t counted_ = 0;  // of *bytes_
};

struct HiddenSequence {
  explicit HiddenSequence(std::shared_ptr<const TokenStates> shared)
      : prompt(std::move(shared)), response(prompt->bytes()) {}

  const std::shared_ptr<const TokenStates> prompt;  // shared by its group
  TokenStates response;
  int64_t number = 0;  // index among the sequences of a draft buffer

  int64_t tokens() const { return prompt->size() + response.size(); }
};

// Tokens first … first + tokens - 1 of a sequence as a sample. Its states may be read after the
// sequence has grown.
DraftSample piece_of(const std::shared_ptr<const HiddenSequence>& sequence, int64_t first,
                     int64_t tokens, uint32_t id);

class HiddenCollector final : public rollout::HiddenStateObserver {
 public:
  // layers: HiddenStateObserver::layers().
  explicit HiddenCollector(rollout::Layers layers = {}) : layers_(std::move(layers)) {}

  rollout::Layers layers() const override { return layers_; }
  void on_hidden_states(uint32_t prompt_id, uint32_t sample, int32_t position, const Rows& hidden,
                        std::span<const int32_t> tokens) override {
    add(prompt_id, sample, position, hidden, tokens);
  }
  // The same; returns the sequence if it begins with these rows, else null. A response whose prompt
  // was not offered from its first token on, or was forgotten, is ignored; so is the rest of one
  // that has a gap.
  std::shared_ptr<HiddenSequence> add(uint32_t prompt_id, uint32_t sample, int32_t position,
                                      const Rows& hidden, std::span<const int32_t> tokens);

  // The states of prompt and response as one sample of the tokens that have a state: all but the
  // response's last one. Drops the response's states; the prompt's stay for the rest of the group.
  // nullopt: fewer than two tokens have states. REQUIRES: the response is finished.
  std::optional<DraftSample> take(const std::vector<int32_t>& prompt,
                                  const rollout::Response& response, uint32_t id);
  // The same for a prompt alone; drops its states.
  std::optional<DraftSample> take_prompt(uint32_t prompt_id, int32_t response_begin, uint32_t id);
  // Drops the collector's hold on a prompt: its group is done.
  void forget_prompt(uint32_t prompt_id) { prompts_.erase(prompt_id); }
  // Drops its hold on a sequence, or on all and their prompts; later rows of them are ignored.
  void forget(const HiddenSequence& sequence);
  void forget_all();

  // No tokens yet; bytes() counts their memory.
  std::shared_ptr<TokenStates> make_tokens() const { return std::make_shared<TokenStates>(bytes_); }
  // Memory of all tokens and states that are still held, here or elsewhere.
  int64_t bytes() const { return *bytes_; }

 private:
  const rollout::Layers layers_;
  const std::shared_ptr<int64_t> bytes_ = std::make_shared<int64_t>(0);
  std::map<uint32_t, std::shared_ptr<TokenStates>> prompts_;
  // Unfinished or not taken, by prompt and sample.
  std::map<std::pair<uint32_t, uint32_t>, std::shared_ptr<HiddenSequence>> sequences_;
};

}  // namespace tlt::drafter_training
