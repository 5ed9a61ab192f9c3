// SPDX-License-Identifier: Apache-2.0
#include "run/response_text.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace tlt::run {
namespace {

TEST(ResponseTextTest, StopStringIsFoundAtItsLastToken) {
  const auto tokenizer =
      tokenizer::Tokenizer::load(std::filesystem::path(TLT_SOURCE_DIR) / "models/demo");
  const ResponseText text(tokenizer);
  const std::vector<int32_t> tokens = tokenizer.encode("(3+5)*3=24 24=24");
  const std::vector<std::string> stop = {"=24", "never"};
  rollout::StopFinder finder(text.open(), stop);
  size_t found = 0;
  while (found < tokens.size() && !finder.push(tokens[found])) ++found;
  ASSERT_LT(found, tokens.size());
  const std::string before = tokenizer.decode(std::span(tokens).first(found));
  const std::string with = tokenizer.decode(std::span(tokens).first(found + 1));
  EXPECT_EQ(before.find("=24"), std::string::npos) << before;
  EXPECT_NE(with.find("=24"), std::string::npos) << with;
}

}  // namespace
}  // namespace tlt::run
