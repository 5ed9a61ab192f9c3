// SPDX-License-Identifier: Apache-2.0
#include "drafter/files/draft_hot_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "base/files.h"
#include "tests/support/test_folder.h"

namespace tlt::drafter {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(DraftHotTokensTest, HotTokensRoundTrip) {
  const TestFolder folder;
  EXPECT_TRUE(read_hot_tokens(folder.path(), 100).empty()) << "no file";
  const std::vector<int32_t> tokens = {7, 0, 99, 12};
  write_hot_tokens(folder.path(), tokens);
  EXPECT_EQ(read_hot_tokens(folder.path(), 100), tokens);
  EXPECT_EQ(read_file(folder.path() + "/hot_token_id.json", 100), "[7,0,99,12]\n");
}

TEST(DraftHotTokensTest, HottestAreTheFirstInAscendingOrder) {
  const std::vector<int32_t> ranked = {7, 0, 99, 12};
  EXPECT_THAT(hottest(ranked, 3), ElementsAre(0, 7, 99));
  EXPECT_THAT(hottest(ranked, 0), ElementsAre(0, 7, 12, 99));
  EXPECT_THAT(hottest(ranked, 50), ElementsAre(0, 7, 12, 99));
}

TEST(DraftHotTokensTest, InvalidFileIsRejected) {
  const TestFolder folder;
  for (const char* text : {"{}", "[]", "[1, 2, 1]", "[-1]", "[100]", "[1.5]", "[\"a\"]", "[1"}) {
    write_file_atomic(folder.path() + "/hot_token_id.json", text);
    EXPECT_THAT(thrown_message<InputError>([&] { read_hot_tokens(folder.path(), 100); }),
                HasSubstr("hot_token_id.json: must be a list"))
        << text;
  }
}

}  // namespace
}  // namespace tlt::drafter
