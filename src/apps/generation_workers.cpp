// SPDX-License-Identifier: Apache-2.0
#include "apps/generation_workers.h"

#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "base/version.h"

namespace tlt::apps {

GenerationWorkers::GenerationWorkers(int64_t size) : size_(size) {
  if (size == 1) return;
  launch_ = cluster::read_launch(cluster::process_environment());
  TLT_CHECK_INPUT(launch_.world_size == 1 || launch_.world_size == size, kTensorParallel, " is ",
                  size, ", but the launcher started ", launch_.world_size,
                  " workers; give the same number to both");
  set_log_rank(launch_.rank, launch_.world_size);
}

void GenerationWorkers::share_cores(cli::ModelFlags& flags) const {
  if (flags.threads == 0 && launch_.local_world_size > 1)
    flags.threads = std::max(1, runtime::available_cores() / launch_.local_world_size);
}

rollout::TargetModel GenerationWorkers::connect(const nlohmann::ordered_json& settings,
                                                const model::PolicyModel& policy) {
  if (size_ == 1) return policy;
  std::string text;
  for (const auto& [name, value] : settings.items()) text += name + " = " + value.dump() + "\n";
  comm_ = cluster::make_comm(launch_, {});
  cluster::handshake(*comm_, kVersion, text);
  group_ = std::make_unique<rollout::TensorParallelGroup>(policy, *comm_);
  return {policy, group_.get()};
}

void GenerationWorkers::release() {
  if (group_) group_->release();
}

void GenerationWorkers::follow(const nlohmann::ordered_json& settings,
                               const model::PolicyModel& policy) {
  connect(settings, policy);
  group_->follow();
}

}  // namespace tlt::apps
