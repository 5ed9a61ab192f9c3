// SPDX-License-Identifier: Apache-2.0
#include "simulate/recorded_tokens.h"

#include <gmock/gmock.h>

#include "base/check.h"
#include "base/files.h"
#include "tests/support/test_folder.h"

namespace tlt::simulate {
namespace {

using ::testing::ElementsAre;

class RecordedTokensTest : public ::testing::Test {
 protected:
  RecordedTokens read(const std::string& text) const {
    write_file_atomic(path_, text);
    return RecordedTokens(path_);
  }

  std::string complaint(const std::string& text) const {
    try {
      read(text);
      return "none";
    } catch (const InputError& error) {
      return error.what();
    }
  }

  const TestFolder folder_;
  const std::string path_ = folder_ / "tokens.jsonl";
};

TEST_F(RecordedTokensTest, EqualPromptsHaveOneId) {
  const RecordedTokens recorded = read(
      "{\"prompt\":[3],\"response\":[5,6]}\n"
      "{\"prompt\":[],\"response\":[2147483647]}\n"
      "{\"prompt\":[3],\"response\":[7]}\n");
  ASSERT_EQ(recorded.responses().size(), 3U);
  const ResponseTokens &first = recorded.responses()[0], &second = recorded.responses()[1],
                       &third = recorded.responses()[2];
  EXPECT_THAT(first.prompt, ElementsAre(3));
  EXPECT_THAT(first.tokens, ElementsAre(5, 6));
  EXPECT_THAT(second.prompt, ElementsAre());
  EXPECT_THAT(second.tokens, ElementsAre(2147483647));
  EXPECT_THAT(third.tokens, ElementsAre(7));
  EXPECT_EQ(first.prompt_id, third.prompt_id);
  EXPECT_NE(first.prompt_id, second.prompt_id);
}

TEST_F(RecordedTokensTest, OtherFilesAreRefused) {
  const auto row = [](const char* prompt, const char* response) {
    return std::string("{\"prompt\":") + prompt + ",\"response\":" + response + "}";
  };
  for (const std::string& damaged :
       {std::string("3"), std::string("[]"), std::string("{}"), std::string("{\"prompt\":[1]}"),
        row("3", "[1]"), row("[1]", "\"1\""), row("[1]", "{\"0\":1}"), row("[-1]", "[1]"),
        row("[1]", "[2147483648]"), row("[1]", "[0.5]"), row("[1]", "[[1]]"), row("[null]", "[1]"),
        row("null", "[1]"), row("[1]", "null")})
    EXPECT_EQ(complaint(row("[1]", "[2]") + "\n" + damaged),
              path_ + ":2: not a line of tlt bench suffix --out")
        << damaged;
  EXPECT_EQ(complaint(row("[1]", "[]")), path_ + ":1: the response has no tokens");
  EXPECT_EQ(complaint(""), path_ + ": no responses; give a file of tlt bench suffix --out");
}

}  // namespace
}  // namespace tlt::simulate
