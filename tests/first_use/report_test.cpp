// The reports of a run: console lines, summary, report.html, and the page of metrics.
//
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <map>
#include <regex>

#include "tests/first_use/support.h"

namespace tlt::first_use {
namespace {

using ::testing::MatchesRegex;

std::string text_of(const std::string& path) { return read_file(path, 1 << 26); }

// Starts a small run of the demo with two workers; returns its folder.
class ReportTest : public ::testing::Test {
 protected:
  Ended run(const std::vector<std::string>& more) {
    std::vector<std::string> words = {
        "train",
        "recipes/demo.toml",
        "trainer.default_local_dir=" + folder(),
        "trainer.total_training_steps=3",
        "trainer.test_freq=3",
        "data.val_files=[\"countdown:seed=7,size=8\"]",
        "data.train_batch_size=3",  // a worker idles
        "rollout.n=4",
        "data.max_response_length=96",
        "actor.ppo_mini_batch_size=1",
        "speculative.train.frozen_after_steps=1",
        "speculative.train.step_tokens=128",
    };
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words);
  }
  static std::string folder() { return scratch_folder() + "/run"; }
};

// The data of a report's page.
nlohmann::json data_of(const std::string& html) {
  const std::string begin = "id=\"data\">";
  const size_t from = html.find(begin) + begin.size();
  return nlohmann::json::parse(html.substr(from, html.find("</script>", from) - from));
}

// The value of a metric in the i-th step of the page; null if the step has none.
nlohmann::json shown_value(const nlohmann::json& metrics, const std::string& name, size_t i) {
  const nlohmann::json& column = metrics.at("columns").at(name);
  if (column.is_array()) return column.at(i);
  for (size_t k = 0; k < column.at("at").size(); ++k)
    if (column.at("at").at(k) == i) return column.at("values").at(k);
  return nullptr;
}

void expect_same_numbers(const nlohmann::json& metrics, const std::string& metrics_file) {
  const std::vector<nlohmann::json> rows = apps::json_file(metrics_file);
  ASSERT_EQ(metrics.at("steps").size(), rows.size());
  for (size_t i = 0; i < rows.size(); ++i)
    for (const auto& [name, value] : rows[i].items()) {
      if (name != "step" && value.is_number()) {
        EXPECT_EQ(shown_value(metrics, name, i), value) << name << " in row " << i;
      }
    }
}

TEST_F(ReportTest, NegativeScoresAreInTheReport) {  // B8
  const Ended ended =
      run({"reward.functions=[\"length\"]", "reward.overlong_buffer.len=24",
           "data.max_response_length=24", "trainer.test_freq=0", "trainer.val_before_train=false"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  bool is_negative = false;
  for (const auto& row : apps::json_file(folder() + "/metrics.jsonl"))
    is_negative = is_negative || row.value("critic/score/mean", 0.0) < 0;
  ASSERT_TRUE(is_negative);
  const nlohmann::json metrics =
      data_of(text_of(folder() + "/report.html")).at("runs").at(0).at("metrics");
  expect_same_numbers(metrics, folder() + "/metrics.jsonl");
  EXPECT_FALSE(metrics.at("columns").contains("main/validation_score"))
      << "the run had no validation";
}

TEST_F(ReportTest, RunEndsWithASummary) {
  const Ended ended = run({"--workers", "2"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  // Whether idle time sufficed for a frozen copy of the draft model depends on the machine's load;
  // run_summary_test.cpp has one.
  const std::string summary = text_of(folder() + "/summary.txt");
  for (const char* line :
       {"Run summary (3 steps, ", "  held-out score      ", "  training score  ",
        "  truncated           ", " responses at 96 tokens",
        "  draft model         acceptance length ",
        "  lossless            16/16 responses bit-identical", "  idle workers        ",
        "  time                rollout ", "before training (step 0): score ",
        "after training (step 3): score ", "  next\n"}) {
    EXPECT_THAT(summary, HasSubstr(line));
    if (!std::string_view(line).ends_with('\n')) {
      EXPECT_THAT(ended.err, HasSubstr(line));
    }
  }
  // Console lines: no terminal control characters in a file.
  EXPECT_EQ(ended.err.find('\r'), std::string::npos);
  EXPECT_EQ(ended.err.find('\033'), std::string::npos);
  EXPECT_EQ(ended.err.find("running"), ended.err.find("running sequences"));
  EXPECT_THAT(ended.err, HasSubstr("step 0/3  validation "));
  const std::regex step(
      "step 3/3  score .* entropy .* trunc .* tok/s .* accept .* s .gen .* ETA 0:00");
  EXPECT_TRUE(std::regex_search(ended.err, step)) << ended.err;
  // The report, linked in the summary: all numbers, both workers and what they did, and responses
  // with the text and logprob of their tokens.
  EXPECT_THAT(summary, HasSubstr("  report              " + folder() + "/report.html\n"));
  const nlohmann::json report = data_of(text_of(folder() + "/report.html")).at("runs").at(0);
  expect_same_numbers(report.at("metrics"), folder() + "/metrics.jsonl");
  EXPECT_EQ(report.at("left_out"), nlohmann::json::array());
  EXPECT_THAT(report.at("summary"), summary);
  EXPECT_EQ(report.at("options").at("rollout.n"), "4");
  const nlohmann::json& steps = report.at("timeline").at("steps");
  ASSERT_EQ(steps.size(), 3u);
  for (const nlohmann::json& worker : steps.at(2).at("workers"))
    for (const char* lane : {"rollout", "update"}) EXPECT_TRUE(worker.at("spans").contains(lane));
  EXPECT_EQ(steps.at(2).at("workers").size(), 2u);
  int with_tokens = 0;
  for (const nlohmann::json& row : report.at("rollouts")) {
    if (!row.contains("token_texts")) continue;
    std::string text;
    for (const std::string token : row.at("token_texts")) text += token;
    EXPECT_EQ(text, row.at("output"));
    EXPECT_EQ(row.at("token_logprobs").size(), row.at("token_texts").size());
    ++with_tokens;
  }
  EXPECT_GT(with_tokens, 8);
  const std::vector<nlohmann::json> rows = apps::json_file(folder() + "/metrics.jsonl");
  expect_all_on_the_page(rows);
  for (const nlohmann::json& row : rows) {
    if (!row.contains("rollout/decode_seconds")) continue;
    const double forward = row.at("rollout/forward_seconds"),
                 sample = row.at("rollout/sample_seconds");
    EXPECT_GT(forward, 0);
    EXPECT_GT(sample, 0);
    EXPECT_LT(forward + sample, row.at("rollout/decode_seconds"));
  }
  // Rollout dumps have the advantage: positive above the group's mean score, negative below.
  std::map<int64_t, std::pair<double, double>> of_prompt;  // sums of advantages and |advantages|
  for (const auto& row : apps::json_file(folder() + "/rollouts/000001.jsonl")) {
    auto& [sum, size] = of_prompt[row.at("prompt_id")];
    sum += row.at("advantage").get<double>();
    size += std::abs(row.at("advantage").get<double>());
    EXPECT_TRUE(row.at("score") == 1 ? row.at("advantage") >= 0 : row.at("advantage") <= 0) << row;
  }
  double size = 0;
  for (const auto& [prompt, sums] : of_prompt) {
    EXPECT_NEAR(sums.first, 0, 1e-4);
    size += sums.second;
  }
  EXPECT_GT(size, 0) << "no group had different scores";
  // Validation responses are dumped.
  EXPECT_EQ(apps::json_file(folder() + "/validation/000000.jsonl").size(), 8u);
  EXPECT_EQ(apps::json_file(folder() + "/validation/000003.jsonl").size(), 8u);
  // The suggested commands can be pasted.
  std::istringstream lines(summary.substr(summary.find("  next\n")));
  int commands = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.find(" generate ") == line.npos && line.find(" export ") == line.npos) continue;
    EXPECT_EQ(std::system(("cd " TLT_SOURCE_DIR " && " + line + " >/dev/null 2>&1").c_str()), 0)
        << line;
    ++commands;
  }
  EXPECT_EQ(commands, 2);
  EXPECT_EQ(apps::json_file(folder() + "/example_answer.jsonl").size(), 1u);
}

}  // namespace
}  // namespace tlt::first_use
