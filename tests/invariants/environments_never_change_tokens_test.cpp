// Invariant: with a multi-turn environment the rollouts and weights of a run are the same with
// speculation on and off, with 1 to 3 workers, in any order of answers, with calls that share lines,
// and after kill -9 or an interrupt and a resume; and the trainer's logprobs are the rollout's over
// all turns. Also where the environment replaces the rows' prompts by messages or tokens.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/support/small_run.h"

namespace tlt {
namespace {

using tests::appears;
using tests::expect_same_run;
using tests::Program;
using tests::read_text;
using tests::run_program;
using tests::Scratch;

constexpr int kEpisodeSteps = 2;
constexpr double kLongSeconds = 300;

constexpr int kEpisodes = 16;  // of a step

// Asks the row's question again after each of the first two turns. The reward depends on what the
// model wrote. Some episodes have messages or tokens in place of the row's prompt. With an argument
// the answers come late and out of order, and calls may share a line. As long as there is a file
// `hold`, half of the episodes of the second step get no answer to their second turn: a file `held`
// says so. Episodes are counted over all workers in the size of the file `begun`, without that of
// the check of the first row, whose seed is 0.
constexpr const char* kAgain = R"(
import hashlib, json, os, select, sys
folder = os.path.dirname(os.path.abspath(sys.argv[0])) + '/'
late, turns, waiting = len(sys.argv) > 1, {}, []
def holds(call):
    if not os.path.exists(folder + 'hold'): return False
    if call['call'] == 'reset':
        if call['seed']: open(folder + 'begun', 'ab').write(b'x')
        return False
    if os.path.getsize(folder + 'begun') <= 16 or call['turn'] < 2 or call['episode'] % 2: return False
    open(folder + 'held', 'w')
    return True
def answer(call):
    if holds(call): return
    episode, out = call['episode'], {'id': call['id']}
    if call['call'] == 'reset':
        turns[episode] = 0
        if call['seed'] % 2: out['messages'] = [{'role': 'user', 'content': '1,2:3'}]
        if call['seed'] % 3 == 0: out['prompt'] = [{'role': 'user', 'content': '5,6:%d1' % (call['seed'] % 4)}]
        elif call['seed'] % 4 == 0: out['prompt_token_ids'] = list(range(5, 11 + call['seed'] % 16))
        if late: out['max_batch'] = 8
    else:
        turns[episode] += 1
        digest = hashlib.sha256(call['message']['content'].encode()).digest()
        out.update(reward=digest[0] % 4 / 4, done=turns[episode] == 3, extra={'digest': digest[1]},
                   messages=[{'role': 'user', 'content': '3,4,5:%d' % (10 + digest[2] % 40)}])
    print(json.dumps(out), flush=True)
rest = b''
while True:
    ready = select.select([0], [], [], 0.02 if waiting else None)[0]
    if ready:
        data = os.read(0, 65536)
        if not data: break
        *lines, rest = (rest + data).split(b'\n')
        for line in lines:
            calls = json.loads(line)
            if isinstance(calls, list): open(folder + 'lists', 'w')
            for call in calls if isinstance(calls, list) else [calls]:
                if call['call'] == 'close': turns.pop(call['episode'], None)
                elif late: waiting.append(call)
                else: answer(call)
    if waiting and (len(waiting) > 2 or not ready): answer(waiting.pop())
)";

class EnvironmentsNeverChangeTokens : public ::testing::Test {
 protected:
  std::vector<std::string> words(const std::string& name, int workers,
                                 const std::vector<std::string>& more = {}) const {
    std::vector<std::string> options = {
        "data.chat_template=recipes/tool_demo.jinja",
        "environment.command=[\"python3\",\"" + (scratch_ / "again.py").string() + "\"]",
        "reward.functions=[\"auto\"]",
        "data.max_response_length=120",
        "rollout.temperature=1.2",
        "rollout.stop=[\"</think>\"]",
        "environment.timeout_seconds=600",
        "trainer.threads=1"};
    options.insert(options.end(), more.begin(), more.end());
    return tests::small_run(scratch_ / name, kEpisodeSteps, workers, options);
  }
  void run(const std::string& name, int workers, const std::vector<std::string>& more = {}) const {
    ASSERT_EQ(run_program(words(name, workers, more), scratch_ / "log"), 0)
        << read_text(scratch_ / "log");
  }
  void SetUp() override {
    std::ofstream(scratch_ / "again.py") << kAgain;
  }
  std::string late_command() const {
    return "environment.command=[\"python3\",\"" + (scratch_ / "again.py").string() +
           "\",\"late\"]";
  }

  const Scratch scratch_;
};

TEST_F(EnvironmentsNeverChangeTokens, WithSpeculationWorkersAndOrder) {
  run("whole", 1);
  for (const char* name : {"environment/failed", "training/rollout_probs_diff_max",
                           "training/rollout_logprobs_diff_max"})
    EXPECT_NE(
        read_text(scratch_ / "whole" / "metrics.jsonl").find("\"" + std::string(name) + "\":"),
        std::string::npos)
        << name;
  EXPECT_GT(tests::sum_of_metric(scratch_ / "whole", "environment/turns"), 1.5 * kEpisodeSteps);
  EXPECT_EQ(tests::sum_of_metric(scratch_ / "whole", "environment/failed"), 0);
  EXPECT_EQ(tests::sum_of_metric(scratch_ / "whole", "training/rollout_probs_diff_max"), 0);
  EXPECT_EQ(tests::sum_of_metric(scratch_ / "whole", "training/rollout_logprobs_diff_max"), 0);
  EXPECT_GT(tests::sum_of_metric(scratch_ / "whole", "actor/grad_norm"), 0);
  EXPECT_GT(tests::sum_of_metric(scratch_ / "whole", "rollout/cached_tokens"),
            kEpisodes * kEpisodeSteps * 16)
      << "a page and more of each episode";
  run("plain", 1, {"speculative.enable=false", "environment.processes=3"});
  tests::expect_same_files(scratch_ / "plain", scratch_ / "whole",
                           tests::checkpoint_files(kEpisodeSteps));
  run("two", 2, {"rollout.kv_memory_bytes=100000"});
  EXPECT_LT(tests::sum_of_metric(scratch_ / "two", "rollout/cached_tokens"),
            tests::sum_of_metric(scratch_ / "whole", "rollout/cached_tokens"));
  tests::expect_same_files(scratch_ / "two", scratch_ / "whole", tests::state_files(kEpisodeSteps));
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "lists")) << "not announced";
  run("late", 3, {late_command()});
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "lists"));
  std::vector<std::string> weights = tests::state_files(kEpisodeSteps);
  tests::expect_same_files(scratch_ / "late", scratch_ / "whole", weights);
}

// The row's own prompt is seen by no model then.
TEST_F(EnvironmentsNeverChangeTokens, PromptOfTheEnvironmentIsAsOneOfTheRow) {
  std::ofstream(scratch_ / "given.py") << R"(
import json, sys
for line in sys.stdin:
    call = json.loads(line)
    if call['call'] == 'close': continue
    out = {'id': call['id']}
    if call['call'] == 'reset':
        if 'given' in call['row']['extra_info']: out['prompt'] = call['row']['extra_info']['given']
    else:
        out.update(reward=len(call['message']['content']) % 3, done=call['turn'] == 2,
                   messages=[{'role': 'user', 'content': '3,4:7'}])
    print(json.dumps(out), flush=True)
)";
  for (const bool is_given : {false, true}) {
    const std::string name = is_given ? "given" : "rows";
    std::ofstream rows(scratch_ / (name + ".jsonl"));
    for (int i = 0; i < 4; ++i) {
      const nlohmann::json real = {
          {{"role", "user"}, {"content", std::to_string(i) + ",2,3:" + std::to_string(10 + i)}}};
      nlohmann::json row = {{"prompt", real}, {"ground_truth", "1,2:3"}};
      if (is_given)
        row = {{"prompt", {{{"role", "user"}, {"content", "8,8:16"}}}},
               {"ground_truth", "1,2:3"},
               {"extra_info", {{"given", real}}}};
      rows << row.dump() << "\n";
    }
    rows.close();
    run(name, 1,
        {"data.train_files=[\"" + (scratch_ / (name + ".jsonl")).string() + "\"]",
         "environment.command=[\"python3\",\"" + (scratch_ / "given.py").string() + "\"]",
         "trainer.total_training_steps=1"});
    EXPECT_EQ(tests::sum_of_metric(scratch_ / name, "environment/failed"), 0);
    EXPECT_GT(tests::sum_of_metric(scratch_ / name, "actor/grad_norm"), 0);
  }
  tests::expect_same_files(scratch_ / "given", scratch_ / "rows",
                           {tests::checkpoint_folder(1) + "policy/model.safetensors",
                            tests::checkpoint_folder(1) + "state/optimizer.safetensors"});
}

// The environment holds the second step, so that the run cannot end before the signal.
TEST_F(EnvironmentsNeverChangeTokens, AfterKillAndInterrupt) {
  run("whole", 1);
  for (const int signal : {SIGKILL, SIGTERM}) {
    const std::string name = signal == SIGKILL ? "killed" : "interrupted";
    for (const char* file : {"begun", "held"}) std::filesystem::remove(scratch_ / file);
    std::ofstream(scratch_ / "hold");
    {
      Program program(words(name, signal == SIGKILL ? 1 : 2), scratch_ / "log");
      ASSERT_TRUE(appears(scratch_ / "held", kLongSeconds)) << program.output();
      ASSERT_TRUE(appears(scratch_ / name / tests::checkpoint_folder(1), kLongSeconds))
          << program.output();
      program.send(signal);
      const int code = program.wait();
      EXPECT_EQ(code, 128 + signal) << program.output();
    }
    EXPECT_FALSE(std::filesystem::exists(scratch_ / name / tests::checkpoint_folder(2)));
    std::filesystem::remove(scratch_ / "hold");
    run(name, 1);
    tests::expect_same_files(scratch_ / name, scratch_ / "whole",
                             tests::state_files(kEpisodeSteps));
  }
}

}  // namespace
}  // namespace tlt
