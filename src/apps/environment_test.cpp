// `tlt environment`, and runs whose environment misbehaves.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/support/run_program.h"
#include "tests/support/small_run.h"

namespace tlt::apps {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(EnvironmentCommandTest, CountdownAnswersCalls) {
  const json row = {{"ground_truth", "7,6,3:60"}, {"messages", json::array()}};
  const json reset = {{"id", 1}, {"call", "reset"}, {"episode", 1}, {"seed", 1}, {"row", row}};
  const json step = {{"id", 2},
                     {"call", "step"},
                     {"episode", 1},
                     {"message", {{"content", "<answer>(7+3)*6</answer>"}}},
                     {"tool_calls", json::array()}};
  const Ended ended =
      run_program({"environment", "countdown"}, reset.dump() + "\n" + step.dump() + "\n");
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const std::vector<json> answers = json_lines(ended.out);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[1]["reward"], 1.0);
  EXPECT_EQ(answers[1]["done"], true);
  const Ended wrong = run_program({"environment", "chess"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("give countdown or python"));
}

std::vector<std::string> run_with(const std::string& command,
                                  const std::vector<std::string>& more = {}) {
  std::vector<std::string> options = {
      "environment.command=" + command, "data.chat_template=recipes/tool_demo.jinja",
      "reward.functions=[\"auto\"]",    "trainer.threads=1",
      "environment.max_turns=2",        "data.max_response_length=48",
      "rollout.stop=[\"\\n\"]"};
  options.insert(options.end(), more.begin(), more.end());
  return tests::small_run(scratch_folder() + "/run", /*steps=*/1, /*workers=*/1, options);
}

// Each fault of an environment costs its episodes only; the run ends as others do.
TEST(EnvironmentRunTest, FaultsOfTheEnvironmentCostTheirEpisodesOnly) {
  const std::string script = scratch_file("bad.py", R"(
import json, sys, time
steps = 0
for line in sys.stdin:
    call = json.loads(line)
    if call['call'] == 'close': continue
    answer = {'id': call['id']}
    if call['call'] == 'step':
        steps += 1
        answer.update(reward=call['episode'] % 2, done=True)
        if steps == 1: answer['reward'] = 'much'
        if steps == 2: answer.update(done=False, messages=[])
        if steps == 3: answer.update(done=False, messages=[{'role': 'user', 'content': '7' * 60}])
        if steps == 6:
            if call['episode'] < 12: sys.exit(3)
            print('a stray line')
    print(json.dumps(answer), flush=True)
)");
  const Ended ended = run_program(run_with("[\"python3\",\"" + script + "\"]"));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const json metrics = json_file(scratch_folder() + "/run/metrics.jsonl").back();
  EXPECT_GT(metrics["environment/failed"], 2);
  EXPECT_LT(metrics["environment/failed"], 16);
  EXPECT_EQ(metrics["reward/unscored"], metrics["environment/failed"]);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("have no score"), HasSubstr("environment")));
  int turns = 0, with_mask = 0;
  for (const json& row : json_file(scratch_folder() + "/run/rollouts/000001.jsonl")) {
    std::string text;
    for (const json& turn : row["turns_of_episode"]) {
      turns += turn["role"] == "assistant" ? 1 : 0;
      text += turn["text"].get<std::string>();
    }
    EXPECT_EQ(text, row["output"]);
    if (!row.contains("token_mask")) continue;
    ++with_mask;
    EXPECT_EQ(row["token_mask"].size(), row["token_texts"].size());
    EXPECT_EQ(row["token_mask"].front(), 0) << "the beginning of the turn";
    EXPECT_EQ(row["token_mask"].back(), 1);
  }
  EXPECT_GE(turns, 16);
  EXPECT_GT(with_mask, 0);
  const Ended report = run_program(
      {"report", scratch_folder() + "/run", "--output", scratch_folder() + "/report.html"});
  EXPECT_EQ(report.exit_code, 0) << report.err;
}

// The last episode's answer waits until the run has computed something in the meantime, at most
// for five seconds. The other episodes end at once.
TEST(EnvironmentRunTest, ComputesGradientsWhileTheEnvironmentWorks) {
  const std::string script = scratch_file("slow.py", R"(
import json, os, sys, time
def cpu_ticks():
    fields = open('/proc/%d/stat' % os.getppid()).read().rsplit(')', 1)[1].split()
    return int(fields[11]) + int(fields[12])
done, last = 0, None
for line in sys.stdin:
    call = json.loads(line)
    if call['call'] == 'close': continue
    answer = {'id': call['id']}
    if call['call'] == 'step':
        answer.update(reward=call['episode'] % 2, done=True)
        if last is None:
            last = answer
            continue
        done += 1
    print(json.dumps(answer), flush=True)
    if done == 15:
        time.sleep(0.2)
        before, end = cpu_ticks(), time.time() + 5
        while cpu_ticks() < before + 5 and time.time() < end: time.sleep(0.01)
        print(json.dumps(last), flush=True)
)");
  const Ended ended = run_program(run_with("[\"python3\",\"" + script + "\"]"));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const json metrics = json_file(scratch_folder() + "/run/metrics.jsonl").back();
  EXPECT_GT(metrics["rollout/early_gradient_seconds"], 0);
}

TEST(EnvironmentRunTest, RefusesWhatCannotWork) {
  const auto refusal = [](const std::vector<std::string>& words) {
    const Ended ended = run_program(words);
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    return ended.err;
  };
  EXPECT_THAT(refusal(run_with("[\"/no/such/program\"]")),
              AllOf(HasSubstr("/no/such/program"), HasSubstr("first row")));
  const std::string game = "[\"tlt\",\"environment\",\"countdown\"]";
  const std::string unstable =
      scratch_file("unstable.jinja",
                   "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}");
  EXPECT_THAT(refusal(run_with(game, {"data.chat_template=" + unstable})),
              AllOf(HasSubstr("unstable.jinja"), HasSubstr("once more messages follow")));
  EXPECT_THAT(refusal(run_with(game, {"data.chat_template=auto"})), HasSubstr("chat template"));
  EXPECT_THAT(refusal(run_with(game, {"environment.max_turns=0"})),
              HasSubstr("environment.max_turns is 0"));
  EXPECT_THAT(refusal(run_with(game, {"environment.tool_calls=xml"})),
              HasSubstr("use auto, hermes, llama3_json or json"));
}

}  // namespace
}  // namespace tlt::apps
