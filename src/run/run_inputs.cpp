// SPDX-License-Identifier: Apache-2.0
#include "run/run_inputs.h"

#include <algorithm>
#include <filesystem>

#include "base/checksum.h"
#include "data/countdown_source.h"
#include "model/fingerprint.h"
#include "rollout/make_speculation.h"
#include "train/value_model.h"

namespace tlt::run {
namespace {

// The loader of a file that is missing says more about it.
std::string fingerprint_of(const std::string& file) {
  std::error_code error;
  return std::filesystem::is_regular_file(file, error) ? sha256_of_blocks(file) : "missing";
}

// What the words of a shell command name, if they are files: the program itself and its arguments.
void add_command(const std::string& command, std::vector<cluster::Input>& inputs) {
  constexpr const char* kBetweenWords = " \t\n\"'`;|&()<>={}$";
  for (size_t begin = 0;
       (begin = command.find_first_not_of(kBetweenWords, begin)) != command.npos;) {
    const size_t end = std::min(command.find_first_of(kBetweenWords, begin), command.size());
    const std::string word = command.substr(begin, end - begin);
    inputs.push_back({"reward.command: " + word, fingerprint_of(word)});
    begin = end;
  }
}

// Of a draft model's folder, if it is one: not every command reads it.
std::string fingerprint_of_drafter(const std::string& folder) {
  return std::filesystem::exists(folder + "/config.json") ? model::fingerprint(folder) : "missing";
}

}  // namespace

std::vector<cluster::Input> fingerprint_inputs(const RunOptions& options) {
  const bool reads_weights = options.model.random_seed < 0 && !options.trainer.broadcast_weights;
  std::vector<cluster::Input> inputs = {
      {"model.path", model::fingerprint(options.model.path, reads_weights)}};
  if (const std::string& adapter = options.model.lora_adapter_path; !adapter.empty())
    for (const char* file : {"/adapter_config.json", "/adapter_model.safetensors"})
      inputs.push_back({"model.lora_adapter_path", fingerprint_of(adapter + file)});
  if (const std::string drafter = rollout::draft_model_folder(options.speculative);
      !drafter.empty())
    inputs.push_back({"speculative.eagle.spec_model_path", model::fingerprint(drafter)});
  const auto add_files = [&](const std::string& option, const std::vector<std::string>& files) {
    for (const std::string& file : files)
      if (!data::CountdownSource::is_named_by(file))
        inputs.push_back({option + ": " + file, fingerprint_of(file)});
  };
  add_files("data.train_files", options.data.train_files);
  add_files("data.val_files", options.data.val_files);
  if (options.data.chat_template.ends_with(".jinja"))
    inputs.push_back({"data.chat_template", fingerprint_of(options.data.chat_template)});
  const auto has_reward = [&](const char* name) {
    return std::ranges::count(options.reward.functions, name) > 0;
  };
  if (has_reward("command")) add_command(options.reward.command, inputs);
  for (const std::string& word : options.environment.command)
    inputs.push_back({"environment.command: " + word, fingerprint_of(word)});
  if (options.distillation.is_on() && !options.distillation.is_remote())
    inputs.push_back({"distillation.teacher", model::fingerprint(options.distillation.teacher)});
  if (const std::string& critic = options.critic.model.path; !critic.empty()) {
    inputs.push_back({"critic.model.path", model::fingerprint(critic)});
    if (const std::string head = critic + train::kValueHeadFile; std::filesystem::exists(head))
      inputs.push_back({"critic.model.path", fingerprint_of(head)});
  }
  if (has_reward("judge"))
    inputs.push_back({"reward.judge.prompt", fingerprint_of(options.reward.judge.prompt)});
  if (const std::string init = options.speculative.train.network_plan().folder; !init.empty())
    inputs.push_back({"speculative.train.init", fingerprint_of_drafter(init)});
  return inputs;
}

}  // namespace tlt::run
