// EarlyGradients: gradients of finished groups, computed while other workers still decode.
//
// A group's advantages are known as soon as all its samples are scored, the policy does not change
// before the update, and the update adds gradients in an order that does not matter. So an idle
// worker computes packs of its finished groups, and the update only what is left: the same weights.
// Only groups of which this worker has all samples; only those of the first mini-batch.
//
// Owns       the training samples of those groups until the update.
// Borrows    the trainer, the reference policy.
// Threading  engine thread only.
//
//   EarlyGradients early(options, trainer, /*reference=*/nullptr);
//   early.begin_step();
//   early.add(prompt_tokens, rollouts);                    // all samples of a prompt, scored
//   while (is_idle && early.try_part()) …
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cluster/comm.h"
#include "run/rollout.h"
#include "run/run_options.h"
#include "train/sample.h"
#include "train/trainer.h"

namespace tlt::rl {

// The training sample of a rollout, without reference and advantages. Its group is the prompt's
// index.
train::TrainSample make_sample(std::span<const int32_t> prompt, const run::Rollout& rollout);

class EarlyGradients {
 public:
  // `reference`: of a KL divergence, or null.
  // REQUIRES: obstacle(options) is empty; all outlive this.
  EarlyGradients(const run::RunOptions& options, train::Trainer& trainer,
                 const model::PolicyModel* reference);

  // Why gradients cannot be computed early with these options: the option; empty: they can.
  static std::string obstacle(const run::RunOptions& options);

  void begin_step();
  // The reference logprobs of the samples that were computed early; an empty list: they were not.
  std::vector<std::vector<float>> reference_of(std::span<const train::TrainSample> samples) const;
  // A prompt of the step all of whose samples are here and scored, by sample.
  void add(std::span<const int32_t> prompt, std::span<const run::Rollout> rollouts);
  bool has_work() const { return !ready_.empty(); }
  // Whether the next part is the reference logprobs of a group.
  bool is_at_reference() const {
    return reference_ && !ready_.empty() && !ready_.front().has_advantages;
  }
  // Goes one layer further with a group's pack, or computes the group's reference logprobs; false:
  // there is nothing to do. The update completes a pack that is not.
  bool try_part();

 private:
  struct Group {
    std::vector<train::TrainSample> samples;
    std::vector<double> scores;
    bool has_advantages = false;
  };
  void add_advantages_to(Group& group);

  const run::RunOptions& options_;
  train::Trainer& trainer_;
  const model::PolicyModel* const reference_;
  const std::unique_ptr<cluster::Comm> alone_;  // of size 1
  const int64_t prompts_;                       // of the first mini-batch
  // By group: the reference logprobs of its samples.
  std::map<int64_t, std::vector<std::vector<float>>> reference_logprobs_;
  std::deque<Group> ready_;  // with packs to compute, the first perhaps begun
};

}  // namespace tlt::rl
