// Invariant: with a multi-turn environment the rollouts and weights of a run are the same with
// speculation on and off, with 1 and 2 workers, in any order of answers, and after kill -9 or an
// interrupt and a resume; and the trainer's logprobs are the rollout's over all turns.
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
// model wrote. With an argument the answers come late and out of order. As long as there is a file
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
            call = json.loads(line)
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
    run("whole", 1);
  }
  std::string late_command() const {
    return "environment.command=[\"python3\",\"" + (scratch_ / "again.py").string() +
           "\",\"late\"]";
  }

  const Scratch scratch_;
};

TEST_F(EnvironmentsNeverChangeTokens, WithSpeculationWorkersAndOrder) {
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
  run("two", 2, {"rollout.kv_memory_bytes=600000"});
  EXPECT_LT(tests::sum_of_metric(scratch_ / "two", "rollout/cached_tokens"),
            tests::sum_of_metric(scratch_ / "whole", "rollout/cached_tokens"));
  tests::expect_same_files(scratch_ / "two", scratch_ / "whole", tests::state_files(kEpisodeSteps));
  run("late", 1, {late_command()});
  std::vector<std::string> weights = tests::state_files(kEpisodeSteps);
  tests::expect_same_files(scratch_ / "late", scratch_ / "whole", weights);
}

// The environment holds the second step, so that the run cannot end before the signal.
TEST_F(EnvironmentsNeverChangeTokens, AfterKillAndInterrupt) {
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
