// SPDX-License-Identifier: Apache-2.0
#include "run/report/rollout_choice.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/files.h"
#include "run/report/html_page.h"
#include "tests/support/test_folder.h"

namespace tlt::run {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

Json dumped_row(int64_t prompt, double score, const std::string& output) {
  return {{"input", "1,2:3"}, {"output", output},       {"score", score},
          {"step", 1},        {"prompt_id", prompt},    {"response_tokens", output.size()},
          {"sample", 0},      {"finish_reason", "stop"}};
}

class RolloutChoiceTest : public ::testing::Test {
 protected:
  void write(const std::string& file, const std::vector<Json>& rows) {
    std::string text;
    for (const Json& row : rows) text += row.dump() + "\n";
    write_text(file, text);
  }
  void write_text(const std::string& file, const std::string& text) {
    const std::string path = folder_ / file;
    make_folder(path.substr(0, path.rfind('/')));
    write_file_atomic(path, text);
  }
  Json choose(int64_t max_bytes = 1'000'000) {
    return choose_rollouts(folder_.path(), max_bytes, left_out_);
  }

  const TestFolder folder_;
  LeftOut left_out_;
};

TEST_F(RolloutChoiceTest, HasFirstLongestBestAndWorstOfAFile) {
  std::vector<Json> rows;
  for (int i = 0; i < 200; ++i) rows.push_back(dumped_row(i, 0.5, "answer"));
  rows[150] = dumped_row(150, 0.5, "a longer answer");
  rows[160] = dumped_row(160, 1, "best");
  rows[170] = dumped_row(170, -1, "worst");
  write("rollouts/000003.jsonl", rows);
  std::set<int64_t> prompts;
  for (const Json& row : choose()) {
    prompts.insert(row.at("prompt_id").get<int64_t>());
    EXPECT_EQ(row.at("step"), 3) << "of the file's name";
    EXPECT_EQ(row.at("kind"), "rollout");
  }
  EXPECT_EQ(prompts.size(), 35u);
  for (const int64_t prompt : {0, 31, 150, 160, 170}) EXPECT_TRUE(prompts.contains(prompt));
}

TEST_F(RolloutChoiceTest, FilesAreAtEqualDistances) {
  for (int step = 1; step <= 100; ++step)
    write(fmt::format("rollouts/{:06}.jsonl", step), {dumped_row(1, 1, "x")});
  write("validation/000050.jsonl", {dumped_row(1, 1, "x")});
  write("rollouts/notes.jsonl", {dumped_row(1, 1, "x")});
  std::set<int64_t> steps;
  int validations = 0;
  for (const Json& row : choose()) {
    steps.insert(row.at("step").get<int64_t>());
    validations += row.at("kind") == "validation" ? 1 : 0;
  }
  EXPECT_EQ(validations, 1);
  EXPECT_EQ(steps.size(), 13u);
  EXPECT_TRUE(steps.contains(1) && steps.contains(100));
}

TEST_F(RolloutChoiceTest, BytesAreSharedByTheFiles) {
  for (int step = 1; step <= 4; ++step)
    write(fmt::format("rollouts/{:06}.jsonl", step),
          std::vector<Json>(30, dumped_row(1, 1, std::string(1000, '<'))));
  const Json chosen = choose(30'000);  // "<" takes six bytes
  EXPECT_LE(script_json(chosen).size(), 30'100u);
  std::set<int64_t> steps;
  for (const Json& row : chosen) steps.insert(row.at("step").get<int64_t>());
  EXPECT_EQ(steps.size(), 4u);
}

TEST_F(RolloutChoiceTest, LongTextsAreCutAtACharacter) {
  std::string text = "a";
  for (int i = 0; i < 20'000; ++i) text += "é";
  write("rollouts/000001.jsonl", {dumped_row(1, 1, text)});
  const Json row = choose().at(0);
  const auto& shown = row.at("output").get_ref<const std::string&>();
  EXPECT_LE(shown.size(), 16'000u);
  EXPECT_TRUE(text.starts_with(shown));
  EXPECT_EQ(shown.size() % 2, 1u) << "a whole character at the end";
  EXPECT_EQ(row.at("cut"), text.size() - shown.size());
}

TEST_F(RolloutChoiceTest, KeepsTokensAndTheirLogprobs) {
  Json row = dumped_row(1, 1, "ab");
  row["token_texts"] = {"a", "b"};
  row["token_logprobs"] = {-0.5, nullptr};
  row["accepted"] = {false, true};
  Json damaged = row;
  damaged["token_logprobs"] = {-0.5};
  damaged["accepted"] = "yes";
  Json nonsense = row;
  nonsense["token_texts"] = {1, 2};
  write("rollouts/000001.jsonl", {row, damaged, nonsense});
  const Json chosen = choose();
  EXPECT_EQ(chosen.at(0).at("token_texts"), Json({"a", "b"}));
  EXPECT_EQ(chosen.at(0).at("token_logprobs"), Json({-0.5, nullptr}));
  EXPECT_EQ(chosen.at(0).at("accepted"), "01");
  EXPECT_EQ(chosen.at(1).at("token_texts"), Json({"a", "b"}));
  EXPECT_FALSE(chosen.at(1).contains("token_logprobs")) << "of another length";
  EXPECT_FALSE(chosen.at(1).contains("accepted"));
  EXPECT_FALSE(chosen.at(2).contains("token_texts"));
}

TEST_F(RolloutChoiceTest, DamagedRowsAreNamedAndLeftOut) {
  write_text("rollouts/000001.jsonl",
             dumped_row(1, 1, "good").dump() + "\n[1]\n{\"output\": \"no more\n" +
                 R"({"input": [1], "output": {"a": 1}, "score": "high", "prompt_id": []})" + "\n" +
                 dumped_row(2, 0, "last").dump());
  const Json chosen = choose();
  ASSERT_EQ(chosen.size(), 3u);
  EXPECT_EQ(chosen.at(0).at("output"), "good");
  EXPECT_EQ(chosen.at(2).at("output"), R"({"a":1})") << "of another type";
  EXPECT_FALSE(chosen.at(2).contains("score"));
  EXPECT_THAT(left_out_.sentences(), ElementsAre(HasSubstr("000001.jsonl:2: left out (array"),
                                                 HasSubstr("000001.jsonl:3: not JSON")));
}

TEST_F(RolloutChoiceTest, RowsAfterTheLimitAreNamed) {
  std::vector<Json> rows(5'000, dumped_row(1, 1, "x"));
  write("rollouts/000001.jsonl", rows);
  choose();
  EXPECT_TRUE(left_out_.is_empty());
  rows.push_back(dumped_row(2, 1, "x"));
  write("rollouts/000001.jsonl", rows);
  choose();
  EXPECT_THAT(left_out_.sentences(),
              ElementsAre(HasSubstr("000001.jsonl: the rows after the first 5000")));
}

TEST_F(RolloutChoiceTest, FlagsEndWithTheTokens) {
  Json row = dumped_row(1, 1, std::string(5'000, 'x'));
  row["token_texts"] = std::vector<std::string>(5'000, "x");
  row["accepted"] = std::vector<bool>(5'000, true);
  write("rollouts/000001.jsonl", {row});
  const Json shown = choose().at(0);
  EXPECT_EQ(shown.at("token_texts").size(), 4'096u);
  EXPECT_EQ(shown.at("accepted"), std::string(4'096, '1'));
}

TEST_F(RolloutChoiceTest, ARunWithoutResponsesHasNone) { EXPECT_EQ(choose(), Json::array()); }

}  // namespace
}  // namespace tlt::run
