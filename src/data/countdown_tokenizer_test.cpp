// SPDX-License-Identifier: Apache-2.0
#include "data/countdown_tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "data/countdown.h"
#include "tokenizer/tokenizer.h"

namespace tlt::data {
namespace {

using SortedJson = nlohmann::json;

const std::string kDemoTokenizer = std::string(TLT_SOURCE_DIR) + "/tests/golden/tokenizers/demo";

std::string written() {
  static const std::string kFolder = [] {
    const std::string folder = ::testing::TempDir() + "countdown_tokenizer";
    write_countdown_tokenizer(folder);
    return folder;
  }();
  return kFolder;
}

// The prototype's files, which the Hugging Face library can read.
TEST(CountdownTokenizerTest, WritesTheFilesOfThePrototype) {
  for (const char* file : {"/tokenizer.json", "/tokenizer_config.json"}) {
    EXPECT_EQ(SortedJson::parse(read_file(written() + file, 1 << 20)),
              SortedJson::parse(read_file(kDemoTokenizer + file, 1 << 20)))
        << file;
  }
}

TEST(CountdownTokenizerTest, EveryNumberIsOneToken) {
  const tokenizer::Tokenizer tokenizer = tokenizer::Tokenizer::load(written());
  EXPECT_EQ(tokenizer.vocab_size(), kCountdownTokens);
  EXPECT_EQ(tokenizer.roles().eos, std::vector<int32_t>{1});
  for (int number = 0; number < 100; ++number) {
    EXPECT_EQ(tokenizer.encode(std::to_string(number)), std::vector<int32_t>{17 + number});
  }
}

TEST(CountdownTokenizerTest, TracesRoundTrip) {
  const tokenizer::Tokenizer tokenizer = tokenizer::Tokenizer::load(written());
  RandomStream random(1, {});
  for (int i = 0; i < 200; ++i) {
    const CountdownProblem problem = make_problem(random, {});
    const std::string text = problem.prompt() + demonstrate(random, problem, {});
    const std::vector<int32_t> tokens = tokenizer.encode(text);
    ASSERT_EQ(tokenizer.decode(tokens), text);
    ASSERT_EQ(tokens.back(), 1);
  }
}

}  // namespace
}  // namespace tlt::data
