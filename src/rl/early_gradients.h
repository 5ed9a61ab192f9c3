// EarlyGradients: gradients of finished groups, computed while other workers still decode.
//
// A group's advantages are known as soon as all its samples are scored, the policy does not change
// before the update, and the update adds gradients in an order that does not matter. So an idle
// worker computes packs of finished groups, and the update only what is left: the same weights.
// Only groups of the first mini-batch.
//
// Owns       the training samples of the group in progress until the update.
// Borrows    the trainer, the reference policy.
// Threading  engine thread only.
//
//   EarlyGradients early(options, trainer, /*reference=*/nullptr);
//   early.begin_step();
//   if (early.takes(prompt)) early.begin(prompt_tokens, rollouts);   // all samples, scored
//   while (is_idle && early.try_part()) …
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cluster/comm.h"
#include "run/rollout.h"
#include "run/run_options.h"
#include "train/sample.h"
#include "train/trainer.h"

namespace tlt::rl {

// The training sample of a rollout, without reference and advantages, after the row's prompt or its
// own. Its group is the prompt's index.
train::TrainSample make_sample(std::span<const int32_t> prompt, const run::Rollout& rollout);

class EarlyGradients {
 public:
  // `reference`: of a KL divergence, or the teacher whose logprobs the advantages need; or null.
  // REQUIRES: obstacle(options) is empty; all outlive this.
  EarlyGradients(const run::RunOptions& options, train::Trainer& trainer,
                 const model::PolicyModel* reference);

  // Why gradients cannot be computed early with these options, for a log; empty: they can.
  static std::string obstacle(const run::RunOptions& options);

  void begin_step();
  // The reference logprobs of the samples that were computed early; an empty list: they were not.
  std::vector<std::vector<float>> reference_of(std::span<const train::TrainSample> samples) const;
  // Whether gradients of this prompt of the step may be computed early.
  bool takes(uint32_t prompt) const { return prompt < prompts_; }
  // All responses to such a prompt, scored, in order; with ReMax the last is the greedy one.
  // REQUIRES: !has_work(); no other worker computes this group.
  void begin(std::span<const int32_t> prompt, std::span<const run::Rollout> rollouts);
  bool has_work() const { return group_.has_value(); }
  // Whether the next part is the reference logprobs of a group.
  bool is_at_reference() const { return reference_ && group_ && !group_->has_advantages; }
  // Goes one layer further with the group's pack, or computes its reference logprobs; false:
  // there is nothing to do. The update completes a pack that is not.
  bool try_part();

 private:
  struct Group {
    std::vector<train::TrainSample> samples;
    std::vector<double> scores, baselines;
    bool has_advantages = false;
  };
  struct Scored {
    std::vector<std::vector<int32_t>> tokens;  // of each sample
    std::vector<std::vector<float>> logprobs;
  };
  void set_advantages();

  const run::RunOptions& options_;
  train::Trainer& trainer_;
  const model::PolicyModel* const reference_;
  const std::unique_ptr<cluster::Comm> alone_;  // of size 1
  const int64_t prompts_;                       // of the first mini-batch
  // By group.
  std::map<int64_t, Scored> reference_logprobs_;
  std::optional<Group> group_;  // in progress
};

}  // namespace tlt::rl
