// SPDX-License-Identifier: Apache-2.0
#include "simulate/recorded_tokens.h"

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/json_count.h"
#include "base/json_lines.h"

namespace tlt::simulate {
namespace {

std::vector<int32_t> read_tokens(const nlohmann::json& row, const char* name) {
  const nlohmann::json& ids = row.at(name);
  std::vector<int32_t> tokens;
  const size_t count = ids.get_ref<const nlohmann::json::array_t&>().size();
  for (size_t i = 0; i < count; ++i) tokens.push_back(json_count<int32_t>(ids, i));
  return tokens;
}

}  // namespace

RecordedTokens::RecordedTokens(const std::string& path) {
  JsonLinesReader reader(path);
  for (nlohmann::json row; reader.try_next(row);) {
    try {
      const auto [prompt, is_new] =
          prompts_.try_emplace(read_tokens(row, "prompt"), static_cast<uint32_t>(prompts_.size()));
      responses_.push_back({.prompt_id = prompt->second,
                            .prompt = prompt->first,
                            .tokens = read_tokens(row, "response")});
    } catch (const nlohmann::json::exception&) {
      throw InputError(reader.place() + ": not a line of tlt bench suffix --out");
    }
    TLT_CHECK_INPUT(!responses_.back().tokens.empty(), reader.place(),
                    ": the response has no tokens");
  }
  TLT_CHECK_INPUT(!responses_.empty(), path,
                  ": no responses; give a file of tlt bench suffix --out");
}

}  // namespace tlt::simulate
