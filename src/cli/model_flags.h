// ModelFlags: the flags of every command that loads a model, and the loading of model and
// tokenizer.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "model/policy_model.h"
#include "rollout/make_speculation.h"
#include "tokenizer/tokenizer.h"

namespace CLI {  // NOLINT(readability-identifier-naming)
class App;
}

namespace tlt::cli {

// --model, its adapter, and the device and type to compute with.
struct ModelFlags {
  std::string model;  // after parsing: a folder (find_model.h)
  std::string dtype = "auto";
  std::string device = "cpu";
  int64_t threads = 0;
  std::string adapter;  // folder of a PEFT adapter to merge into the model; empty: none

  void add_to(CLI::App& flags, bool model_is_required = true);

  Device open_device() const;
  // --dtype, or the type of the files (bfloat16 for float16). InputError: a type that tlt does not
  // compute in.
  at::ScalarType type() const;
  std::unique_ptr<model::PolicyModel> load() const;
  // nullopt: the folder has no tokenizer.json. InputError: it has more tokens than the model.
  // Afterwards `policy` does not sample tokens that the tokenizer does not have.
  std::optional<tokenizer::Tokenizer> load_tokenizer(model::PolicyModel& policy) const;

  // What the results of `policy` depend on, by names for messages: program, kernels, type and
  // files.
  nlohmann::ordered_json settings(const model::PolicyModel& policy) const;
};

// --speculation and its options.
struct SpeculationFlags {
  explicit SpeculationFlags(std::string speculation) : speculation(std::move(speculation)) {}

  std::string speculation;  // initially the default of the command
  std::string drafter, strategy;
  std::string accept_rule = "coupled";
  double accept_threshold_single = 1, accept_threshold_acc = 1;
  bool defers_measuring = false;  // with auto: see rollout::SpeculationSetup

  void add_to(CLI::App& flags);
  // InputError: invalid values or combinations.
  void check() const;
  // nullptr: non-speculative decoding.
  std::unique_ptr<rollout::Speculation> make(const rollout::TargetModel& target,
                                             const rollout::EngineOptions& engine) const;
};

const char* type_name(at::ScalarType type);

}  // namespace tlt::cli
