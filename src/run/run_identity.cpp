// SPDX-License-Identifier: Apache-2.0
#include "run/run_identity.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "base/check.h"
#include "base/files.h"
#include "base/json_fault.h"
#include "base/sentence.h"
#include "model/fingerprint.h"
#include "run/dropped_options.h"

namespace tlt::run {
namespace {

// ", or …": how to resume with the option's value of `digest`; empty: it cannot change.
std::string override_of(const std::string& name, const std::string& digest) {
  RunOptions options;
  const std::vector<OptionRef> refs = collect_options(options);
  const auto option = std::ranges::find(refs, name, &OptionRef::name);
  const std::string key = name + " = ";
  const size_t line = ("\n" + digest).find("\n" + key);
  if (option == refs.end() || !may_override(*option) || line == std::string::npos) return "";
  const size_t value = line + key.size();
  const std::string text = name + "=" + digest.substr(value, digest.find('\n', value) - value);
  return ", or add --override " + shell_word(text) + " to resume it with this value";
}

constexpr const char* kWayOut =
    "give another trainer.experiment_name, or trainer.resume_mode=disable to move that run aside "
    "and start again";

}  // namespace

RunIdentity identify(const std::string& command, const RunOptions& options,
                     const std::string& more) {
  RunOptions copy = options;
  copy.trainer.total_training_steps = 0;
  copy.trainer.total_epochs = 0;
  return {.command = command,
          .model = model::fingerprint(options.model.path,
                                      /*has_weights=*/options.model.random_seed < 0),
          .options = options_digest(collect_options(copy)) + more};
}

std::string to_json(const RunIdentity& identity) {
  nlohmann::ordered_json json = {{"command", identity.command},
                                 {"model", identity.model},
                                 {"started", identity.started},
                                 {"options", nlohmann::json::array()}};
  std::istringstream lines(identity.options);
  for (std::string line; std::getline(lines, line);) json["options"].push_back(line);
  return json.dump(1) + "\n";
}

std::string read_started(const std::string& path) {
  if (!std::filesystem::exists(path)) return "";
  const auto json = nlohmann::json::parse(read_file(path, kMaxIdentityBytes), nullptr,
                                          /*allow_exceptions=*/false);
  const auto started = json.is_object() ? json.find("started") : json.end();
  return started != json.end() && started->is_string() ? started->get<std::string>() : "";
}

RunIdentity parse_identity(const std::string& text, const std::string& location) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    RunIdentity identity{json.at("command").get<std::string>(), json.at("model").get<std::string>(),
                         "", json.value("started", "")};
    for (const auto& line : json.at("options").get<std::vector<std::string>>())
      identity.options += line + "\n";
    return identity;
  } catch (const nlohmann::json::exception& error) {
    throw InputError(check_internal::concat(location, ": does not say what run this is (",
                                            json_fault(error), "); ", kWayOut));
  }
}

void check_same_run(const std::string& folder, const RunIdentity& here, const RunIdentity& there) {
  TLT_CHECK_INPUT(here.command == there.command, folder, " has a run of tlt ", there.command, "; ",
                  kWayOut);
  TLT_CHECK_INPUT(here.model == there.model, folder,
                  " has a run from another model than that of model.path (its config.json, "
                  "tokenizer or weights differ); set model.path to that run's model, or ",
                  kWayOut);
  const std::string difference =
      first_difference(here.options, without_dropped_options(there.options));
  const std::string name = difference.substr(0, difference.find(' '));
  const std::string now = dropped_option(name);
  TLT_CHECK_INPUT(difference.empty(), folder, " has a run with other options (", difference,
                  now.empty() ? "" : "; ", now, "); ", kWayOut, override_of(name, here.options));
}

}  // namespace tlt::run
