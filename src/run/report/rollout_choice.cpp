// SPDX-License-Identifier: Apache-2.0
#include "run/report/rollout_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "run/report/html_page.h"

namespace tlt::run {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr size_t kMaxFiles = 12, kMaxFilesInFolder = 100'000;
constexpr size_t kFirstRows = 32, kTokenRows = 8;
constexpr int64_t kMaxRolloutBytes = int64_t{16} << 20, kMaxRolloutRows = 5'000;
constexpr size_t kMaxPromptBytes = 6'000, kMaxOutputBytes = 16'000, kMaxShortBytes = 1'000;
constexpr size_t kMaxTokens = 4'096, kMaxExtras = 12;

// Columns with a place of their own on the page, or none; the reward's extras are the others.
constexpr std::string_view kKnown[] = {
    "input",      "output",        "gts",          "score",           "step",           "prompt_id",
    "sample",     "finish_reason", "response",     "response_tokens", "data_source",    "advantage",
    "extra_info", "prompt",        "reward_fault", "token_texts",     "token_logprobs", "accepted"};

struct DumpFile {
  int64_t step = 0;
  std::string path;
};

// 000012.jsonl in the order of their steps.
std::vector<DumpFile> dump_files(const std::string& folder) {
  std::vector<DumpFile> files;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const std::string name = entry.path().stem().string();
    if (entry.path().extension() != ".jsonl" || name.empty() || name.size() > 12 ||
        !std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; }))
      continue;
    files.push_back({std::stoll(name), entry.path().string()});
    if (files.size() == kMaxFilesInFolder) break;
  }
  std::ranges::sort(files, {}, &DumpFile::step);
  if (files.size() <= kMaxFiles) return files;
  std::vector<DumpFile> chosen;
  for (size_t i = 0; i < kMaxFiles; ++i)
    chosen.push_back(files[i * (files.size() - 1) / (kMaxFiles - 1)]);
  return chosen;
}

// At most `max_bytes` of the text, whole characters; `cut` grows by the bytes that are missing.
std::string first_part(const std::string& text, size_t max_bytes, size_t& cut) {
  size_t bytes = std::min(text.size(), max_bytes);
  while (bytes < text.size() && bytes > 0 &&
         (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80)
    --bytes;
  cut += text.size() - bytes;
  return text.substr(0, bytes);
}

std::string shown_text(const Json& row, const char* name, size_t max_bytes, size_t& cut) {
  const auto found = row.find(name);
  if (found == row.end() || found->is_null()) return "";
  return first_part(found->is_string()
                        ? found->get_ref<const std::string&>()
                        : found->dump(-1, ' ', false, Json::error_handler_t::replace),
                    max_bytes, cut);
}

void copy_number(const Json& row, const char* name, Json& out) {
  if (const auto found = row.find(name); found != row.end() && found->is_number())
    out[name] = *found;
}

// Text, logprob and, where the file has it, acceptance of each token.
void copy_tokens(const Json& row, Json& out) {
  const auto texts = row.find("token_texts"), logprobs = row.find("token_logprobs"),
             accepted = row.find("accepted");
  if (texts == row.end() || !texts->is_array()) return;
  const auto fits = [&](const Json::const_iterator& list) {
    return list != row.end() && list->is_array() && list->size() == texts->size();
  };
  if (!std::ranges::all_of(*texts, [](const Json& text) { return text.is_string(); })) return;
  const auto first_tokens = [](const Json& list) {
    return Json(Json::array_t(
        list.begin(), list.begin() + static_cast<int64_t>(std::min(list.size(), kMaxTokens))));
  };
  out["token_texts"] = first_tokens(*texts);
  const auto is_number = [](const Json& value) { return value.is_number() || value.is_null(); };
  if (fits(logprobs) && std::ranges::all_of(*logprobs, is_number))
    out["token_logprobs"] = first_tokens(*logprobs);
  if (!fits(accepted)) return;
  std::string flags;
  for (const Json& flag : first_tokens(*accepted))
    flags += (flag.is_boolean() && flag.get<bool>()) || (flag.is_number() && flag != 0) ? '1' : '0';
  out["accepted"] = flags;
}

// What the page shows of a row. Throws a JSON exception if the row is no object.
Json shown_row(const Json& row, const char* kind, int64_t step) {
  if (!row.is_object()) row.at("output");
  size_t cut = 0;
  Json out = {{"kind", kind},
              {"step", step},
              {"prompt", shown_text(row, "input", kMaxPromptBytes, cut)},
              {"output", shown_text(row, "output", kMaxOutputBytes, cut)},
              {"gts", shown_text(row, "gts", kMaxShortBytes, cut)},
              {"finish_reason", shown_text(row, "finish_reason", kMaxShortBytes, cut)},
              {"data_source", shown_text(row, "data_source", kMaxShortBytes, cut)}};
  if (row.contains("reward_fault"))
    out["reward_fault"] = shown_text(row, "reward_fault", kMaxShortBytes, cut);
  if (cut > 0) out["cut"] = cut;
  for (const char* name : {"score", "advantage", "prompt_id", "sample", "response_tokens"})
    copy_number(row, name, out);
  copy_tokens(row, out);
  Json extras = Json::object();
  for (const auto& [name, value] : row.items())
    if (value.is_number() && extras.size() < kMaxExtras && name.size() <= kMaxShortBytes &&
        std::ranges::find(kKnown, std::string_view(name)) == std::end(kKnown))
      extras[name] = value;
  if (!extras.empty()) out["extras"] = std::move(extras);
  return out;
}

// The highest row by a value, kept while rows go by.
struct Extreme {
  double value = -std::numeric_limits<double>::infinity();
  int64_t index = -1;
  Json row = nullptr;

  void offer(double candidate, int64_t i, const Json& shown) {
    if (candidate > value) *this = {candidate, i, shown};
  }
};

// The rows of a file to show, the most important first: those with tokens, the extremes, the first.
std::vector<Json> rows_of(const DumpFile& file, const char* kind, LeftOut& left_out) {
  std::vector<std::pair<int64_t, Json>> all, firsts;
  Extreme longest, best, worst;
  int64_t index = 0;
  for_each_row(file.path, kMaxRolloutBytes, left_out, [&](Json& row) {
    if (index == kMaxRolloutRows) {
      left_out.add(
          fmt::format("{}: the rows after the first {} are not read", file.path, kMaxRolloutRows));
      return false;
    }
    Json shown = shown_row(row, kind, file.step);
    const double score = shown.value("score", std::nan(""));
    longest.offer(shown.value("response_tokens", 0.0), index, shown);
    best.offer(score, index, shown);
    worst.offer(-score, index, shown);
    if (shown.contains("token_texts") && all.size() < kTokenRows)
      all.emplace_back(index, std::move(shown));
    else if (firsts.size() < kFirstRows)
      firsts.emplace_back(index, std::move(shown));
    ++index;
    return true;
  });
  for (Extreme* extreme : {&longest, &best, &worst})
    if (extreme->index >= 0) all.emplace_back(extreme->index, std::move(extreme->row));
  std::ranges::move(firsts, std::back_inserter(all));
  std::set<int64_t> seen;
  std::vector<Json> rows;
  for (auto& [i, row] : all)
    if (seen.insert(i).second) rows.push_back(std::move(row));
  return rows;
}

}  // namespace

nlohmann::json choose_rollouts(const std::string& run_folder, int64_t max_bytes,
                               LeftOut& left_out) {
  std::vector<std::vector<Json>> files;
  for (const char* kind : {"rollout", "validation"}) {
    const bool is_validation = std::string_view(kind) == "validation";
    for (const DumpFile& file :
         dump_files(run_folder + (is_validation ? "/validation" : "/rollouts"))) {
      try {
        files.push_back(rows_of(file, kind, left_out));
      } catch (const InputError& error) {
        left_out.add(error.what());
      }
    }
  }
  Json chosen = Json::array();
  int64_t bytes = 0;
  for (size_t i = 0; i < kTokenRows + 3 + kFirstRows; ++i)
    for (std::vector<Json>& rows : files) {
      if (i >= rows.size()) continue;
      const auto row_bytes = std::ssize(script_json(rows[i]));
      if (bytes + row_bytes > max_bytes) continue;
      bytes += row_bytes;
      chosen.push_back(std::move(rows[i]));
    }
  return chosen;
}

}  // namespace tlt::run
