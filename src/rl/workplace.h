// Workplace: what every kind of run needs before it begins: device, the other workers, tokenizer
// and model.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "cluster/comm.h"
#include "cluster/launch.h"
#include "data/tokenizer.h"
#include "model/policy_model.h"
#include "rl/run_options.h"
#include "train/lora.h"

namespace tlt::rl {

// The policy a run starts from: the folder's, or random weights where the options say so.
std::unique_ptr<model::PolicyModel> make_policy(const RunOptions& options, const Device& device);

// The adapter that the run trains on it, merged; null: it trains all weights.
std::unique_ptr<train::LoraAdapter> make_adapter(const RunOptions& options,
                                                 const model::PolicyModel& policy);

struct Workplace {
  // Meets the other workers (a worker with other options or another version is refused by name),
  // then loads the model.
  Workplace(const RunOptions& options, const cluster::Launch& launch);

  bool is_first() const { return comm->rank() == 0; }

  // Whether any worker was interrupted: the same answer on all of them, or some would wait for
  // others that have stopped.
  bool anyone_interrupted() const;
  // 128 and the signal that anyone_interrupted() saw, as shells have it: 130 or 143.
  int exit_code_of_stop() const { return 128 + stop_signal_; }

  cluster::Launch launch;
  Device device;
  std::unique_ptr<cluster::Comm> comm;
  data::Tokenizer tokenizer;
  std::unique_ptr<model::PolicyModel> model;
  std::unique_ptr<train::LoraAdapter> adapter;  // null: all weights are trained

 private:
  mutable int stop_signal_ = 0;
};

}  // namespace tlt::rl
