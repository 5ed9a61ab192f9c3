// UnfinishedUpdate: what an update that was interrupted after some of its optimizer steps needs in
// order to continue, besides weights, optimizer and the step's rollouts: the checkpoint within the
// step has it in state/update.bin.
//
// Threading  pure functions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "train/trainer.h"

namespace tlt::rl {

struct UnfinishedUpdate {
  // Of the steps done; is_abandoned: there are more.
  train::TrainStats critic = {}, policy = {};
  // Of the critic before its update, for each sample; empty: there is no critic.
  std::vector<std::vector<float>> values = {};

  // Optimizer steps done; above 0 the weights are not those of the rollouts any more.
  int64_t steps() const { return critic.steps + policy.steps; }

  void write(const std::string& checkpoint) const;
  // InputError: it is not there, or damaged.
  static UnfinishedUpdate read(const std::string& checkpoint);

  std::string pack() const;
  // InputError, which names `location`: not the bytes of pack().
  static UnfinishedUpdate unpack(std::string_view bytes, const std::string& location);
};

}  // namespace tlt::rl
