// SPDX-License-Identifier: Apache-2.0
#include "cli/find_model.h"

#include <algorithm>
#include <filesystem>
#include <regex>

#include "base/check.h"
#include "base/files.h"
#include "base/log.h"
#include "cli/installed_files.h"
#include "train/checkpoint.h"

namespace tlt::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxRefBytes = 1 << 10;

bool has_config(const fs::path& folder) { return fs::exists(folder / "config.json"); }

bool is_hub_name(const std::string& name) {
  static const std::regex repository_name("[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*");
  return std::regex_match(name, repository_name);
}

std::string trimmed(std::string text) {
  text.erase(std::remove_if(text.begin(), text.end(), [](unsigned char c) { return c <= ' '; }),
             text.end());
  return text;
}

// The snapshot of the branch "main"; nullopt: not in the cache.
std::optional<std::string> find_snapshot(const fs::path& cache, const std::string& name) {
  const size_t slash = name.find('/');
  const fs::path repository =
      cache / ("models--" + name.substr(0, slash) + "--" + name.substr(slash + 1));
  const fs::path ref = repository / "refs" / "main";
  if (!fs::exists(ref)) return std::nullopt;
  const fs::path snapshot =
      repository / "snapshots" / trimmed(read_file(ref.string(), kMaxRefBytes));
  return has_config(snapshot) ? std::optional(snapshot.string()) : std::nullopt;
}

}  // namespace

std::optional<RunPart> find_in_run(const std::string& run, const std::string& part) {
  const fs::path checkpoints = fs::path(run) / "checkpoints";
  if (fs::exists(checkpoints)) {
    const auto place = train::find_latest(checkpoints.string());
    if (place && has_config(fs::path(place->folder) / part))
      return RunPart{place->folder + "/" + part, place->step};
  }
  const fs::path own = fs::path(run) / part;
  return has_config(own) ? std::optional(RunPart{own.string(), -1}) : std::nullopt;
}

std::string find_model(const std::string& name) try {
  if (has_config(name)) return name;
  if (!fs::is_directory(name)) {
    const std::string found = find_hub_model(name);
    TLT_CHECK_INPUT(
        found != name, name,
        ": no such folder; give a model folder, a run folder, or organisation/name of a "
        "model in the Hugging Face cache");
    return found;
  }
  const auto policy = find_in_run(name, "policy");
  TLT_CHECK_INPUT(policy, name,
                  ": no model (config.json, checkpoints/ or policy/) in this folder; give a model "
                  "folder or the folder of a run of tlt train, tlt sft or tlt dpo");
  log_info("{}: the run's policy{}, {}", name,
           policy->step >= 0 ? " at step " + std::to_string(policy->step) : "", policy->folder);
  return policy->folder;
} catch (const fs::filesystem_error& error) {  // a link to itself, a name that is too long
  throw_file_error(error.path1().string(), "be used", error.code().value());
}

std::string find_hub_model(const std::string& name) {
  if (fs::exists(name)) return name;
  if (std::string installed = find_installed(name); installed != name) return installed;
  if (!is_hub_name(name)) return name;
  const std::string cache = hub_cache(cluster::process_environment());
  const auto snapshot = find_snapshot(cache, name);
  TLT_CHECK_INPUT(snapshot, name, ": no such folder, and not in the Hugging Face cache (", cache,
                  "); type: hf download ", name, " --local-dir ", name.substr(name.find('/') + 1));
  log_info("{}: from the Hugging Face cache, {}", name, *snapshot);
  return *snapshot;
}

std::string hub_cache(const cluster::Environment& environment) {
  const auto value = [&](const char* variable) {
    const auto found = environment.find(variable);
    return found == environment.end() ? "" : found->second;
  };
  if (const std::string hub = value("HF_HUB_CACHE"); !hub.empty()) return hub;
  if (const std::string home = value("HF_HOME"); !home.empty()) return home + "/hub";
  return value("HOME") + "/.cache/huggingface/hub";
}

}  // namespace tlt::cli
