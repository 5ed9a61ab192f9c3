// GenerationWorkers: the workers of `tlt generate --tensor-parallel-size`, of which this process is
// one. The first one generates, and the others compute their part of its passes.
//
// Owns       the communicator and the group, once connected.
// Borrows    the model.
// Threading  engine thread only.
//
//   GenerationWorkers workers(size);
//   if (workers.are_to_start()) return cli::start_workers(size, arguments);
//   workers.share_cores(flags.model);
//   … load the model …
//   if (!workers.is_first()) return workers.follow(settings, *policy), 0;
//   rollout::Engine engine(workers.connect(settings, *policy), options);
//   …
//   workers.release();
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/model_flags.h"
#include "cluster/comm.h"
#include "cluster/launch.h"
#include "rollout/tensor_parallel_group.h"

namespace tlt::apps {

inline constexpr const char* kTensorParallel = "--tensor-parallel-size";

class GenerationWorkers {
 public:
  // InputError: a launcher has started another number of workers.
  explicit GenerationWorkers(int64_t size);

  bool are_to_start() const { return size_ > 1 && launch_.world_size == 1; }
  bool is_first() const { return launch_.rank == 0; }
  // Workers of one host have a part of its cores each, unless a number of threads is given.
  void share_cores(cli::ModelFlags& flags) const;

  // What engines decode with. All workers together, the others by follow(); nothing is connected
  // for a size of 1. InputError: a worker has other flags or files; `settings` has these.
  rollout::TargetModel connect(const nlohmann::ordered_json& settings,
                               const model::PolicyModel& policy);
  // Of the first worker: ends follow() on the others.
  void release();
  void follow(const nlohmann::ordered_json& settings, const model::PolicyModel& policy);

 private:
  const int64_t size_;
  cluster::Launch launch_;
  std::unique_ptr<cluster::Comm> comm_;                  // null until connected
  std::unique_ptr<rollout::TensorParallelGroup> group_;  // the same
};

}  // namespace tlt::apps
