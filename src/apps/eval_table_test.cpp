// SPDX-License-Identifier: Apache-2.0
#include "apps/eval_table.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "tests/support/run_program.h"

namespace tlt::apps {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json dump_line(int64_t prompt, int64_t sample, double score) {
  return {{"input", "question " + std::to_string(prompt)},
          {"output", "…"},
          {"gts", "4"},
          {"score", score},
          {"step", 0},
          {"prompt_id", prompt},
          {"sample", sample},
          {"finish_reason", sample == 0 ? "length" : "stop"},
          {"response_tokens", 10 * (prompt + 1)},
          {"data_source", prompt % 2 == 0 ? "even" : "odd"}};
}

// `score` of (prompt, sample), two samples of each prompt.
template <class Score>
std::string dump(int64_t prompts, const Score& score) {
  std::string text;
  for (int64_t prompt = 0; prompt < prompts; ++prompt)
    for (int64_t sample = 0; sample < 2; ++sample)
      text += dump_line(prompt, sample, score(prompt, sample)).dump() + "\n";
  return text;
}

EvalTable table_of(const std::string& name, const std::string& text) {
  return read_eval_table(name, scratch_file(name + ".jsonl", text));
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(EvalTableTest, ComparisonIsPairedByPrompt) {
  // Prompts differ much, the tables by 0.1 in each prompt: unpaired intervals would overlap.
  const EvalTable a = table_of("a", dump(40, [](int64_t p, int64_t) { return double(p % 7); }));
  const EvalTable b =
      table_of("b", dump(40, [](int64_t p, int64_t s) { return double(p % 7) + 0.2 * double(s); }));
  const std::vector<Comparison> found = compare(a, b);
  ASSERT_EQ(found.size(), 3u);  // even, odd, all
  EXPECT_EQ(found[2].source, "all");
  for (const Comparison& one : found) {
    EXPECT_NEAR(one.difference.value, 0.1, 1e-12) << one.source;
    EXPECT_NEAR(one.difference.low, 0.1, 1e-12) << one.source;
    EXPECT_NEAR(one.difference.high, 0.1, 1e-12) << one.source;
    EXPECT_NEAR(one.after - one.before, 0.1, 1e-12) << one.source;
    EXPECT_EQ(one.worse, 0);
  }
  EXPECT_EQ(found[2].better, 40);
  EXPECT_THAT(text_of_comparisons(found), HasSubstr("difference +0.1000 [+0.1000, +0.1000]"));
}

TEST(EvalTableTest, StatisticsAreBySourceWithLengths) {
  const EvalTable table =
      table_of("a", dump(4, [](int64_t p, int64_t s) { return double(p < 2 && s == 0); }));
  std::map<std::string, double> values;
  for (const reward::EvalStatistic& one : statistics_of(table.rows))
    values[one.metric()] = one.estimate.value;
  EXPECT_EQ(values.at("val-core/even/reward/mean@2"), 0.25);
  EXPECT_EQ(values.at("val-core/even/reward/best@2/mean"), 0.5);
  EXPECT_EQ(values.at("val-core/even/acc/pass@2"), 0.5);
  EXPECT_EQ(values.at("val-aux/even/response_length/mean"), 20);  // of 10, 10, 30, 30
  EXPECT_EQ(values.at("val-aux/even/response_length/p50"), 10);
  EXPECT_EQ(values.at("val-aux/odd/response_length/max"), 40);
  EXPECT_EQ(values.at("val-aux/odd/response_length/clip_ratio"), 0.5);
  EXPECT_FALSE(values.contains("val-core/even/reward/maj@2/mean"));  // no answers
}

TEST(EvalTableTest, OnlyTheSameRowsAreCompared) {
  const auto zero = [](int64_t, int64_t) { return 0.0; };
  const EvalTable a = table_of("a", dump(3, zero)), fewer = table_of("fewer", dump(2, zero));
  std::string text = dump(3, zero);
  text.replace(text.find("question 1"), 10, "question x");
  text.replace(text.find("question 1"), 10, "question x");
  const EvalTable other = table_of("other", text);
  EXPECT_THAT(refusal([&] { compare(a, fewer); }), HasSubstr("a has 3 prompts and fewer 2; only"));
  EXPECT_THAT(refusal([&] { compare(a, other); }),
              HasSubstr("a and other differ in prompt 1; only"));
}

TEST(EvalTableTest, DamagedFilesAreRefusedBySentence) {
  const std::string whole = dump(2, [](int64_t, int64_t) { return 1.0; });
  EXPECT_THAT(refusal([&] { table_of("a", ""); }), HasSubstr("a.jsonl has no rows; is it still"));
  EXPECT_THAT(refusal([&] { table_of("a", whole.substr(0, whole.rfind('{'))); }),
              HasSubstr("prompt 1 has 1 response and another 2; the file is damaged"));
  EXPECT_THAT(refusal([&] { table_of("a", whole.substr(0, whole.size() - 9)); }),
              HasSubstr("a.jsonl:4"));
  EXPECT_THAT(refusal([&] { table_of("a", "{\"score\": 1}\n"); }),
              HasSubstr("a.jsonl:1: no \"prompt_id\"; give a folder of tlt eval"));
  EXPECT_THAT(refusal([&] { table_of("a", "{\"score\": \"one\"}\n"); }),
              HasSubstr("a.jsonl:1: \"score\" has the wrong type"));
}

TEST(EvalTableTest, RunHasATableForEachValidation) {
  const std::string folder = scratch_folder() + "/run";
  make_folder(folder + "/validation");
  for (const int step : {100, 20, 0})
    write_file_atomic(folder + "/validation/" + fmt::format("{:06}", step) + ".jsonl",
                      dump(2, [&](int64_t, int64_t) { return step / 100.0; }));
  const std::vector<EvalTable> tables = read_eval_folder(folder);
  ASSERT_EQ(tables.size(), 3u);
  EXPECT_EQ(tables[0].name, folder + " step 0");
  EXPECT_EQ(tables[1].name, folder + " step 20");
  EXPECT_EQ(tables[2].rows[3].score, 1);
  EXPECT_THAT(refusal([&] { read_eval_folder(folder + "/validation"); }),
              HasSubstr("has neither an evaluation (responses.jsonl) nor a run's validation/"));
  write_file_atomic(folder + "/responses.jsonl.partial", "");
  EXPECT_THAT(refusal([&] { read_eval_folder(folder); }), HasSubstr("is not finished; run its"));
}

}  // namespace
}  // namespace tlt::apps
