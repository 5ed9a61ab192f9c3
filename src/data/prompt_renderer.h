// PromptRenderer: a data row's prompt as text and as tokens, as DataOptions say.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/data_options.h"
#include "data/prompt_template.h"
#include "data/tokenizer.h"

namespace tlt::data {

class PromptRenderer {
 public:
  PromptRenderer(const DataOptions& options, Tokenizer tokenizer);

  // By data.prompt_key, prompt_template and chat_template.
  std::string text(const nlohmann::json& row, const std::string& place) const;

  // The tokens of a text, cut by data.truncation where there are more than max_prompt_length.
  // nullopt: too long, and such rows are left out. InputError: too long and not to be cut, or
  // empty.
  std::optional<std::vector<int32_t>> try_tokens(const std::string& text,
                                                 const std::string& place) const;

 private:
  const DataOptions options_;
  const Tokenizer tokenizer_;
  std::optional<PromptTemplate> template_;
};

}  // namespace tlt::data
