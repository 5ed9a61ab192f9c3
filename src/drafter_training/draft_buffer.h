// DraftBuffer: keeps tokens and hidden states of the rollouts of this step and the previous one, so
// that the draft model can be trained on them while other workers still decode.
//
// The engine offers the hidden states it computes anyway (hidden_state_observer.h). In the middle
// of a step only short responses are finished; training on those alone would bias the draft model.
// So partial responses are used, too, and samples of this step are mixed with long responses of the
// previous one (TLT's one-step offset). One sequence in kHeldOutEvery is held out: it is never
// drawn and serves to measure the draft model.
//
// Owns       the sequences, at most `bytes` of them; the oldest is dropped first.
// Not here   joining what the engine offers to sequences (hidden_collector.h); training
//            (draft_trainer.h); states on disk (hidden_store.h).
// Threading  engine thread only.
//
//   DraftBuffer buffer({.bytes = 1 << 28, .seed = 0});
//   Engine engine(model, options, nullptr, &buffer);
//   buffer.begin_step(7);
//   … the engine runs …
//   std::vector<DraftSample> batch = buffer.draw(/*tokens=*/2048, /*window=*/512);
//   buffer.end_step();
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "drafter_training/draft_sample.h"
#include "drafter_training/hidden_collector.h"
#include "rollout/hidden_state_observer.h"

namespace tlt::drafter_training {

class DraftBuffer final : public rollout::HiddenStateObserver {
 public:
  static constexpr int64_t kHeldOutEvery = 8;

  struct Limits {
    int64_t bytes = int64_t{1} << 29;
    uint64_t seed = 0;            // of the sampling in draw()
    rollout::Layers layers = {};  // layers_to_record() of the draft model (draft_sample.h)
    // Of the states and tokens that add() takes; 0: any.
    int64_t columns = 0, vocabulary = 0;
  };
  explicit DraftBuffer(const Limits& limits);

  // Begins an RL step, whose rollouts are kept. Drops what is older than the previous step.
  void begin_step();
  // Ends the step: states offered after it (validation) are not kept.
  void end_step() { is_open_ = false; }

  rollout::Layers layers() const override { return limits_.layers; }
  bool is_open() const override { return is_open_; }
  void on_hidden_states(uint32_t prompt_id, uint32_t sample, int32_t position, const Rows& hidden,
                        std::span<const int32_t> tokens) override;

  // Pieces of sequences for an optimizer step, each of at most `window` tokens, together about
  // `tokens`, or fewer if there are fewer. Half of them are from the previous step, long ones
  // preferred. Each call draws different pieces, reproducibly. Their states may be read after more
  // was offered.
  std::vector<DraftSample> draw(int64_t tokens, int64_t window);
  // The number of tokens that can be drawn.
  int64_t drawable_tokens() const;

  // The held-out sequences, newest step first, each from its first response token on.
  std::vector<DraftSample> held_out(int64_t tokens, int64_t window) const;

  // save() serializes the whole buffer. add() adds such bytes to the present contents: the buffers
  // of several workers may be added to one. InputError: the bytes are not a buffer.
  std::string save() const;
  void add(std::string_view bytes);

  int64_t bytes() const { return growing_.bytes(); }
  int64_t sequences() const { return std::ssize(now_) + std::ssize(before_); }

 private:
  using Kept = std::vector<std::shared_ptr<HiddenSequence>>;

  void shrink();
  Kept drawable(const Kept& kept) const;

  const Limits limits_;
  bool is_open_ = false;
  int64_t begun_ = 0;   // sequences since the buffer was made
  uint32_t drawn_ = 0;  // samples since the buffer was made

  HiddenCollector growing_;  // sequences of this step, except for dropped ones
  Kept now_, before_;        // this step's and the previous one's, oldest first
};

}  // namespace tlt::drafter_training
