// SPDX-License-Identifier: Apache-2.0
#include "data/data_files.h"

#include <glob.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "data/countdown_source.h"

namespace tlt::data {
namespace {

namespace fs = std::filesystem;

constexpr auto kDataKinds = std::to_array<const char*>({".parquet", ".jsonl", ".json"});

std::vector<std::string> files_in(const fs::path& folder, std::string_view option) {
  std::vector<std::string> found;
  std::string kind;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string of_entry = entry.path().extension().string();
    const bool is_data = std::ranges::find(kDataKinds, of_entry) != kDataKinds.end();
    if (!is_data || entry.is_directory() || entry.path().filename().string().starts_with('.'))
      continue;
    TLT_CHECK_INPUT(kind.empty() || kind == of_entry, option, ": ", folder.string(), " has ", kind,
                    " and ", of_entry, " files; give a pattern, as ",
                    (folder / ("*" + std::min(kind, of_entry))).string());
    kind = of_entry;
    found.push_back(entry.path().string());
  }
  TLT_CHECK_INPUT(!error, option, ": ", folder.string(), ": ", error.message());
  TLT_CHECK_INPUT(!found.empty(), option, ": no .parquet, .jsonl or .json files in the folder ",
                  folder.string());
  return found;
}

std::vector<std::string> files_like(const std::string& pattern, std::string_view option) {
  glob_t matches = {};
  const int failed = glob(pattern.c_str(), GLOB_NOSORT | GLOB_ERR, /*errfunc=*/nullptr, &matches);
  std::vector<std::string> found;
  for (size_t i = 0; failed == 0 && i < matches.gl_pathc; ++i)
    if (!fs::is_directory(matches.gl_pathv[i])) found.emplace_back(matches.gl_pathv[i]);
  const int reason = errno;
  globfree(&matches);
  TLT_CHECK_INPUT(failed == 0 || failed == GLOB_NOMATCH || reason == ENOENT, option, ": ", pattern,
                  ": ", std::strerror(reason));
  TLT_CHECK_INPUT(!found.empty(), option, ": no files match ", pattern);
  return found;
}

}  // namespace

std::vector<std::string> find_data_files(const std::string& name, std::string_view option) {
  if (CountdownSource::is_named_by(name)) return {name};
  std::error_code error;
  const bool is_folder = fs::is_directory(name, error);
  const bool is_pattern = name.find_first_of("*?[") != name.npos && !fs::exists(name, error);
  if (!is_folder && !is_pattern) return {name};
  std::vector<std::string> found = is_folder ? files_in(name, option) : files_like(name, option);
  std::ranges::sort(found);
  return found;
}

std::vector<std::string> find_step_files(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path().string());
  TLT_CHECK_INPUT(!error, folder, ": ", error.message());
  TLT_CHECK_INPUT(!files.empty(), folder,
                  ": no .jsonl files; give a run's folder rollouts/, or verl's "
                  "trainer.rollout_data_dir");
  std::ranges::sort(files, {},
                    [](const std::string& file) { return std::pair(file.size(), file); });
  return files;
}

void expand_data_files(DataOptions& options) {
  std::vector<std::string> files;
  std::vector<double> weights;
  for (size_t i = 0; i < options.train_files.size(); ++i) {
    const auto found = find_data_files(options.train_files[i], "data.train_files");
    files.insert(files.end(), found.begin(), found.end());
    if (!options.train_weights.empty()) weights.resize(files.size(), options.train_weights[i]);
  }
  options.train_files = std::move(files);
  options.train_weights = std::move(weights);
  files.clear();
  for (const std::string& name : options.val_files) {
    const auto found = find_data_files(name, "data.val_files");
    files.insert(files.end(), found.begin(), found.end());
  }
  options.val_files = std::move(files);
}

}  // namespace tlt::data
