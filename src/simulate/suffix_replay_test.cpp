// SPDX-License-Identifier: Apache-2.0
#include "simulate/suffix_replay.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/files.h"
#include "tests/support/test_folder.h"

namespace tlt::simulate {
namespace {

constexpr const char* kHeader =
    R"({"confidences":[{"first":0.5,"later":1},{"first":0,"later":0.125}]})";

class SuffixReplayTest : public ::testing::Test {
 protected:
  SuffixReplay read(const std::string& text) const {
    write_file_atomic(path_, text);
    return SuffixReplay(path_);
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
  const std::string path_ = folder_ / "suffix.jsonl";
};

TEST_F(SuffixReplayTest, IsThatOfTheBenchmark) {
  const SuffixReplay replay =
      read(std::string(kHeader) +
           "\n{\"confidence\":[0,2,1],\"tokens\":[0,4,1],\"accepted\":[0,3,1]}\n"
           "{\"confidence\":[0],\"tokens\":[0],\"accepted\":[0]}\n");
  EXPECT_FALSE(replay.is_empty());
  EXPECT_EQ(replay.acceptance(1), (Acceptance{.first = 0.5, .later = 1}));
  EXPECT_EQ(replay.acceptance(2), (Acceptance{.first = 0, .later = 0.125}));
  ASSERT_EQ(replay.responses(), 2U);
  ASSERT_EQ(replay.drafts(0).size(), 3U);
  EXPECT_EQ(replay.drafts(0)[0].tokens, 0);
  EXPECT_EQ(replay.drafts(0)[1].confidence, 2);
  EXPECT_EQ(replay.drafts(0)[1].tokens, 4);
  EXPECT_EQ(replay.drafts(0)[1].accepted, 3);
  EXPECT_EQ(replay.drafts(0)[2].confidence, 1);
  EXPECT_EQ(replay.drafts(1).size(), 1U);
}

TEST_F(SuffixReplayTest, OtherFilesAreRefused) {
  for (const char* header :
       {"[]", "{}", "{\"confidences\":3}", "{\"confidences\":[{\"first\":1.5,\"later\":1}]}",
        "{\"confidences\":[{\"first\":1,\"later\":-1}]}", "{\"confidences\":[{\"first\":1}]}",
        "{\"confidences\":[{\"first\":\"1\",\"later\":1}]}"})
    EXPECT_EQ(complaint(header), path_ + ":1: not a line of tlt bench suffix --out") << header;
  const auto row = [](const char* confidence, const char* tokens, const char* accepted) {
    return std::string("{\"confidence\":") + confidence + ",\"tokens\":" + tokens +
           ",\"accepted\":" + accepted + "}";
  };
  for (const std::string& damaged :
       {std::string("3"), std::string("{}"), row("1", "1", "1"), row("[]", "[]", "[]"),
        row("[1]", "[1]", "[]"), row("[1]", "[]", "[1]"), row("[3]", "[1]", "[1]"),
        row("[-1]", "[1]", "[1]"), row("[1]", "[256]", "[1]"), row("[1]", "[1]", "[0.5]"),
        row("[1]", "[1]", "[2]"), row("[0]", "[1]", "[1]"), row("[1]", "[0]", "[0]")})
    EXPECT_EQ(complaint(std::string(kHeader) + "\n" + damaged),
              path_ + ":2: not a line of tlt bench suffix --out")
        << damaged;
  for (const std::string& text : {std::string(), std::string(kHeader)})
    EXPECT_EQ(complaint(text), path_ + ": no responses; give a file of tlt bench suffix --out");
}

}  // namespace
}  // namespace tlt::simulate
