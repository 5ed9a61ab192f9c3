// RecordedTokens: the tokens of a run's responses, in which suffix drafts are looked up.
//
// Threading  constant after construction.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace tlt::simulate {

struct ResponseTokens {
  uint32_t prompt_id = 0;  // the same for equal prompts
  std::span<const int32_t> prompt;
  std::vector<int32_t> tokens;
};

class RecordedTokens {
 public:
  RecordedTokens() = default;  // empty
  // A file of `tlt bench suffix --out`. InputError: it is not.
  explicit RecordedTokens(const std::string& path);

  bool is_empty() const { return responses_.empty(); }
  // In the order of their files and lines.
  std::span<const ResponseTokens> responses() const { return responses_; }

 private:
  std::map<std::vector<int32_t>, uint32_t> prompts_;  // ids
  std::vector<ResponseTokens> responses_;
};

}  // namespace tlt::simulate
