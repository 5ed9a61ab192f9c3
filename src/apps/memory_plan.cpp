// SPDX-License-Identifier: Apache-2.0
#include "apps/memory_plan.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "model/tensor_parallel.h"

namespace tlt::apps {
namespace {

constexpr double kWeight = 2, kFloat = 4;         // bytes of a bfloat16, of a float32
constexpr double kGradientSum = 8;                // train/gradient_sum.h
constexpr double kAdamW = 12, kMuon = 8;          // train/optimizer.h
constexpr double kLogitsBytes = double{1 << 26};  // train/head_loss.h, rollout/token_sampler.h
constexpr int64_t kPageSlots = 16;                // ops/batch.h
constexpr double kGigabyte = 1e9;
constexpr const char* kGroupFlag = "--tensor-parallel-size";

double row_elements(const simulate::ModelShape& m) {
  const int64_t queries = m.query_heads * m.head_size, keys = m.kv_heads * m.head_size;
  // Forward: qkv twice, attended, middle and both norms, gate and up, gated
  // (model/decoder_layer.h).
  const int64_t forward = 2 * (queries + 2 * keys) + queries + 3 * m.hidden + 3 * m.intermediate;
  // Backward: the gradients of qkv, attended, one norm, gate and up, gated.
  const int64_t backward = queries + 2 * keys + queries + m.hidden + 3 * m.intermediate;
  return static_cast<double>(forward + backward);
}

// With gradient checkpointing: the input of each layer, the final hidden states, their gradient,
// one layer's values and keys, and the logits of a chunk. A rank of a group has the heads and the
// inner size of its part, and the parts of a sum.
double training_bytes(const simulate::ModelShape& m, const PlanOptions& options) {
  const auto rows = static_cast<double>(options.length), ranks = static_cast<double>(options.group),
             hidden = static_cast<double>(m.hidden);
  const double streams = static_cast<double>(m.layers + 3) * hidden, norms = 4 * hidden;
  const double log_sums = kFloat * static_cast<double>(m.query_heads);
  const double divided =
      kWeight * (row_elements(m) - norms) + log_sums + m.kv_bytes() / static_cast<double>(m.layers);
  const double parts = options.group > 1 ? kFloat * ranks * hidden : 0;
  return rows * (kWeight * (streams + norms) + divided / ranks + parts) + kLogitsBytes;
}

double layer_matrices(const simulate::ModelShape& m) {
  return m.attention_parameters() + 3.0 * static_cast<double>(m.hidden * m.intermediate);
}

// Parameters of the layers' matrices, which Muon trains (train/muon.h).
double hidden_matrices(const simulate::ModelShape& m) {
  return static_cast<double>(m.layers) * layer_matrices(m);
}

// Of a layer and the embedding, whose memory is that of an LM head of its own before
// (train/staged_gradients.h).
double gradient_bytes(const simulate::ModelShape& m) {
  return kFloat * (layer_matrices(m) + m.draft_head_parameters());
}

// Whole pages, and one more for the copy that a sample makes.
double cache_bytes(const simulate::ModelShape& m, const PlanOptions& options) {
  const int64_t pages = (options.length + kPageSlots - 1) / kPageSlots + 1;
  return m.kv_bytes() * static_cast<double>(options.sequences * pages * kPageSlots);
}

// Master weights and moments of `parameters`, among them the matrices of the layers.
double optimizer_bytes(const simulate::ModelShape& model, double parameters,
                       const PlanOptions& options) {
  const double matrices = options.muon ? hidden_matrices(model) : 0;
  return kAdamW * (parameters - matrices) + kMuon * matrices;
}

void check_dense(const simulate::ModelShape& model) {
  TLT_CHECK_INPUT(model.experts == 0 && model.latent_size == 0, model.name,
                  " has experts or latent attention, which tlt does not run; give a dense model");
}

void check_groups(const simulate::ModelShape& model, const PlanOptions& options) {
  model::ModelConfig config;
  config.heads = model.query_heads;
  config.kv_heads = model.kv_heads;
  config.intermediate = model.intermediate;
  model::check_divisible(config, options.group, kGroupFlag, model.name);
}

// A second model of the policy's shape, with its own trainer (rl/critic.h). An LM head of its own
// is kept, but not trained.
void add_critic(const simulate::ModelShape& model, const PlanOptions& options, MemoryPlan& plan) {
  const double parameters = model.parameters();
  const double trained = parameters - (model.tied ? 0 : model.draft_head_parameters()) +
                         static_cast<double>(model.hidden);
  const double shares = options.distributed_optimizer ? static_cast<double>(options.workers) : 1;
  const double optimizer = optimizer_bytes(model, trained, options);
  const std::initializer_list<MemoryPart> parts = {
      {"critic: weights (bfloat16)", kWeight * parameters, true},
      {"critic: gradients of a layer (float32)", gradient_bytes(model), true},
      {"critic: activations", training_bytes(model, options) - kLogitsBytes, true,
       Phase::kCriticUpdate},
      {"critic: gradient sums (int64)", kGradientSum * trained, true, Phase::kCriticUpdate},
      {"critic: master weights, moments", optimizer / shares, false}};
  plan.parts.insert(plan.parts.end(), parts);
  plan.checkpoint_bytes += kWeight * parameters + optimizer;
}

// Its activations are fewer than in training: an upper bound.
void add_teacher(const simulate::ModelShape& teacher, const PlanOptions& options,
                 MemoryPlan& plan) {
  check_dense(teacher);
  plan.parts.push_back({"teacher: weights (bfloat16)", kWeight * teacher.parameters(), true});
  plan.parts.push_back(
      {"teacher: activations", training_bytes(teacher, options), true, Phase::kUpdate});
}

}  // namespace

void PlanOptions::check() const {
  TLT_CHECK_INPUT(workers >= 1 && workers <= 100'000, "--workers is ", workers,
                  "; give a number from 1 to 100000");
  TLT_CHECK_INPUT(length >= 1 && length <= 100'000'000, "--length is ", length,
                  "; give a number of tokens from 1 to 100000000");
  TLT_CHECK_INPUT(sequences >= 1 && sequences <= 1'000'000, "--sequences is ", sequences,
                  "; give a number from 1 to 1000000");
  model::check_tensor_parallel_size(group, kGroupFlag);
  TLT_CHECK_INPUT(workers % group == 0, kGroupFlag, " is ", group, " and --workers ", workers,
                  ", which are not whole groups; give a multiple of ", group, " workers");
  TLT_CHECK_INPUT(group == 1 || !(distributed_optimizer || muon || critic || teacher), kGroupFlag,
                  " plans workers that train in groups, which they do not with "
                  "--distributed-optimizer, --muon, --critic or --teacher; leave one out");
}

double MemoryPlan::device_bytes() const {
  double sum = 0;
  for (const MemoryPart& part : parts) sum += part.on_device ? part.bytes : 0;
  return sum;
}

double MemoryPlan::host_bytes() const {
  double sum = 0;
  for (const MemoryPart& part : parts) sum += part.on_device ? 0 : part.bytes;
  return sum;
}

double MemoryPlan::cpu_bytes() const {
  const auto sum_of = [this](Phase phase) {
    double sum = 0;
    for (const MemoryPart& part : parts) sum += part.phase == phase ? part.bytes : 0;
    return sum;
  };
  return sum_of(Phase::kAlways) +
         std::max({sum_of(Phase::kRollout), sum_of(Phase::kCriticUpdate), sum_of(Phase::kUpdate)});
}

MemoryPlan plan_memory(const simulate::ModelShape& model, const PlanOptions& options) {
  options.check();
  check_dense(model);
  check_groups(model, options);
  const double parameters = model.parameters();
  const auto ranks = static_cast<double>(options.group);
  const double shares =
      options.distributed_optimizer ? static_cast<double>(options.workers) : ranks;
  const double optimizer = optimizer_bytes(model, parameters, options);
  MemoryPlan plan{
      .parts = {{"weights (bfloat16)", kWeight * parameters, true},
                {"gradients of a layer (float32)", gradient_bytes(model) / ranks, true},
                {"KV cache (rollout.kv_memory_bytes)", cache_bytes(model, options) / ranks, true,
                 Phase::kRollout},
                {"logits of the rollout", kLogitsBytes, true},
                {"activations (gradient checkpointing)", training_bytes(model, options), true,
                 Phase::kUpdate},
                {"gradient sums (int64)", kGradientSum * parameters / ranks, true, Phase::kUpdate},
                {"master weights, moments (float32)", optimizer / shares, false}},
      .checkpoint_bytes = kWeight * parameters + optimizer,
      .reduced_sum_bytes = kGradientSum * parameters / shares};
  if (options.group > 1)
    plan.parts.push_back({"weights of its part (bfloat16)", kWeight * parameters / ranks, true});
  if (options.critic) add_critic(model, options, plan);
  if (options.teacher) add_teacher(*options.teacher, options, plan);
  return plan;
}

simulate::ModelShape shape_of(const model::ModelConfig& config, const std::string& name) {
  return {.name = name,
          .layers = config.layers,
          .hidden = config.hidden,
          .intermediate = config.intermediate,
          .query_heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_size = config.head_size,
          .vocabulary = config.vocabulary,
          .tied = config.tied};
}

std::string plan_text(const simulate::ModelShape& model, const PlanOptions& options,
                      int64_t memory_bytes) {
  const MemoryPlan plan = plan_memory(model, options);
  std::string text = fmt::format(
      "{}: {:.2f} billion parameters; workers: {}; each decodes {} sequences of {} tokens\n",
      model.name, model.parameters() * 1e-9, options.workers, options.sequences, options.length);
  for (const MemoryPart& part : plan.parts)
    text += fmt::format("{:<38}{:>10.2f} GB  {}\n", part.name, part.bytes / kGigabyte,
                        part.on_device ? "device" : "host");
  const double device = plan.device_bytes(), host = plan.host_bytes(), worker = plan.cpu_bytes();
  const double all = worker * static_cast<double>(options.workers) + plan.checkpoint_bytes;
  text += fmt::format("{:<38}{:>10.2f} GB  and {:.2f} GB of the host\n", "a worker with a card",
                      device / kGigabyte, host / kGigabyte);
  text += fmt::format("{:<38}{:>10.2f} GB  rollouts and update take turns\n", "a worker on the CPU",
                      worker / kGigabyte);
  if (options.distributed_optimizer && options.workers > 1)
    text +=
        fmt::format("{:<38}{:>10.2f} GB  on the CPU, while its share of the weights is updated\n",
                    "gradient sums, once added up", plan.reduced_sum_bytes / kGigabyte);
  text += fmt::format("{:<38}{:>10.2f} GB  host of the first worker\n",
                      "a checkpoint being written", plan.checkpoint_bytes / kGigabyte);
  text +=
      fmt::format("{:<38}{:>10.2f} GB  this machine has {:.2f} GB: {}\n", "all workers on the CPU",
                  all / kGigabyte, static_cast<double>(memory_bytes) / kGigabyte,
                  all <= static_cast<double>(memory_bytes) ? "fits" : "does not fit");
  return text;
}

}  // namespace tlt::apps
