// ModelFlags: the flags of every command that loads a model, and the model they name.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "data/tokenizer.h"
#include "model/policy_model.h"
#include "rollout/make_speculation.h"

namespace CLI {
class App;
}

namespace tlt::apps {

// --model, and where and in which type it computes.
struct ModelFlags {
  std::string model;  // once parsed, a folder (find_model.h)
  std::string dtype = "auto";
  std::string device = "cpu";
  int64_t threads = 0;
  std::string adapter;  // PEFT's folder, merged into the model; empty: none

  void add_to(CLI::App& flags, bool model_is_required = true);

  Device open_device() const;
  // The type asked for, or the file's own (bfloat16 where that is float16); InputError where the
  // model does not compute in that.
  at::ScalarType type() const;
  std::unique_ptr<model::PolicyModel> load() const;
  // nullopt: the folder has no tokenizer.json. InputError when it has tokens that the model has
  // not; rows of the head that it has no token for are not sampled from then on.
  std::optional<data::Tokenizer> load_tokenizer(model::PolicyModel& policy) const;

  // What the numbers depend on that `policy` computes, by names for messages: program, kernels,
  // type and files.
  nlohmann::ordered_json settings(const model::PolicyModel& policy) const;
};

// --speculation and what belongs to it.
struct SpeculationFlags {
  explicit SpeculationFlags(std::string speculation) : speculation(std::move(speculation)) {}

  std::string speculation;  // the command's default
  std::string drafter, strategy;
  std::string accept_rule = "coupled";
  double accept_threshold_single = 1, accept_threshold_acc = 1;
  bool defers_measuring = false;  // with auto: rollout::SpeculationSetup's

  void add_to(CLI::App& flags);
  // InputError for what makes no sense, or is not there yet.
  void check() const;
  // nullptr: plain decoding.
  std::unique_ptr<rollout::Speculation> make(const model::PolicyModel& model,
                                             const rollout::EngineOptions& engine) const;
};

const char* type_name(at::ScalarType type);

}  // namespace tlt::apps
