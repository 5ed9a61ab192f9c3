// SPDX-License-Identifier: Apache-2.0
#include "reward/command.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>

#include "base/check.h"
#include "reward/reward_pool.h"
#include "tests/support/environment.h"
#include "tests/support/test_folder.h"

namespace tlt::reward {
namespace {

double score(const CommandReward& reward, std::string_view response,
             std::string_view ground_truth = "") {
  return reward.score({.response = response, .ground_truth = ground_truth}).score;
}

// The message that score() throws; empty if none.
std::string complaint(const CommandReward& reward, std::string_view response = "x") {
  try {
    score(reward, response);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

using ::testing::HasSubstr;

constexpr double kLong = 20;  // seconds; never reached

// Answers each line with the number of lines so far: shows that one process is kept alive.
constexpr const char* kCounter = "n=0; while read -r line; do n=$((n+1)); echo $n; done";

TEST(CommandRewardTest, ProgramIsKeptAlive) {
  const CommandReward reward(kCounter, kLong);
  for (int n = 1; n <= 50; ++n) EXPECT_EQ(score(reward, "a"), n);
}

TEST(CommandRewardTest, ProgramReadsTheSample) {
  const TestFolder folder;
  const std::string seen = folder / "seen.json";
  const CommandReward reward("read -r line; printf '%s' \"$line\" > " + seen + "; echo 1", kLong);
  const nlohmann::ordered_json extra = {{"index", 7}, {"answer", 8}};
  const std::vector<int32_t> ids = {5, 6};
  const RewardInput input{.data_source = "source",
                          .response = "a \"b\"\n\\frac \xc3\xa9 \xff",
                          .ground_truth = "42",
                          .extra_info = &extra,
                          .prompt = "why",
                          .response_ids = ids,
                          .truncated = true};
  EXPECT_EQ(reward.score(input).score, 1);
  std::ifstream file(seen);
  using Row = nlohmann::ordered_json;  // equal only in the same order
  const Row row = Row::parse(file);
  EXPECT_EQ(row, (Row{{"id", 1},
                      {"data_source", "source"},
                      {"prompt", "why"},
                      {"messages", nullptr},
                      {"response", "a \"b\"\n\\frac \xc3\xa9 \xef\xbf\xbd"},
                      {"response_ids", {5, 6}},
                      {"ground_truth", "42"},
                      {"extra_info", extra},
                      {"truncated", true}}));
}

TEST(CommandRewardTest, PredIsTheAnswer) {
  const auto result_of = [](const std::string& pred) {
    return CommandReward("read -r l; echo '{\"score\": 1, \"pred\": " + pred + "}'", kLong)
        .score({.response = "a"});
  };
  EXPECT_EQ(result_of("\"x + 1\"").answer, "x + 1");
  EXPECT_EQ(result_of("7").answer, "");  // a column, as other numbers
  EXPECT_EQ(result_of("7").extras, (std::map<std::string, double>{{"pred", 7}}));
}

TEST(CommandRewardTest, ObjectHasScoreAndColumns) {
  const CommandReward reward(
      "while read -r l; do echo '{\"score\": 0.5, \"accuracy\": 1, \"note\": \"n\"}'; done", kLong);
  const RewardResult result = reward.score({.response = "a"});
  EXPECT_EQ(result.score, 0.5);
  EXPECT_EQ(result.extras, (std::map<std::string, double>{{"accuracy", 1}}));
}

TEST(CommandRewardTest, ErrorIsOneSentenceAndNextSampleIsScored) {
  struct Case {
    const char* fault;  // of the shell, for a line with BAD in it
    const char* said;
  };
  const Case kCases[] = {
      {"exit 3", "ended with status 3 before it gave a score"},
      {"echo oh no >&2; exit 1", "; its standard error ends in: oh no"},
      {"kill -9 $$", "was killed by signal 9 before it gave a score"},
      {"exec 1>&-; sleep 100", "was stopped before it gave a score"},
      {"sleep 100", "gave no score within 0.9 seconds"},
      {"echo wait >&2; while :; do :; done",
       "gave no score within 0.9 seconds; its standard error"},
      {"echo nonsense", "wrote `nonsense`, which is no score such as {\"score\": 1}"},
      {"echo '{\"score\": \"high\"}'", "which is no score"},
      {"echo", "wrote ``, which is no score"},
      {"echo NaN", "wrote `NaN`, which is no score"},
      {"echo -1e308", "wrote `-1e308`, which is no score"},
      {"echo '{\"score\": 1e12}'", "which is no score"},
      {"printf '1\\n2\\n'", "wrote more than one line"},
      {"while :; do echo flood; done", "wrote "},
      {"yes flood | tr -d '\\n'", "of more than 1048576 bytes"},
      {"while :; do echo flood >&2; done", "gave no score within 0.9 seconds"},
      {"echo '{\"id\": -1, \"score\": 1}'", "wrote the answer to another response"},
      {"echo '{\"error\": \"no such row\"}'", "says: no such row"},
  };
  for (const auto& [fault, said] : kCases) {
    const CommandReward reward(
        std::string("while read -r l; do case $l in *BAD*) ") + fault + ";; *) echo 7;; esac; done",
        /*timeout_seconds=*/1);
    EXPECT_EQ(score(reward, "good"), 7) << fault;
    const std::string text = complaint(reward, "BAD");
    EXPECT_NE(text.find(said), text.npos) << fault << " gave: " << text;
    EXPECT_EQ(text.find('\n'), text.npos) << text;
    EXPECT_LT(text.size(), 1200U) << text;
    EXPECT_EQ(score(reward, "good"), 7) << fault;
  }
}

TEST(CommandRewardTest, MissingProgramIsNamed) {
  const std::string text = complaint(CommandReward("tlt-no-such-program --now", kLong));
  EXPECT_NE(text.find("`tlt-no-such-program --now` ended with status 127"), text.npos) << text;
  EXPECT_NE(text.find("not found"), text.npos) << text;
}

TEST(CommandRewardTest, LongLinesPassBothWays) {
  const CommandReward reward("while read -r l; do printf '%s\\n' ${#l}; done", kLong);
  EXPECT_GT(score(reward, std::string(3'000'000, 'x')), 3'000'000);
}

// An answer without a request would shift all later scores by one.
TEST(CommandRewardTest, UnrequestedLineIsNotTheNextAnswer) {
  const CommandReward reward("read -r l; echo 1; sleep 0.1; echo 99; read -r l; echo 2", kLong);
  EXPECT_EQ(score(reward, "a"), 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  EXPECT_EQ(score(reward, "b"), 1);
}

TEST(CommandRewardTest, EveryThreadOfThePoolHasItsOwnProgram) {
  const std::string command =
      "while read -r l; do sleep 0.05; echo \"{\\\"score\\\": 1, \\\"process\\\": $$}\"; done";
  RewardOptions options;
  options.functions = {"command"};
  options.command = command;
  options.threads = 4;
  options.timeout_seconds = kLong;
  RewardPool pool(make_reward(options), options);
  constexpr int kSamples = 32;
  for (int id = 0; id < kSamples; ++id) pool.submit(id, {.response = "a"});
  std::set<double> processes;
  for (const ScoredSample& sample : pool.wait_all()) {
    EXPECT_EQ(sample.result.score, 1) << sample.error;
    processes.insert(sample.result.extras.at("process"));
  }
  EXPECT_GE(processes.size(), 2U);
  EXPECT_LE(processes.size(), 4U);
}

TEST(CommandRewardTest, PoolCountsWhatFails) {
  RewardOptions options;
  options.functions = {"command"};
  options.command = "read -r l; exit 5";
  RewardPool pool(make_reward(options), options);
  pool.submit(1, {.response = "a"});
  const auto samples = pool.wait_all();
  ASSERT_EQ(samples.size(), 1U);
  EXPECT_EQ(samples[0].result.score, 0);
  EXPECT_NE(samples[0].error.find("ended with status 5"), std::string::npos) << samples[0].error;
  EXPECT_EQ(pool.counters().errors.at("command"), 1);
}

// Also its own children, and also if it ignores the end of its input.
TEST(CommandRewardTest, NoProcessIsLeft) {
  const TestFolder folder;
  const std::string pids = folder / "pids";
  {
    const CommandReward reward(
        "sleep 1000 & echo $$ $! > " + pids + "; read -r l; echo 1; while :; do sleep 1000; done",
        kLong);
    EXPECT_EQ(score(reward, "a"), 1);
  }
  std::ifstream file(pids);
  pid_t shell = 0, sleeper = 0;
  ASSERT_TRUE(file >> shell >> sleeper);
  EXPECT_NE(kill(shell, 0), 0);
  for (int tries = 0; tries < 200 && kill(sleeper, 0) == 0; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // until init has reaped it
  }
  EXPECT_NE(kill(sleeper, 0), 0);
}

// Issue 23: also when tlt itself is killed, its grandchildren included.
TEST(CommandRewardTest, NoProcessIsLeftAfterSigkill) {
  const TestFolder folder;
  const std::string pids = folder / "pids";
  const std::string command = "trap '' TERM HUP; (sleep 1000 & echo $! > " + pids +
                              "); read -r l; echo 1; while :; do sleep 1000; done";
  const pid_t owner = fork();
  if (owner == 0) {
    try {
      const CommandReward reward(command, kLong);
      score(reward, "a");
      kill(getpid(), SIGKILL);
    } catch (...) {
    }
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(owner, &status, 0), owner);
  EXPECT_TRUE(WIFSIGNALED(status));
  std::ifstream file(pids);
  pid_t sleeper = 0;
  ASSERT_TRUE(file >> sleeper);
  for (int tries = 0; tries < 1000 && kill(sleeper, 0) == 0; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_NE(kill(sleeper, 0), 0);
}

// The message that start() throws; empty if none.
std::string start_complaint(const CommandReward& reward) {
  try {
    reward.start();
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(CommandRewardTest, ProgramThatReadsNothingFailsToStart) {
  for (const char* ending : {"exit 3", "exec 0<&-; exit 3", "sleep 0.2; exit 3"}) {
    const std::string text =
        start_complaint(CommandReward(std::string("echo no such module >&2; ") + ending, kLong));
    EXPECT_NE(text.find("ended with status 3 before it read a sample; its standard error ends in: "
                        "no such module"),
              text.npos)
        << ending << ": " << text;
  }
  const std::string late = start_complaint(CommandReward("sleep 60", 0.5));
  EXPECT_NE(late.find("read no sample within 0.45 seconds; raise reward.timeout_seconds"),
            late.npos)
      << late;
}

TEST(CommandRewardTest, ProgramThatReadsIsStarted) {
  for (const char* program :
       {kCounter, "read line; exit 3", "read line; echo nonsense; cat >/dev/null",
        "while read line; do echo '{\"error\": \"empty\"}'; done"})
    EXPECT_EQ(start_complaint(CommandReward(program, kLong)), "") << program;
  EXPECT_EQ(start_complaint(CommandReward("read line; sleep 60", 0.5)), "");
}

TEST(CommandRewardTest, StartedProgramIsKept) {
  const CommandReward reward(kCounter, kLong);
  reward.start();
  EXPECT_EQ(score(reward, "a"), 2) << "the first line was start()'s";
}

// ---- tools/verl_reward.py

class VerlRewardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!tests::has_python()) GTEST_SKIP() << "no python3";
  }

  // A program of tools/, with a user's file.
  CommandReward program_of(const std::string& program, const std::string& source,
                           const std::string& arguments) {
    const std::string path = folder_ / "my_reward.py";
    std::ofstream(path) << source;
    return CommandReward(std::string("python3 ") + TLT_SOURCE_DIR + "/tools/" + program + " " +
                             path + " " + arguments,
                         kLong);
  }
  CommandReward reward_of(const std::string& source, const std::string& arguments = "") {
    return program_of("verl_reward.py", source, arguments);
  }

  const TestFolder folder_;
};

TEST_F(VerlRewardTest, FunctionIsCalledAsVerlDoes) {
  const CommandReward reward = reward_of(R"(
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    print("looking at", solution_str)
    if solution_str == "raise":
        raise ValueError("cannot say")
    right = solution_str == ground_truth
    return {"score": float(right), "acc": right, "index": extra_info.get("index", -1), "pred": solution_str,
            "source": float(data_source == "here")}
)");
  const nlohmann::ordered_json extra = {{"index", 7}};
  const RewardResult result = reward.score(
      {.data_source = "here", .response = "4\n2", .ground_truth = "4\n2", .extra_info = &extra});
  EXPECT_EQ(result.score, 1);
  EXPECT_EQ(result.extras,
            (std::map<std::string, double>{{"acc", 1}, {"index", 7}, {"source", 1}}));
  EXPECT_EQ(score(reward, "41", "42"), 0);
  EXPECT_EQ(complaint(reward, "raise"), "the reward's command says: ValueError: cannot say");
  EXPECT_EQ(score(reward, "42", "42"), 1);
}

TEST_F(VerlRewardTest, NameKwargsAndShortSignatures) {
  const CommandReward reward =
      reward_of("def mine(solution_str, ground_truth, bonus=0): return [bonus, 'x']\n",
                "--name mine --kwargs '{\"bonus\": 3}'");
  EXPECT_EQ(score(reward, "a"), 3);
}

TEST_F(VerlRewardTest, ModuleMayBeInAnyFolder) {
  std::ofstream(folder_ / "my_reward.py")
      << "def compute_score(data_source, solution_str, ground_truth, extra_info): return 0.25\n";
  const CommandReward reward("cd '" + std::string(folder_ / "") + "' && PYTHONPATH=" +
                                 TLT_SOURCE_DIR + "/tools python3 -m verl_reward my_reward.py",
                             kLong);
  EXPECT_EQ(score(reward, "a"), 0.25);
}

TEST_F(VerlRewardTest, FileWithAnErrorIsReported) {
  const std::string text = complaint(reward_of("import tlt_no_such_module\n"));
  EXPECT_NE(text.find("ended with status 1"), text.npos) << text;
  EXPECT_NE(text.find("tlt_no_such_module"), text.npos) << text;
}

// ---- tools/trl_reward.py

class TrlRewardTest : public VerlRewardTest {
 protected:
  CommandReward reward_of(const std::string& source, const std::string& arguments = "") {
    return program_of("trl_reward.py", source, arguments);
  }
};

TEST_F(TrlRewardTest, FunctionIsCalledAsTrlDoes) {
  const CommandReward reward = reward_of(R"(
def reward_func(prompts, completions, completion_ids, solution, **kwargs):
    assert prompts == ["why"] and kwargs == {"level": [3], "data_source": ["x"]}, (prompts, kwargs)
    return [float(len(ids) + (text == answer)) for ids, text, answer in zip(completion_ids, completions, solution)]
)");
  const nlohmann::ordered_json columns = {{"solution", "42"}, {"level", 3}};
  const std::vector<int32_t> ids = {5, 6};
  RewardInput input{.data_source = "x",
                    .response = "42",
                    .extra_info = &columns,
                    .prompt = "why",
                    .response_ids = ids};
  EXPECT_EQ(reward.score(input).score, 3);
  input.response = "41";
  EXPECT_EQ(reward.score(input).score, 2);
}

TEST_F(TrlRewardTest, ConversationsAreListsOfMessages) {
  const CommandReward reward = reward_of(R"(
def reward_func(completions, prompts, **kwargs):
    return [float(prompts[0][0]["content"] == "hi" and c == [{"role": "assistant", "content": "42"}]) for c in completions]
)");
  const nlohmann::ordered_json messages = {{{"role", "user"}, {"content", "hi"}}};
  EXPECT_EQ(reward.score({.response = "42", .messages = &messages}).score, 1);
}

constexpr const char* kTwoFunctions = R"(
import math
from json import dumps
def _helper(text): return float(len(text))
def long(completions, **kwargs): return [_helper(c) for c in completions]
async def right(completions, ground_truth=(None,), **kwargs):
    return [None if t is None else float(c == t) for c, t in zip(completions, ground_truth)]
)";

TEST_F(TrlRewardTest, SeveralFunctionsAreAddedUp) {
  const CommandReward reward = reward_of(kTwoFunctions, "long right --weights 0.5 2");
  const RewardResult both = reward.score({.response = "42", .ground_truth = "42"});
  EXPECT_EQ(both.score, 3);
  EXPECT_EQ(both.extras, (std::map<std::string, double>{{"long", 2}, {"right", 1}}));
  const RewardResult one = reward.score({.response = "42"});
  EXPECT_EQ(one.score, 1);
  EXPECT_EQ(one.extras, (std::map<std::string, double>{{"long", 2}}));
}

TEST_F(TrlRewardTest, ErrorsAreSentences) {
  const auto starts = [&](const std::string& source, const std::string& arguments) {
    return start_complaint(reward_of(source, arguments));
  };
  EXPECT_THAT(starts(kTwoFunctions, ""),
              HasSubstr("has 2 functions (long, right); name those that are rewards"));
  EXPECT_THAT(starts(kTwoFunctions, "short"),
              HasSubstr("has no function short; it has: long, right"));
  EXPECT_THAT(starts("import tlt_no_such_module\n", ""), HasSubstr("tlt_no_such_module"));
  EXPECT_THAT(
      start_complaint(CommandReward(
          std::string("python3 ") + TLT_SOURCE_DIR + "/tools/trl_reward.py none.py", kLong)),
      HasSubstr("none.py: no such file"));
  EXPECT_THAT(complaint(reward_of("def f(completions, **k): return 1.0\n")),
              HasSubstr("f returned 1.0; TRL's functions return a list of numbers"));
  EXPECT_THAT(complaint(reward_of("def f(completions, **k): return [1, 2]\n")),
              HasSubstr("f returned 2 scores for 1 completion"));
  EXPECT_THAT(complaint(reward_of("def f(completions, **k): return [None]\n")),
              HasSubstr("None from f"));
  EXPECT_THAT(complaint(reward_of("def f(completions, **k): return [float('nan')]\n")),
              HasSubstr("the score is nan"));
}

}  // namespace
}  // namespace tlt::reward
