// SPDX-License-Identifier: Apache-2.0
#include "run/report/before_after.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "tests/support/test_folder.h"

namespace tlt::run {
namespace {

using ::testing::ElementsAre;

struct Line {
  int64_t id = 0;
  std::string output;
  double score = 0;
  std::string finish = "stop";
};

void write(const std::string& path, int64_t step, const std::vector<Line>& lines) {
  std::string text;
  for (const Line& line : lines)
    text += nlohmann::json{{"input", "1,2:3"},
                           {"output", line.output},
                           {"score", line.score},
                           {"step", step},
                           {"prompt_id", line.id},
                           {"sample", 0},
                           {"finish_reason", line.finish}}
                .dump() +
            "\n";
  write_file_atomic(path, text);
}

TEST(BeforeAfterTest, PicksTheShortestOfTheLargestRise) {
  const TestFolder folder;
  write(folder / "000000.jsonl", 0, {{1, "no", 1}, {2, "a long no", 0}, {3, "no", 0}, {4, "n", 0}});
  write(folder / "000010.jsonl", 10, {{1, "yes", 1}, {2, "a", 1}, {3, "yes", 1}, {4, "no", 0.5}});
  write(folder / "000005.jsonl", 5, {{3, "between", 1}});
  const auto found = find_before_after(folder.path());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->before.text, "no");
  EXPECT_EQ(found->after.text, "yes");
  EXPECT_THAT(describe(*found), ElementsAre("    prompt of the validation data:", "      1,2:3",
                                            "    before training (step 0): score 0", "      no",
                                            "    after training (step 10): score 1", "      yes"));
}

// A power failure leaves zeros, which ended a run after its last step.
TEST(BeforeAfterTest, DamagedFileIsReadUpToTheDamage) {
  const TestFolder folder;
  write(folder / "000000.jsonl", 0, {{1, "no", 0}, {2, "never", 0}});
  const std::string last = folder / "000010.jsonl";
  write(last, 10, {{1, "yes", 1}});
  for (const std::string& damage : {std::string(4096, '\0'), std::string("{\"prompt_id\": 2}\n")}) {
    const std::string whole = read_file(last, 1 << 20);
    write_file_atomic(last, whole + damage);
    testing::internal::CaptureStderr();
    const auto found = find_before_after(folder.path());
    EXPECT_NE(testing::internal::GetCapturedStderr().find("000010.jsonl"), std::string::npos);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->after.text, "yes");
    write_file_atomic(last, whole);
  }
}

TEST(BeforeAfterTest, LongAnswersLoseLinesInTheMiddle) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += std::to_string(i) + "\n";
  const BeforeAfter example{"p", {0, std::string(200, 'x'), -1, true}, {7, text, 0.25, false}};
  EXPECT_THAT(describe(example),
              ElementsAre("    prompt of the validation data:", "      p",
                          "    before training (step 0): score -1, truncated at the limit",
                          "      " + std::string(96, 'x'), "      " + std::string(96, 'x'),
                          "      " + std::string(8, 'x'), "    after training (step 7): score 0.25",
                          "      0", "      1", "      2", "      3", "      4",
                          "      … 91 lines …", "      96", "      97", "      98", "      99"));
}

TEST(BeforeAfterTest, ControlCharactersOfAnAnswerAreEscaped) {
  const BeforeAfter example{"p", {0, "a\x1b[2J", 0, false}, {7, "b\tc\u009b", 1, false}};
  EXPECT_THAT(describe(example),
              ElementsAre("    prompt of the validation data:", "      p",
                          "    before training (step 0): score 0", "      a\\u001b[2J",
                          "    after training (step 7): score 1", "      bc\\u009b"));
}

TEST(BeforeAfterTest, OneValidationGivesNoComparison) {
  const TestFolder folder;
  write(folder / "000000.jsonl", 0, {{1, "no", 0}});
  EXPECT_FALSE(find_before_after(folder.path()));
  EXPECT_FALSE(find_before_after(folder / "not there"));
}

}  // namespace
}  // namespace tlt::run
