// SPDX-License-Identifier: Apache-2.0
#include "tinker/trained_policy.h"

#include <ATen/ATen.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/atomic_folder.h"
#include "base/check.h"
#include "base/files.h"
#include "model/hf_folder.h"
#include "model/safetensors.h"
#include "train/checkpoint.h"
#include "train/lora_folder.h"
#include "train/trained_parameters.h"

namespace tlt::tinker {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kFacts = "tinker.json";
constexpr const char* kOptimizer = "state/optimizer.safetensors";
constexpr int64_t kMaxFactsBytes = int64_t{1} << 16;

// The targets, whatever their order; files list all of all-linear.
std::set<std::string> targets_of(const train::LoraConfig& config) {
  if (!config.is_all_linear()) return {config.targets.begin(), config.targets.end()};
  return {std::begin(train::kLoraProjections), std::end(train::kLoraProjections)};
}

bool are_equal(const std::optional<train::LoraConfig>& a,
               const std::optional<train::LoraConfig>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  return a->rank == b->rank && a->alpha == b->alpha && a->use_rslora == b->use_rslora &&
         targets_of(*a) == targets_of(*b);
}

std::string describe(const std::optional<train::LoraConfig>& adapter) {
  if (!adapter) return "all weights";
  std::string targets;
  for (const std::string& target : adapter->targets) targets += " " + target;
  return "an adapter of rank " + std::to_string(adapter->rank) + " for" + targets;
}

Json read_facts(const std::string& folder) {
  const std::string file = folder + "/" + kFacts;
  TLT_CHECK_INPUT(fs::exists(file), folder,
                  " has no saved weights; save_state() and "
                  "save_weights_for_sampler() return their path");
  Json facts = Json::parse(read_file(file, kMaxFactsBytes), nullptr, /*allow_exceptions=*/false);
  TLT_CHECK_INPUT(facts.is_object() && facts.contains("optimizer_steps") &&
                      facts["optimizer_steps"].is_number_integer() && facts.contains("adapter") &&
                      facts["adapter"].is_boolean(),
                  file, " is not a file of tlt serve; save the weights again");
  return facts;
}

}  // namespace

TrainedPolicy::TrainedPolicy(model::PolicyModel& policy, Options options)
    : policy_(policy), options_(std::move(options)) {}

const std::vector<model::Parameter>& TrainedPolicy::parameters() const {
  return train::trained_parameters(policy_, adapter_.get());
}

Weights TrainedPolicy::copy_values() const {
  auto weights = std::make_shared<WeightsSnapshot>();
  if (adapter_) weights->adapter = adapter_->config();
  for (const model::Parameter& parameter : parameters())
    weights->values.push_back(parameter.read(policy_.device()).clone());
  return weights;
}

void TrainedPolicy::create(const std::optional<train::LoraConfig>& adapter, uint64_t seed) {
  TLT_CHECK(!trainer_, "there is a training already");
  show(nullptr);
  adapter_.reset();
  if (adapter) adapter_ = std::make_unique<train::LoraAdapter>(policy_, *adapter, seed);
  if (!adapter && !base_) base_ = copy_values();
  trainer_ = std::make_unique<train::StepwiseTrainer>(policy_, adapter_.get(), options_.trainer);
  kept_ = nullptr;
  is_training_shown_ = true;
}

void TrainedPolicy::unload() {
  if (!trainer_) return;
  write_base();
  trainer_.reset();
  adapter_.reset();
  kept_ = shown_ = nullptr;
  is_training_shown_ = false;
}

void TrainedPolicy::show_training() {
  TLT_CHECK(trainer_, "there is no training");
  if (is_training_shown_) return;
  write(kept_);
  is_training_shown_ = true;
  shown_ = nullptr;
}

train::StepwiseTrainer::Pass TrainedPolicy::forward(const TrainBatch& batch, bool is_backward) {
  show_training();
  return is_backward ? trainer_->forward_backward(batch.samples, batch.loss, batch.targets)
                     : trainer_->forward(batch.samples, batch.loss, batch.targets);
}

train::StepwiseTrainer::Step TrainedPolicy::step(const train::OptimOptions& optim) {
  show_training();
  kept_ = nullptr;
  ++changes_;
  return trainer_->step(optim);
}

Weights TrainedPolicy::snapshot() {
  show_training();
  keep_training();
  return kept_;
}

// REQUIRES: the training's weights are shown, or there is none.
void TrainedPolicy::keep_training() {
  if (trainer_ && !kept_) kept_ = copy_values();
}

void TrainedPolicy::show(const Weights& weights) {
  if (shows(weights)) return;
  if (weights) check_kind(weights->adapter, "the sampling client");
  if (is_training_shown_) keep_training();
  write(weights);
  is_training_shown_ = false;
  shown_ = weights;
}

std::optional<train::LoraConfig> TrainedPolicy::trained_kind() const {
  return adapter_ ? std::optional(adapter_->config()) : std::nullopt;
}

void TrainedPolicy::check_kind(const std::optional<train::LoraConfig>& kind,
                               const std::string& place) const {
  TLT_CHECK_INPUT(!trainer_ || are_equal(kind, trained_kind()), place, " has ", describe(kind),
                  ", and the training client has ", describe(trained_kind()),
                  "; a server has one of them at a time: end the other's session first");
}

void TrainedPolicy::write(const Weights& weights) {
  if (!weights) return write_base();
  if (weights->adapter) {
    take_adapter(*weights->adapter);
  } else if (!trainer_) {
    write_base();
    adapter_.reset();
    if (!base_) base_ = copy_values();
  }
  const std::vector<model::Parameter>& to = parameters();
  TLT_CHECK(to.size() == weights->values.size());
  for (size_t i = 0; i < to.size(); ++i) to[i].write(policy_.device(), weights->values[i]);
  if (adapter_) adapter_->merge();
  ++changes_;
}

// An adapter of this kind, with any values. REQUIRES: a training has the same kind.
void TrainedPolicy::take_adapter(const train::LoraConfig& config) {
  if (adapter_ && are_equal(adapter_->config(), config)) return;
  TLT_CHECK(!trainer_, "the training has another adapter");
  write_base();
  adapter_.reset();
  adapter_ = std::make_unique<train::LoraAdapter>(policy_, config, /*seed=*/0);
}

void TrainedPolicy::write_base() {
  if (adapter_) {  // with B = 0 they are the base bit for bit
    for (const model::Parameter& parameter : adapter_->parameters())
      if (parameter.name().ends_with(".lora_B.weight"))
        parameter.write(policy_.device(), at::zeros(parameter.shape(), at::kFloat));
    adapter_->merge();
  } else if (base_) {
    const std::vector<model::Parameter>& to = policy_.parameters();
    for (size_t i = 0; i < to.size(); ++i) to[i].write(policy_.device(), base_->values[i]);
  } else {
    return;
  }
  ++changes_;
}

void TrainedPolicy::save_policy(const std::string& folder) {
  if (!adapter_) return model::save_policy(policy_, folder + "/policy", options_.model_folder);
  if (base_checksum_.empty()) base_checksum_ = adapter_->base_checksum();
  const std::string base = fs::absolute(options_.model_folder).lexically_normal().string();
  train::save_lora(train::snapshot_lora(*adapter_, base, base_checksum_), folder + "/adapter");
}

void TrainedPolicy::save(const std::string& folder, bool has_optimizer) {
  show_training();
  make_folder(fs::path(folder).parent_path().string());
  AtomicFolder saved(folder);
  make_folder(saved.path() + "/state");
  save_policy(saved.path());
  if (has_optimizer)
    model::write_safetensors(saved.path() + "/" + kOptimizer, trainer_->optimizer().snapshot());
  write_file_atomic(
      saved.path() + "/" + kFacts,
      Json{{"adapter", adapter_ != nullptr}, {"optimizer_steps", trainer_->optimizer().steps()}}
              .dump(1) +
          "\n");
  saved.commit();
}

std::optional<train::LoraConfig> TrainedPolicy::read_kind(const std::string& folder) {
  if (!read_facts(folder)["adapter"].get<bool>()) return std::nullopt;
  return train::read_lora_config(folder + "/adapter");
}

void TrainedPolicy::load(const std::string& folder, bool with_optimizer) {
  check_kind(read_kind(folder), folder);
  TLT_CHECK_INPUT(fs::exists(folder + "/" + kOptimizer), folder,
                  " has no state to train from; give a path of save_state()");
  const Weights before = snapshot();
  kept_ = nullptr;
  ++changes_;
  try {
    if (adapter_) train::load_lora(folder + "/adapter", *adapter_);  // checks the base
    load_optimizer(folder, with_optimizer);
    trainer_->written();
  } catch (...) {
    write(before);
    kept_ = before;
    throw;
  }
}

void TrainedPolicy::load_optimizer(const std::string& folder, bool with_moments) {
  train::Optimizer& optimizer = trainer_->optimizer();
  if (with_moments)
    return train::load_checkpoint({.folder = folder}, optimizer,
                                  read_facts(folder)["optimizer_steps"].get<int64_t>());
  model::SafetensorsFile file(folder + "/" + kOptimizer);
  std::vector<std::pair<std::string, at::Tensor>> state;
  for (const model::TensorEntry& entry : file.index().entries) {
    const at::Tensor values = file.read(entry);
    state.emplace_back(entry.name,
                       entry.name.starts_with("master.") ? values : at::zeros_like(values));
  }
  optimizer.load(state, /*steps=*/0);
}

Weights TrainedPolicy::show_folder(const std::string& folder) {
  const std::optional<train::LoraConfig> kind = read_kind(folder);
  check_kind(kind, folder);
  show(nullptr);
  ++changes_;
  try {
    if (kind) {
      take_adapter(*kind);
      train::load_lora(folder + "/adapter", *adapter_);
    } else {
      if (!trainer_) adapter_.reset();
      if (!base_) base_ = copy_values();
      model::reload_policy(policy_, folder + "/policy");
    }
  } catch (...) {
    write_base();
    throw;
  }
  shown_ = copy_values();
  return shown_;
}

}  // namespace tlt::tinker
