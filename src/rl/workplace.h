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

namespace tlt::rl {

// The policy a run starts from: the folder's, or random weights where the options say so.
std::unique_ptr<model::PolicyModel> make_policy(const RunOptions& options, const Device& device);

struct Workplace {
  // Meets the other workers (a worker with other options or another version is refused by name),
  // then loads the model.
  Workplace(const RunOptions& options, const cluster::Launch& launch);

  bool is_first() const { return comm->rank() == 0; }

  // Whether any worker was interrupted: the same answer on all of them, or some would wait for
  // others that have stopped.
  bool anyone_interrupted() const;

  cluster::Launch launch;
  Device device;
  std::unique_ptr<cluster::Comm> comm;
  data::Tokenizer tokenizer;
  std::unique_ptr<model::PolicyModel> model;
};

}  // namespace tlt::rl
