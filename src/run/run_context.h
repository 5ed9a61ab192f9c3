// RunContext: the run context that every command needs: device, communicator, tokenizer, model and
// adapter.
//
// Owns       all of them.
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "cluster/comm.h"
#include "cluster/launch.h"
#include "data/data_options.h"
#include "model/policy_model.h"
#include "run/run_options.h"
#include "tokenizer/tokenizer.h"
#include "train/lora.h"
#include "train/value_model.h"

namespace tlt::run {

// The device of this worker: trainer.device; "cuda" without a number is the card of the worker's
// local rank, so that the workers of a host take different ones.
Device make_device(const RunOptions& options, const cluster::Launch& launch);

// InputError: the workers are not whole tensor parallel groups, or not on a device that has these.
void check_workers(const RunOptions& options, const cluster::Launch& launch);

// The policy a run starts from: the weights of model.path, or random ones with model.random_seed.
// All workers together.
std::unique_ptr<model::PolicyModel> make_policy(const RunOptions& options, const Device& device,
                                                cluster::Comm& comm);

// The adapter that the run trains, merged into `policy`; null: the run trains all weights.
std::unique_ptr<train::LoraAdapter> make_adapter(const RunOptions& options,
                                                 const model::PolicyModel& policy);

// What must be equal on all workers besides the version, "name = value" by line: options that change
// results, and the instruction set.
std::string shared_options(const RunOptions& options);

struct RunContext {
  // Connects to the other workers, then loads the model. InputError: a worker, which it names, has
  // other options, another version, or other files (run_inputs.h); a package of trainer.logger is
  // missing on rank 0.
  RunContext(const RunOptions& options, const cluster::Launch& launch);

  bool is_first() const { return comm->rank() == 0; }

  // Whether any worker was interrupted. Collective: all workers get the same answer, or else some
  // would wait for others that have stopped.
  bool anyone_interrupted() const;
  // 128 plus the signal that anyone_interrupted() found, as in shells: 130 or 143.
  int exit_code_of_stop() const { return 128 + stop_signal_; }

  cluster::Launch launch;
  Device device;
  std::unique_ptr<cluster::Comm> comm;
  // Local time at the run's start (base/local_time.h), on rank 0; a run that resumes keeps it.
  std::string started;
  data::DataOptions data;  // those of the options, with their fields that are no options
  tokenizer::Tokenizer tokenizer;
  std::unique_ptr<model::PolicyModel> model;
  std::unique_ptr<train::LoraAdapter> adapter;  // null: the run trains all weights

 private:
  mutable int stop_signal_ = 0;
};

// The teacher of distillation.*, on the run's device and in its compute type. InputError: its tokens
// are not those of the run's model. REQUIRES: it is a folder.
std::unique_ptr<model::PolicyModel> make_teacher(const RunOptions& options,
                                                 const RunContext& context);

// The critic of algorithm.adv_estimator=gae as the run starts: critic.model.path, or the policy that
// the run starts from. All workers together. InputError: its tokens or shape are not those of the
// run's model.
std::unique_ptr<train::ValueModel> make_critic(const RunOptions& options,
                                               const RunContext& context);

}  // namespace tlt::run
