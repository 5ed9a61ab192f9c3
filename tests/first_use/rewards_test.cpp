// Custom rewards and the columns they require: B5 (the command is started before the model is
// loaded), B6, and `tlt reward`.
//
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "tests/first_use/support.h"
#include "tests/support/environment.h"
#include "tests/support/small_run.h"

namespace tlt::first_use {
namespace {

using apps::json_file;
using apps::json_lines;
using nlohmann::json;

constexpr const char* kPrompts =
    "{\"prompt\": \"7,6,3:60<think>\"}\n{\"prompt\": \"5,2,9:16<think>\"}\n";
constexpr const char* kTrlReward =
    "def reward_func(completions, **kwargs):\n"
    "    return [-float(len(c)) for c in completions]\n";

class RewardsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!tests::has_python()) GTEST_SKIP() << "no python3";
  }

  // reward.command with a program of tools/ and a file of the user.
  static std::string command_of(const std::string& tool, const std::string& arguments) {
    return "reward.command=python3 " + std::string(TLT_SOURCE_DIR) + "/tools/" + tool + " " +
           arguments;
  }
  static std::vector<std::string> with_command(const std::string& command) {
    return {"reward.functions=[\"command\"]", command};
  }

  // Runs one training step on the rows.
  static Ended train(const std::string& rows, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"train",
                                      "model.path=" + demo_model(),
                                      "data.train_files=" + scratch_file("rows.jsonl", rows),
                                      "data.train_batch_size=2",
                                      "data.max_response_length=48",
                                      "rollout.n=4",
                                      "trainer.total_training_steps=1",
                                      "trainer.val_before_train=false",
                                      "trainer.threads=1",
                                      "trainer.default_local_dir=" + run()};
    words.insert(words.end(), more.begin(), more.end());
    std::filesystem::remove_all(run());
    return run_program(words);
  }
  static std::string run() { return scratch_folder() + "/run"; }
  static std::vector<json> dump() { return json_file(run() + "/rollouts/000001.jsonl"); }

  // Runs `tlt reward` on rows from standard input.
  static Ended score(const std::string& rows, std::vector<std::string> words) {
    words.insert(words.begin(), "reward");
    words.insert(words.end(), {"--input", "-", "--output", "-"});
    return run_program(words, rows);
  }
};

TEST_F(RewardsTest, CommandDoesNotInheritTheJobSecret) {
  ASSERT_EQ(setenv("TLT_JOB_SECRET", "sixteen letters or more", 1), 0);
  const Ended ended =
      score("{\"response\": \"x\"}\n",
            with_command("reward.command=while read -r line; do echo ${#TLT_JOB_SECRET}; done"));
  unsetenv("TLT_JOB_SECRET");
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(json_lines(ended.out).at(0).at("score"), 0.0);
}

TEST_F(RewardsTest, TrlsFirstExampleRunsUnchanged) {  // B6
  const std::string reward = scratch_file("my_rewards.py", kTrlReward);
  const Ended ended = train(kPrompts, with_command(command_of("trl_reward.py", reward)));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const std::vector<json> rows = dump();
  ASSERT_EQ(rows.size(), 8U);
  for (const json& row : rows)
    EXPECT_EQ(row.at("score"), -static_cast<double>(row.at("response").get<std::string>().size()));
}

TEST_F(RewardsTest, TrlFunctionsGetColumnsTokensAndMessages) {
  const std::string reward = scratch_file("my_rewards.py", R"(
def level(prompts, completions, completion_ids, level, **kwargs):
    assert completions[0][0]["role"] == "assistant" and prompts[0][-1]["role"] == "user"
    return [float(l + 100 * (len(ids) > 0)) for l, ids in zip(level, completion_ids)]
def nothing(completions, solution, **kwargs): return [None]
)");
  const std::string rows =
      R"({"prompt": [{"role": "user", "content": "7,6,3:60"}], "level": 1, "solution": "x"})"
      "\n"
      R"({"prompt": [{"role": "user", "content": "5,2,9:16"}], "level": 2, "solution": "y"})";
  const std::string chat = scratch_file("chat.jinja", "{{ messages[0].content }}<think>");
  std::vector<std::string> words =
      with_command(command_of("trl_reward.py", reward + " level nothing --weights 2 1"));
  words.push_back("data.chat_template=" + chat);
  const Ended ended = train(rows, words);
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  for (const json& row : dump()) {
    EXPECT_EQ(row.at("score"), 2 * row.at("level").get<double>()) << row;
    EXPECT_EQ(row.at("level"), 100 + row.at("extra_info").at("level").get<double>());
    EXPECT_EQ(row.at("prompt").at(0).at("role"), "user");
  }
}

TEST_F(RewardsTest, RewardsThatReadNoAnswerNeedNone) {  // B6
  const Ended form = train(kPrompts, {"reward.functions=[\"format\",\"length\",\"repetition\"]",
                                      "reward.overlong_buffer.len=8"});
  EXPECT_EQ(form.exit_code, 0) << form.err;
  const std::string rows = "{\"prompt\": \"7,6,3:60<think>\", \"solution\": \"60\"}\n";
  const Ended exact = train(rows + rows, {"reward.functions=exact", "data.train_batch_size=1"});
  EXPECT_EQ(exact.exit_code, 0) << exact.err << "only reward.functions=auto reads a data source";
}

TEST_F(RewardsTest, RewardsThatReadAnAnswerNameTheColumn) {
  expect_refusal(train(kPrompts, {"reward.functions=exact"}),
                 HasSubstr("rows.jsonl:1: no field \"reward_model.ground_truth\"; set "
                           "data.answer_key (the row has: prompt)"));
  expect_refusal(train("{\"prompt\": \"a\", \"solution\": \"1\"}", {}),
                 HasSubstr("rows.jsonl:1: no field \"data_source\"; set data.reward_fn_key or "
                           "data.data_source"));
}

TEST_F(RewardsTest, FailingCommandEndsTheRunBeforeLoading) {  // B5
  const std::string broken = scratch_file("broken.py", "import tlt_no_such_module\n");
  for (const char* tool : {"verl_reward.py", "trl_reward.py"})
    for (const auto& [file, reason] :
         {std::pair<std::string, const char*>{"nope.py", "nope.py: no such file"},
          {broken, "No module named 'tlt_no_such_module'"}}) {
      std::vector<std::string> words = with_command(command_of(tool, file));
      words.push_back("model.path=no_such_model");
      const Ended ended = train(kPrompts, words);
      expect_refusal(ended, AllOf(HasSubstr("before it read a sample"), HasSubstr(reason)));
      EXPECT_FALSE(std::filesystem::exists(run()));
    }
}

TEST_F(RewardsTest, GivenResponsesAreScoredInOrder) {
  const Ended ended = score(
      R"({"id": "b", "response": "#### 5", "ground_truth": "5", "data_source": "openai/gsm8k"})"
      "\n"
      R"({"id": "a", "response": "#### 4", "reward_model": {"ground_truth": "5"}, "data_source": "openai/gsm8k"})"
      "\n"
      R"({"response": "#### 5", "label": "5", "data_source": "nowhere"})"
      "\n",
      {"reward.threads=2"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("2 rows scored, mean score 0.5; 1 failed\n"));
  const std::vector<json> rows = json_lines(ended.out);
  ASSERT_EQ(rows.size(), 3U) << ended.out;
  EXPECT_EQ(rows[0].at("id"), "b");
  EXPECT_EQ(rows[0].at("score"), 1);
  EXPECT_GE(rows[0].at("seconds"), 0);
  EXPECT_FALSE(rows[0].contains("error"));
  EXPECT_EQ(rows[1].at("id"), "a");
  EXPECT_EQ(rows[1].at("score"), 0);
  EXPECT_FALSE(rows[1].contains("error"));
  EXPECT_EQ(rows[2].at("score"), 0);
  EXPECT_THAT(rows[2].at("error"), HasSubstr("no reward is known for the data source `nowhere`"));
  EXPECT_FALSE(rows[2].contains("id"));
}

TEST_F(RewardsTest, WeightedSumReportsItsParts) {
  const Ended ended = score("{\"response\": \"<think>x</think> 5\", \"ground_truth\": \"5\"}\n",
                            {"reward.functions=[\"format\",\"math\"]", "reward.weights=[0.5,2]"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const json row = json_lines(ended.out).at(0);
  EXPECT_EQ(row.at("score"), 2.5);
  EXPECT_EQ(row.at("parts"), (json{{"format", 1}, {"math", 1}}));
}

TEST_F(RewardsTest, TrainingRecipeIsAccepted) {
  const Ended ended = score(
      R"({"response": "<think>7+3=10</think><answer>10*6</answer>", "ground_truth": "7,6,3:60"})",
      {"recipes/demo.toml", "data.data_source=tlt/countdown_trace"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(json_lines(ended.out).at(0).at("score"), 0) << "the response does not use all numbers";
}

TEST_F(RewardsTest, FailsIfNoRowHasAScore) {
  const std::string reward = scratch_file("raises.py", "def f(completions, **k): return 1 / 0\n");
  const Ended ended = score("{\"response\": \"a\"}\n{\"response\": \"b\"}\n",
                            with_command(command_of("trl_reward.py", reward)));
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("tlt reward: none of the 2 rows has a score"),
                               HasSubstr("ZeroDivisionError")));
  ASSERT_EQ(json_lines(ended.out).size(), 2U) << "each row has its error";
}

TEST_F(RewardsTest, RowsThatCannotBeScoredAreNamed) {
  expect_refusal(score("{\"text\": \"a\"}", {"reward.functions=format"}),
                 HasSubstr("no field \"response\"; set data.response_key (the row has: text)"));
  expect_refusal(score("{\"response\": \"a\"}", {"reward.functions=exact"}),
                 HasSubstr("no field \"reward_model.ground_truth\""));
  expect_refusal(score("{\"response\": \"a\"}", {"reward.functions=length"}),
                 HasSubstr("no \"response_tokens\"; the reward length needs it"));
  expect_refusal(score("", {"reward.functions=format"}), HasSubstr("no rows"));
  expect_refusal(score("[]", {"reward.functions=format"}), HasSubstr("must be a JSON object"));
}

// Regrades a rollout dump with the options that the run wrote.
void expect_same_scores(const std::string& run) {
  const std::string scores = scratch_folder() + "/scores.jsonl";
  const Ended ended = run_program({"reward", run + "/options.toml", "--input",
                                   run + "/rollouts/000001.jsonl", "--output", scores});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const std::vector<json> want = json_file(run + "/rollouts/000001.jsonl"), got = json_file(scores);
  ASSERT_EQ(got.size(), want.size());
  double sum = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    for (const char* field : {"score", "step", "prompt_id", "sample"})
      EXPECT_EQ(got[i].at(field), want[i].at(field)) << i << " " << field;
    sum += std::abs(want[i].at("score").get<double>());
  }
  EXPECT_GT(sum, 0) << "all scores are 0: the comparison proves nothing";
}

TEST_F(RewardsTest, RegradedDumpOfTheDemoHasTheSameScores) {
  const tests::Scratch scratch;
  ASSERT_EQ(
      tests::run_program(tests::small_run(scratch / "run", 1, 1,
                                          {"data.max_response_length=512", "trainer.threads=1",
                                           "actor.ppo_max_token_len_per_gpu=4096",
                                           "reward.functions=[\"auto\",\"length\",\"repetition\"]",
                                           "reward.weights=[1,0.5,0.25]"}),
                         scratch / "log"),
      0)
      << tests::read_text(scratch / "log");
  expect_same_scores(scratch / "run");
}

TEST_F(RewardsTest, RegradedDumpOfACommandHasTheSameScores) {
  const std::string reward = scratch_file("my_reward.py", R"(
def compute_score(data_source, solution_str, ground_truth, extra_info):
    return {"score": len(solution_str) + 1000 * extra_info["level"] + (ground_truth is None), "size": len(solution_str)}
)");
  const Ended ended = train(
      "{\"prompt\": \"7,6,3:60<think>\", \"level\": 1}\n"
      "{\"prompt\": \"5,2,9:16<think>\", \"level\": 2}\n",
      with_command(command_of("verl_reward.py", reward)));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  expect_same_scores(run());
}

}  // namespace
}  // namespace tlt::first_use
