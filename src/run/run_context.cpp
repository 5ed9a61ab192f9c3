// SPDX-License-Identifier: Apache-2.0
#include "run/run_context.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/interrupt.h"
#include "base/local_time.h"
#include "base/log.h"
#include "base/version.h"
#include "model/hf_folder.h"
#include "ops/cpu.h"
#include "run/run_identity.h"
#include "run/run_inputs.h"
#include "tracker/trackers.h"
#include "train/lora_folder.h"

namespace tlt::run {
namespace {

// Workers that meet again are all there; one that joins may have ended since.
double rendezvous_seconds(const RunOptions& options, const cluster::Launch& launch) {
  constexpr double kToMeetAgain = 60;
  return launch.meets_again ? std::min(kToMeetAgain, options.trainer.timeout_seconds)
                            : options.trainer.timeout_seconds;
}

std::unique_ptr<cluster::Comm> meet(const RunOptions& options, const cluster::Launch& launch,
                                    const Device& device) {
  set_log_rank(launch.rank, launch.world_size);
  // Before the others meet this worker: the launcher ends them, and exits with this one's code.
  if (launch.rank == 0) tracker::Trackers::check(options.trainer.logger);
  const bool has_card = device.torch().is_cuda();
  const char* ends = has_card ? "trainer.device: on cards a lost worker ends the run"
                     : options.actor.use_distributed_optimizer
                         ? "actor.use_distributed_optimizer: a lost worker ends the run, as its "
                           "part of the optimizer's state is lost too"
                     : options.rollout.tensor_model_parallel_size > 1
                         ? "rollout.tensor_model_parallel_size: a lost worker ends the run, as its "
                           "group cannot decode without it"
                         : nullptr;
  const bool continues = options.trainer.continues_after_loss() && ends == nullptr;
  auto comm = cluster::make_comm(launch, {.timeout_seconds = options.trainer.timeout_seconds,
                                          .rendezvous_seconds = rendezvous_seconds(options, launch),
                                          .cuda_device = has_card ? device.torch().index() : -1,
                                          .continues_after_loss = continues});
  if (options.trainer.continues_after_loss() && !continues && launch.world_size > 1 &&
      launch.rank == 0)
    log_info("{}", ends);
  cluster::handshake(*comm, kVersion, shared_options(options));
  if (launch.world_size > 1) cluster::check_same_inputs(*comm, fingerprint_inputs(options));
  return comm;
}

// From the run folder, if a run is there: its prompts stay the same.
std::string start_of(const RunOptions& options, cluster::Comm& comm) {
  std::string started;
  if (comm.rank() == 0 && options.trainer.resume_mode != "disable")
    started = read_started(options.trainer.folder() + "/run.json");
  if (started.empty()) started = time_text(local_time_now());
  return comm.all_gather_bytes(started).front();
}

data::DataOptions data_options(const RunOptions& options, const std::string& started) {
  data::DataOptions data = options.data;
  data.template_time = started;
  data.opens_turn = !options.environment.is_on();
  return data;
}

at::ScalarType compute_type(const RunOptions& options) {
  if (options.model.dtype != "auto") return model::parse_type(options.model.dtype, "model.dtype");
  const model::ModelConfig config = model::ModelConfig::read(options.model.path);
  return config.type_name == "float32" ? at::kFloat : at::kBFloat16;
}

// InputError unless the tokens of the model folder that `option` names are those of the run's model.
void check_same_tokens(const char* option, const std::string& folder, const RunOptions& options,
                       const tokenizer::Tokenizer& wanted) {
  const auto tokenizer = tokenizer::Tokenizer::load(folder);
  const int64_t tokens = wanted.vocab_size();
  TLT_CHECK_INPUT(tokenizer.vocab_size() == tokens, option, ": ", folder, " has ",
                  tokenizer.vocab_size(), " tokens and ", options.model.path, " has ", tokens,
                  "; give a model with the same tokenizer");
  for (int32_t id = 0; id < tokens; ++id)
    TLT_CHECK_INPUT(tokenizer.token_bytes(id) == wanted.token_bytes(id), option, ": token ", id,
                    " of ", folder, " is not that of ", options.model.path,
                    "; give a model with the same tokenizer");
}

// Gives all workers the weights of rank 0.
void broadcast_weights(const model::PolicyModel& policy, cluster::Comm& comm) {
  for (const model::Parameter& parameter : policy.parameters()) {
    at::Tensor values = parameter.read(policy.device()).cpu().contiguous();
    comm.broadcast(values, /*root=*/0);
    if (comm.rank() != 0) parameter.write(policy.device(), values.to(policy.device().torch()));
  }
}

}  // namespace

Device make_device(const RunOptions& options, const cluster::Launch& launch) {
  // Workers on one host share its cores.
  const int share = std::max(1, runtime::available_cores() / launch.local_world_size);
  std::string name = options.trainer.device;
  if (name != "cpu" && name.find(':') == std::string::npos)
    name += ":" + std::to_string(launch.local_rank);
  return Device::parse(
      name, options.trainer.threads > 0 ? static_cast<int>(options.trainer.threads) : share,
      "trainer.device");
}

void check_workers(const RunOptions& options, const cluster::Launch& launch) {
  const int64_t size = options.rollout.tensor_model_parallel_size, workers = launch.world_size;
  if (size <= 1) return;
  TLT_CHECK_INPUT(options.trainer.device == "cpu", "rollout.tensor_model_parallel_size is ", size,
                  " and trainer.device ", options.trainer.device,
                  "; only workers on the CPU decode together so far: give trainer.device=cpu, or "
                  "rollout.tensor_model_parallel_size=1");
  TLT_CHECK_INPUT(workers % size == 0, "rollout.tensor_model_parallel_size is ", size,
                  ", and the run has ", workers, workers == 1 ? " worker" : " workers",
                  ", which are not whole groups of ", size, "; start ",
                  (workers + size - 1) / size * size,
                  " workers (--workers, torchrun, mpirun or srun), or give a smaller size");
}

namespace {

std::unique_ptr<model::PolicyModel> load_or_initialize(const RunOptions& options,
                                                       const Device& device, cluster::Comm& comm) {
  if (options.model.random_seed < 0) {
    auto policy = model::load_policy(options.model.path, device, compute_type(options));
    if (options.trainer.broadcast_weights) broadcast_weights(*policy, comm);
    return policy;
  }
  auto policy = std::make_unique<model::PolicyModel>(model::ModelConfig::read(options.model.path),
                                                     device, compute_type(options));
  policy->initialize(static_cast<uint64_t>(options.model.random_seed));
  return policy;
}

}  // namespace

std::unique_ptr<model::PolicyModel> make_policy(const RunOptions& options, const Device& device,
                                                cluster::Comm& comm) {
  const int64_t slices = options.rollout.tensor_model_parallel_size;
  model::check_divisible(model::ModelConfig::read(options.model.path), slices,
                         "rollout.tensor_model_parallel_size", options.model.path);
  auto policy = load_or_initialize(options, device, comm);
  policy->set_slices(slices);
  return policy;
}

std::unique_ptr<model::PolicyModel> make_teacher(const RunOptions& options,
                                                 const RunContext& context) {
  const std::string& folder = options.distillation.teacher;
  check_same_tokens("distillation.teacher", folder, options, context.tokenizer);
  auto teacher = model::load_policy(folder, context.device, context.model->type());
  const int64_t rows = teacher->config().vocabulary, wanted = context.model->config().vocabulary,
                tokens = context.tokenizer.vocab_size();
  TLT_CHECK_INPUT(rows >= tokens, folder, ": tokenizer.json has ", tokens, " tokens, the model ",
                  rows, "; they do not belong together");
  TLT_CHECK_INPUT(!options.distillation.is_exact() || rows == wanted,
                  "distillation.teacher: the LM head of ", folder, " has ", rows,
                  " rows and that of ", options.model.path, " ", wanted,
                  ", with padding; give a teacher with as many, or let `tlt train` estimate with "
                  "distillation.loss_mode=k1, which needs no padding");
  return teacher;
}

std::unique_ptr<train::ValueModel> make_critic(const RunOptions& options,
                                               const RunContext& context) {
  const std::string& folder = options.critic.model.path;
  if (folder.empty())
    return std::make_unique<train::ValueModel>(make_policy(options, context.device, *context.comm));
  check_same_tokens("critic.model.path", folder, options, context.tokenizer);
  const model::ModelConfig has = model::ModelConfig::read(folder),
                           &wanted = context.model->config();
  TLT_CHECK_INPUT(has.hidden == wanted.hidden && has.layers == wanted.layers &&
                      has.vocabulary == wanted.vocabulary,
                  "critic.model.path: ", folder, " has ", has.layers, " layers of hidden size ",
                  has.hidden, " and a vocabulary of ", has.vocabulary, ", and ", options.model.path,
                  " has ", wanted.layers, ", ", wanted.hidden, " and ", wanted.vocabulary,
                  "; give a critic of the same shape");
  auto critic = std::make_unique<train::ValueModel>(
      model::load_policy(folder, context.device, context.model->type()));
  critic->load_head(folder);
  return critic;
}

std::unique_ptr<train::LoraAdapter> make_adapter(const RunOptions& options,
                                                 const model::PolicyModel& policy) {
  const ModelOptions& o = options.model;
  if (!o.has_adapter()) return nullptr;
  const bool is_new = o.lora_adapter_path.empty();
  const train::LoraConfig config = is_new ? o.lora() : train::read_lora_config(o.lora_adapter_path);
  TLT_CHECK_INPUT(o.lora_rank == 0 || o.lora_rank == config.rank, "model.lora_rank is ",
                  o.lora_rank, " and the adapter of model.lora_adapter_path has rank ", config.rank,
                  "; leave lora_rank out");
  auto adapter = std::make_unique<train::LoraAdapter>(policy, config,
                                                      static_cast<uint64_t>(options.trainer.seed));
  if (!is_new) train::load_lora(o.lora_adapter_path, *adapter);
  return adapter;
}

std::string shared_options(const RunOptions& options) {
  RunOptions copy = options;  // collect_options() needs mutable options
  // Results differ between instruction sets, which the environment variable selects; and all workers
  // or none take part in sending the weights.
  return fmt::format("{}TLT_CPU_CAPABILITY = {}\ntrainer.broadcast_weights = {}\n",
                     options_digest(collect_options(copy)), ops::cpu_capability(),
                     options.trainer.broadcast_weights);
}

RunContext::RunContext(const RunOptions& options, const cluster::Launch& launch)
    : launch(launch),
      device(make_device(options, launch)),
      comm(meet(options, launch, device)),
      started(start_of(options, *comm)),
      data(data_options(options, started)),
      tokenizer(tokenizer::Tokenizer::load(options.model.path)),
      model(make_policy(options, device, *comm)),
      adapter(make_adapter(options, *model)) {
  if (adapter && is_first()) {
    int64_t trained = 0, all = 0;
    for (const model::Parameter& parameter : adapter->parameters())
      trained += parameter.tensor->numel();
    for (const model::Parameter& parameter : model->parameters())
      all += c10::multiply_integers(parameter.shape());
    log_info("LoRA rank {}: {} trainable parameters ({:.2f} % of {})", adapter->config().rank,
             trained, 100.0 * static_cast<double>(trained) / static_cast<double>(all), all);
  }
  TLT_CHECK_INPUT(tokenizer.vocab_size() <= model->config().vocabulary, options.model.path,
                  ": tokenizer.json has ", tokenizer.vocab_size(), " tokens, the model ",
                  model->config().vocabulary, "; they do not belong together");
  model->set_tokens(tokenizer.vocab_size());
}

bool RunContext::anyone_interrupted() const {
  at::Tensor signal = at::tensor({int64_t{interrupt_signal()}}, at::kLong);
  comm->all_reduce_max(signal);
  stop_signal_ = static_cast<int>(signal.item<int64_t>());
  return stop_signal_ != 0;
}

}  // namespace tlt::run
