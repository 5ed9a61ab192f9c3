// MemoryPlan: the bytes that a worker of `tlt train` takes for a model, part by part, before any of
// them are allocated.
//
// Sizes are in bfloat16 and those of the code as it is; what a library or an allocator adds is not
// in them.
//
// On the CPU what a phase of a step needs is free in the others (rl/rl_loop.cpp); a card keeps it.
//
//   const MemoryPlan plan = plan_memory(find_model("Qwen2.5-7B"), {.workers = 2});
//   plan.cpu_bytes();                          // or, with a card:
//   plan.device_bytes(), plan.host_bytes();
//
// Threading  any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/model_config.h"
#include "simulate/model_shapes.h"

namespace tlt::apps {

struct PlanOptions {
  int64_t workers = 1;
  int64_t length = 8192;   // tokens of a prompt and its response; of a pack in training
  int64_t sequences = 64;  // that a worker, or a group, decodes at the same time, each at its full
                           // length
  int64_t group = 1;       // rollout.tensor_model_parallel_size
  bool distributed_optimizer = false;                // actor.use_distributed_optimizer
  bool muon = false;                                 // actor.optim.optimizer=Muon
  bool critic = false;                               // algorithm.adv_estimator=gae
  std::optional<simulate::ModelShape> teacher = {};  // distillation.teacher

  void check() const;  // InputError
};

enum class Phase { kAlways, kRollout, kCriticUpdate, kUpdate };

struct MemoryPart {
  std::string name;
  double bytes = 0;
  bool on_device = false;        // on a card if there is one; else in the memory of the host
  Phase phase = Phase::kAlways;  // in which it is needed
};

struct MemoryPlan {
  std::vector<MemoryPart> parts;  // of one worker
  double checkpoint_bytes = 0;    // more on the host of the first, while it writes a checkpoint
  // Of the gradient sums, once the workers have added them up: on the CPU those of a shared optimizer.
  double reduced_sum_bytes = 0;

  double device_bytes() const;
  double host_bytes() const;
  double cpu_bytes() const;  // without a card: in the largest phase
};

MemoryPlan plan_memory(const simulate::ModelShape& model, const PlanOptions& options);

// The shape of a model folder.
simulate::ModelShape shape_of(const model::ModelConfig& config, const std::string& name);

// The plan as a table, with the sum for all workers against the memory of this machine.
std::string plan_text(const simulate::ModelShape& model, const PlanOptions& options,
                      int64_t memory_bytes);

}  // namespace tlt::apps
