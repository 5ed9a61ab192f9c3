// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "tests/support/run_program.h"

namespace tlt::apps {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr int64_t kMaxBytes = 1 << 26;

std::vector<std::string> eval_command(const std::string& output,
                                      const std::vector<std::string>& more = {}) {
  std::vector<std::string> words = {"eval",
                                    "--model",
                                    TLT_SOURCE_DIR "/models/demo",
                                    "--data",
                                    "countdown:seed=7,size=6",
                                    "--samples",
                                    "4",
                                    "--output",
                                    output,
                                    "data.max_response_length=512",
                                    "trainer.threads=1"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string text_of(const std::string& folder, const std::string& file) {
  return read_file(folder + "/" + file, kMaxBytes);
}

std::map<std::string, json> statistics(const std::string& folder) {
  std::map<std::string, json> found;
  for (const json& row : json_file(folder + "/statistics.jsonl")) found[row["metric"]] = row;
  return found;
}

TEST(EvalTest, StatisticsAreThoseOfTheResponses) {
  const std::string folder = scratch_folder() + "/out";
  const Ended ended = run_program(eval_command(folder));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const std::vector<json> rows = json_file(folder + "/responses.jsonl");
  ASSERT_EQ(rows.size(), 24u);
  double sum = 0, passed = 0, tokens = 0, cut = 0;
  for (size_t prompt = 0; prompt < 6; ++prompt) {
    bool one_passes = false;
    for (size_t sample = 0; sample < 4; ++sample) {
      const json& row = rows[prompt * 4 + sample];
      EXPECT_EQ(row["prompt_id"], prompt);
      EXPECT_EQ(row["sample"], sample);
      EXPECT_EQ(row["passed"], row["score"] == 1);
      sum += row["score"].get<double>();
      one_passes = one_passes || row["passed"];
      tokens += row["response_tokens"].get<double>();
      cut += row["finish_reason"] == "length";
    }
    passed += one_passes;
  }
  EXPECT_GT(sum, 0) << "the demo's model solves some";
  const auto found = statistics(folder);
  const std::string source = rows[0]["data_source"];
  const auto value = [&](const std::string& name) -> double { return found.at(name).at("value"); };
  EXPECT_NEAR(value("val-core/" + source + "/reward/mean@4"), sum / 24, 1e-12);
  EXPECT_NEAR(value("val-core/" + source + "/acc/pass@4"), passed / 6, 1e-12);
  EXPECT_NEAR(value("val-aux/" + source + "/acc/pass@1"), sum / 24, 1e-12);
  EXPECT_NEAR(value("val-aux/" + source + "/response_length/mean"), tokens / 24, 1e-9);
  EXPECT_NEAR(value("val-aux/" + source + "/response_length/clip_ratio"), cut / 24, 1e-12);
  EXPECT_THAT(ended.out, HasSubstr("reward/mean@4"));

  // A second time everything is there: the same table, and nothing is generated.
  const Ended again = run_program(eval_command(folder));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(again.out, ended.out);
  EXPECT_THAT(again.err, HasSubstr("all responses are there"));
}

TEST(EvalTest, WorkersBatchesAndSpeculationChangeNoByte) {
  const std::string one = scratch_folder() + "/one", other = scratch_folder() + "/other";
  const Ended first = run_program(eval_command(one)),
              second = run_program(eval_command(
                  other, {"--workers", "2", "speculative.enable=false", "rollout.max_num_seqs=3"}));
  ASSERT_EQ(first.exit_code, 0) << first.err;
  ASSERT_EQ(second.exit_code, 0) << second.err;
  for (const char* file : {"responses.jsonl", "statistics.jsonl", "settings.json"})
    EXPECT_EQ(text_of(one, file), text_of(other, file)) << file;
}

TEST(EvalTest, ResumedEqualsUninterrupted) {
  const std::string whole = scratch_folder() + "/whole", resumed = scratch_folder() + "/resumed";
  const Ended first = run_program(eval_command(whole));
  ASSERT_EQ(first.exit_code, 0) << first.err;
  // As after a kill: some lines, in the order in which they were finished, the last one torn.
  const std::vector<json> rows = json_file(whole + "/responses.jsonl");
  json header;
  header["partial"] = json::parse(text_of(whole, "settings.json"));
  std::string partial = header.dump() + "\n";
  std::istringstream lines(text_of(whole, "responses.jsonl"));
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line);) all.push_back(line);
  for (const size_t i : {9, 0, 1, 2, 3, 23}) partial += all[i] + "\n";
  partial += all[5].substr(0, 40);
  make_folder(resumed);
  write_file_atomic(resumed + "/responses.jsonl.partial", partial);
  const Ended second = run_program(eval_command(resumed));
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(second.err, HasSubstr("6 of 24 responses are done"));
  EXPECT_EQ(second.out, first.out);
  for (const char* file : {"responses.jsonl", "statistics.jsonl", "settings.json"})
    EXPECT_EQ(text_of(whole, file), text_of(resumed, file)) << file;
  EXPECT_FALSE(std::filesystem::exists(resumed + "/responses.jsonl.partial"));
}

TEST(EvalTest, AnswersHaveAMajority) {
  std::string data;
  for (const int right : {4, 5})
    data += json{{"prompt", "2+" + std::to_string(right - 2)},
                 {"data_source", "sums"},
                 {"reward_model", {{"ground_truth", std::to_string(right)}}}}
                .dump() +
            "\n";
  const std::string folder = scratch_folder() + "/out";
  const Ended ended =
      run_program({"eval", "--model", TLT_SOURCE_DIR "/models/demo", "--data",
                   scratch_file("sums.jsonl", data), "--samples", "3", "--output", folder,
                   "data.max_response_length=8", "trainer.threads=1", "reward.functions=exact"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_TRUE(statistics(folder).contains("val-core/sums/reward/maj@3/mean"));
  int64_t answers = 0;
  for (const json& row : json_file(folder + "/responses.jsonl")) answers += row["answer"] != "";
  EXPECT_GT(answers, 0);
}

TEST(EvalTest, WrongInputIsOneSentence) {
  const std::string folder = scratch_folder() + "/out";
  const auto refuses = [](const std::vector<std::string>& words, const std::string& says) {
    const Ended ended = run_program(words);
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(says));
  };
  refuses({"eval", "--model", TLT_SOURCE_DIR "/models/demo"},
          "no rows to evaluate; give --data FILE, or data.val_files in the recipe");
  refuses(eval_command(folder, {"rollout.val_kwargs.temperature=0"}),
          "all 4 responses to a prompt would be the same; give --samples 1");
  refuses(eval_command(folder, {"actor.policy_loss.loss_mode=nonsense", "reward.threads=0"}),
          "reward.threads");
  const std::string no_answers =
      scratch_file("no_answers.jsonl", "{\"prompt\": \"1+1\", \"data_source\": \"x\"}\n");
  refuses({"eval", "--model", TLT_SOURCE_DIR "/models/demo", "--data", no_answers,
           "reward.functions=exact"},
          "no_answers.jsonl:1");
  make_folder(folder);
  refuses({"eval", folder}, "has neither an evaluation (responses.jsonl) nor a run's validation/");
}

TEST(EvalTest, AnotherEvaluationInTheFolderIsRefusedByName) {
  const std::string folder = scratch_folder() + "/out";
  const std::vector<std::string> small = {"data.val_max_samples=1", "data.max_response_length=8"};
  ASSERT_EQ(run_program(eval_command(folder, small)).exit_code, 0);
  std::vector<std::string> other = small;
  other.emplace_back("trainer.seed=1");
  const Ended ended = run_program(eval_command(folder, other));
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.err, HasSubstr("has an evaluation with trainer.seed \"0\", and this command "
                                   "has \"1\"; give another --output"));
  const Ended compared = run_program({"eval", folder});
  EXPECT_EQ(compared.exit_code, 2);
  EXPECT_THAT(compared.err, HasSubstr("has one evaluation and nothing to compare it with"));
  const std::string second = scratch_folder() + "/second";
  ASSERT_EQ(run_program(eval_command(second, other)).exit_code, 0);
  const Ended both = run_program({"eval", folder, second, "--output", "-"});
  ASSERT_EQ(both.exit_code, 0) << both.err;
  const json row = json_lines(both.out).at(0);
  EXPECT_EQ(row["baseline"], folder);
  EXPECT_EQ(row["table"], second);
}

}  // namespace
}  // namespace tlt::apps
