// SPDX-License-Identifier: Apache-2.0
#include "cli/model_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/version.h"
#include "cli/find_model.h"
#include "model/fingerprint.h"
#include "model/hf_folder.h"
#include "model/safetensors.h"
#include "ops/cpu.h"
#include "train/lora_folder.h"

namespace tlt::cli {
namespace {

// The type in config.json or, if it has none, of the weights.
std::string stored_type(const std::string& folder) {
  const model::ModelConfig config = model::ModelConfig::read(folder);
  if (!config.type_name.empty()) return config.type_name;
  const model::SafetensorsFolder weights(folder);
  TLT_CHECK_INPUT(!weights.names().empty(), folder,
                  ": no tensors in its weight files; copy them again");
  switch (weights.find(weights.names().front())->type) {
    case model::DataType::kF32:
      return "float32";
    case model::DataType::kBF16:
      return "bfloat16";
    case model::DataType::kF16:
      return "float16";
    default:
      return "another type";
  }
}

bool is_one_of(const std::string& word, std::initializer_list<const char*> words) {
  return std::ranges::find(words, word) != words.end();
}

}  // namespace

const char* type_name(at::ScalarType type) { return type == at::kFloat ? "float32" : "bfloat16"; }

void ModelFlags::add_to(CLI::App& flags, bool model_is_required) {
  flags.option_defaults()->always_capture_default();  // so that --help shows them
  CLI::Option* folder = flags.add_option(
      "--model", model,
      "Model folder in Hugging Face format, a run folder (the policy of its newest "
      "checkpoint), or organisation/name in the Hugging Face cache.");
  if (model_is_required) folder->required();
  flags.parse_complete_callback([this] {
    if (!model.empty()) model = find_model(model);
  });
  flags.add_option("--dtype", dtype,
                   "float32 or bfloat16; auto: the type of the files, and bfloat16 for float16.");
  flags.add_option("--device", device, "cpu; cuda is refused until a GPU has passed the tests.");
  flags.add_option("--threads", threads, "Threads on the CPU; 0: all cores.");
  flags.add_option("--adapter", adapter,
                   "Folder of a LoRA adapter (PEFT format), merged into the model.");
}

Device ModelFlags::open_device() const {
  TLT_CHECK_INPUT(threads >= 0 && threads <= 1024, "--threads is ", threads,
                  "; give 0 (all cores) or a number up to 1024");
  return Device::parse(device, static_cast<int>(threads));
}

at::ScalarType ModelFlags::type() const {
  if (dtype != "auto") return model::parse_type(dtype, "--dtype");
  const std::string stored = stored_type(model);
  if (stored == "float16") return at::kBFloat16;  // of the same size, as in tlt train
  TLT_CHECK_INPUT(stored == "float32" || stored == "bfloat16", model, ": its weights are ", stored,
                  ", which tlt does not compute in; give --dtype float32 or --dtype bfloat16");
  return model::parse_type(stored, model);
}

std::unique_ptr<model::PolicyModel> ModelFlags::load() const {
  const Device opened = open_device();
  const at::ScalarType chosen = type();
  const Stopwatch stopwatch;
  auto policy = model::load_policy(model, opened, chosen);
  if (!adapter.empty()) {
    train::LoraAdapter addition(*policy, train::read_lora_config(adapter), /*seed=*/0);
    train::load_lora(adapter, addition);
  }
  log_info("{}: {:.1f} M parameters in {} on {}, {} threads; loaded in {:.1f} s", model,
           static_cast<double>(policy->config().parameters()) / 1e6, type_name(chosen),
           opened.name(), opened.pool().threads(), stopwatch.seconds());
  return policy;
}

std::optional<tokenizer::Tokenizer> ModelFlags::load_tokenizer(model::PolicyModel& policy) const {
  if (!std::filesystem::exists(model + "/tokenizer.json")) return std::nullopt;
  tokenizer::Tokenizer tokenizer = tokenizer::Tokenizer::load(model);
  const int64_t vocabulary = policy.config().vocabulary;
  TLT_CHECK_INPUT(tokenizer.vocab_size() <= vocabulary, model, "/tokenizer.json: has ",
                  tokenizer.vocab_size(), " tokens and the model ", vocabulary,
                  "; put the model's own tokenizer there");
  policy.set_tokens(tokenizer.vocab_size());
  return tokenizer;
}

nlohmann::ordered_json ModelFlags::settings(const model::PolicyModel& policy) const {
  nlohmann::ordered_json settings = {
      {"tlt", std::string(kVersion) + " (" + kCommit + ")"},
      {"kernels", policy.device().is_cpu() ? ops::cpu_capability() : policy.device().name()},
      {"--dtype", type_name(policy.type())},
      {"end-of-sequence tokens", policy.config().eos_tokens},
      {"model files (SHA-256)", model::fingerprint(model)}};
  if (!adapter.empty())
    settings["adapter (SHA-256)"] = sha256_of_file(adapter + "/adapter_model.safetensors") +
                                    sha256_of_file(adapter + "/adapter_config.json");
  return settings;
}

void SpeculationFlags::add_to(CLI::App& flags) {
  flags.add_option(
      "--speculation", speculation,
      "off: no speculative decoding; auto: the drafters below where they are faster; suffix: "
      "suffix-tree lookup in this response, its group and earlier responses to the "
      "prompt; ngram: n-gram trie over all responses; eagle: EAGLE draft model; mixed: "
      "eagle and suffix in one draft tree. Never changes a token.");
  flags.add_option("--drafter", drafter,
                   "Folder of an EAGLE draft model for this model; for auto, eagle and mixed.");
  flags.add_option(
      "--strategy", strategy,
      "With suffix, ngram, eagle or mixed: always this depth, width and number of tokens to "
      "verify, as 8_4_16; otherwise they are chosen for each step.");
  flags.add_option("--accept-rule", accept_rule,
                   "coupled: the tokens are those of non-speculative decoding; target_only: "
                   "FastRL's and SGLang's rule, which preserves the distribution, not the sampled "
                   "tokens.");
  flags.add_option("--accept-threshold-single", accept_threshold_single,
                   "target_only: a draft token at least as probable is accepted; below 1 the "
                   "distribution changes.");
  flags.add_option("--accept-threshold-acc", accept_threshold_acc,
                   "target_only: divides the probability that a draft token must reach; below 1 "
                   "the distribution changes.");
}

void SpeculationFlags::check() const {
  TLT_CHECK_INPUT(is_one_of(speculation, {"off", "auto", "suffix", "ngram", "eagle", "mixed"}),
                  "--speculation is '", speculation,
                  "'; use off, auto, suffix, ngram, eagle or mixed");
  TLT_CHECK_INPUT(!is_one_of(speculation, {"eagle", "mixed"}) || !drafter.empty(), "--speculation ",
                  speculation, " needs a draft model; give its folder with --drafter");
  TLT_CHECK_INPUT(drafter.empty() || is_one_of(speculation, {"auto", "eagle", "mixed"}),
                  "--drafter is for --speculation auto, eagle or mixed; name one, or leave it out");
  TLT_CHECK_INPUT(strategy.empty() || !is_one_of(speculation, {"off", "auto"}),
                  "--strategy is for --speculation suffix, ngram, eagle or mixed; name one, or "
                  "leave it out");
  if (!strategy.empty()) drafter::parse_strategy(strategy);
}

std::unique_ptr<rollout::Speculation> SpeculationFlags::make(
    const rollout::TargetModel& target, const rollout::EngineOptions& engine) const {
  speculation::SpeculationOptions options;
  options.enable = speculation != "off";
  options.accept_rule = accept_rule;
  options.accept_threshold_single = accept_threshold_single;
  options.accept_threshold_acc = accept_threshold_acc;
  if (speculation != "auto" && options.enable) options.drafters = {speculation};
  options.eagle.spec_model_path = drafter;
  rollout::SpeculationSetup setup;
  setup.network = rollout::load_draft_network(options, target.model);
  setup.defers_measuring = defers_measuring && speculation == "auto";
  if (!strategy.empty()) setup.strategy = drafter::parse_strategy(strategy);
  return rollout::make_speculation(options, target, engine, std::move(setup));
}

}  // namespace tlt::cli
