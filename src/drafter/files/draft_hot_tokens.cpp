// SPDX-License-Identifier: Apache-2.0
#include "drafter/files/draft_hot_tokens.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/files.h"

namespace tlt::drafter {
namespace {

constexpr int64_t kMaxBytes = int64_t{8} << 20;  // a million tokens

std::string path_in(const std::string& folder) { return folder + "/hot_token_id.json"; }

}  // namespace

std::vector<int32_t> read_hot_tokens(const std::string& folder, int64_t vocabulary) {
  const std::string path = path_in(folder);
  if (!std::filesystem::exists(path)) return {};
  const auto json = nlohmann::json::parse(read_file(path, kMaxBytes), nullptr,
                                          /*allow_exceptions=*/false);
  std::vector<char> seen(static_cast<size_t>(vocabulary));
  std::vector<int32_t> tokens;
  const auto is_new_token = [&](const nlohmann::json& value) {
    if (!value.is_number_integer() || value < 0 || value >= vocabulary) return false;
    tokens.push_back(value.get<int32_t>());
    return !std::exchange(seen[static_cast<size_t>(tokens.back())], char{1});
  };
  TLT_CHECK_INPUT(json.is_array() && !json.empty() && std::ranges::all_of(json, is_new_token), path,
                  ": must be a list of different tokens below vocab_size ", vocabulary,
                  ", most frequent first; delete it to use all tokens");
  return tokens;
}

void write_hot_tokens(const std::string& folder, std::span<const int32_t> tokens) {
  write_file_atomic(path_in(folder), nlohmann::json(tokens).dump() + "\n");
}

std::vector<int32_t> hottest(std::span<const int32_t> ranked, int64_t count) {
  const auto size = count == 0 ? std::ssize(ranked) : std::min<int64_t>(count, std::ssize(ranked));
  std::vector<int32_t> tokens(ranked.begin(), ranked.begin() + size);
  std::ranges::sort(tokens);
  return tokens;
}

}  // namespace tlt::drafter
