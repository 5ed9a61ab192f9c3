// SPDX-License-Identifier: Apache-2.0
#include "rl/workplace.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/interrupt.h"
#include "base/log.h"
#include "base/version.h"
#include "model/hf_folder.h"

namespace tlt::rl {
namespace {

Device make_device(const RunOptions& options, const cluster::Launch& launch) {
  // Workers of one machine share its cores.
  const int share = std::max(1, runtime::available_cores() / launch.local_world_size);
  return Device::parse(options.trainer.device, options.trainer.threads > 0
                                                   ? static_cast<int>(options.trainer.threads)
                                                   : share);
}

std::unique_ptr<cluster::Comm> meet(const RunOptions& options, const cluster::Launch& launch) {
  set_log_rank(launch.rank, launch.world_size);
  auto comm = cluster::make_comm(launch, {.timeout_seconds = options.trainer.timeout_seconds,
                                          .rendezvous_seconds = options.trainer.timeout_seconds});
  RunOptions copy = options;  // collect_options() needs to point somewhere
  cluster::handshake(*comm, kVersion, options_digest(collect_options(copy)));
  return comm;
}

at::ScalarType compute_type(const RunOptions& options) {
  if (options.model.dtype != "auto") return model::parse_type(options.model.dtype, "model.dtype");
  const model::ModelConfig config = model::ModelConfig::read(options.model.path);
  return config.type_name == "float32" ? at::kFloat : at::kBFloat16;
}

}  // namespace

std::unique_ptr<model::PolicyModel> make_policy(const RunOptions& options, const Device& device) {
  if (options.model.random_seed < 0)
    return model::load_policy(options.model.path, device, compute_type(options));
  auto policy = std::make_unique<model::PolicyModel>(model::ModelConfig::read(options.model.path),
                                                     device, compute_type(options));
  policy->initialize(static_cast<uint64_t>(options.model.random_seed));
  return policy;
}

Workplace::Workplace(const RunOptions& options, const cluster::Launch& launch)
    : launch(launch),
      device(make_device(options, launch)),
      comm(meet(options, launch)),
      tokenizer(data::Tokenizer::load(options.model.path)),
      model(make_policy(options, device)) {
  TLT_CHECK_INPUT(tokenizer.vocab_size() <= model->config().vocabulary, options.model.path,
                  ": tokenizer.json has ", tokenizer.vocab_size(), " tokens, the model ",
                  model->config().vocabulary, "; they do not belong together");
}

bool Workplace::anyone_interrupted() const {
  at::Tensor stop = at::tensor({interrupted() ? 1.0 : 0.0}, at::kDouble);
  comm->all_reduce_max(stop);
  return stop.item<double>() != 0;
}

}  // namespace tlt::rl
