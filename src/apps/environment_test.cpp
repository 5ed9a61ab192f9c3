// `tlt environment`, and runs whose environment misbehaves.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <map>
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

// The first row's own check is episode 1.
TEST(EnvironmentRunTest, PromptsOfTheEnvironmentAreLimited) {
  const std::string script = scratch_file("prompts.py", R"(
import json, sys
for line in sys.stdin:
    call = json.loads(line)
    if call['call'] == 'close': continue
    answer = {'id': call['id']}
    if call['call'] == 'reset':
        user = [{'role': 'user', 'content': '1,2:3'}]
        answer.update({2: {'prompt_token_ids': [10**6]}, 3: {'prompt_token_ids': 65 * [7]},
                       4: {'prompt': [{'role': 'user', 'content': 65 * '7,'}]},
                       5: {'prompt': user, 'messages': [{'role': 'user', 'content': 60 * '7,'}]},
                       6: {'prompt': [7]}, 7: {'prompt': user},
                       8: {'prompt_token_ids': [7, 8, 9], 'prompt': user}}.get(call['episode'], {}))
    else:
        answer.update(reward=call['episode'] % 2, done=True)
        if call['episode'] == 9: answer.update(done=False, prompt=[{'role': 'user', 'content': '1'}])
    print(json.dumps(answer), flush=True)
)");
  const Ended ended =
      run_program(run_with("[\"python3\",\"" + script + "\"]", {"data.max_prompt_length=64"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  std::string faults, inputs;
  for (const json& row : json_file(scratch_folder() + "/run/rollouts/000001.jsonl")) {
    faults += row.value("reward_fault", "") + "\n";
    inputs += row["input"].get<std::string>() + "\n";
  }
  EXPECT_THAT(faults, AllOf(HasSubstr("has token 1000000; the model's vocabulary ends at"),
                            HasSubstr("has 65 tokens and data.max_prompt_length is 64"),
                            HasSubstr("first messages have"), HasSubstr("the environment's prompt"),
                            HasSubstr("answer to step")));
  EXPECT_THAT(inputs, HasSubstr("1,2:3\n"));
  const json metrics = json_file(scratch_folder() + "/run/metrics.jsonl").back();
  EXPECT_EQ(metrics["environment/failed"], 6);
}

// Rewards of turns add up to an episode's score, whatever ends it, and the group's scores give the
// advantages. Episodes have no end, end at the second turn with a reward for it, or get an
// observation that is too long.
TEST(EnvironmentRunTest, LimitsEndEpisodesWithTheRewardsSoFar) {
  const std::string script = scratch_file("limits.py", R"(
import json, sys
for line in sys.stdin:
    call = json.loads(line)
    if call['call'] == 'close': continue
    answer, kind = {'id': call['id']}, call['episode'] % 3
    if call['call'] == 'step':
        answer.update(reward=0.25, extra={'kind': kind}, messages=[{'role': 'user', 'content': '7'}])
        if kind == 1: answer['messages'][0]['content'] = 60 * '7,'
        if kind == 2 and call['turn'] == 2: answer.update(done=True, reward=0.5)
    print(json.dumps(answer), flush=True)
)");
  const Ended ended = run_program(
      run_with("[\"python3\",\"" + script + "\"]",
               {"environment.max_turns=3", "rollout.stop=[\"=\",\"+\",\"-\",\"*\",\"\\n\"]"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  std::map<int, std::vector<json>> groups;
  std::map<std::string, int> seen;
  for (const json& row : json_file(scratch_folder() + "/run/rollouts/000001.jsonl")) {
    groups[row["prompt_id"]].push_back(row);
    if (!row.contains("kind")) continue;  // cut off in its first turn, which was not sent
    const int kind = row["kind"], turns = row["turns"];
    ++seen[std::to_string(kind) + " " + std::to_string(turns) + " " +
           row["finish_reason"].get<std::string>() + " " + row["score"].dump()];
    EXPECT_FALSE(row.contains("reward_fault")) << row["reward_fault"];
  }
  EXPECT_GT(seen["0 3 length 0.75"], 0) << json(seen);
  EXPECT_GT(seen["1 1 length 0.25"], 0) << json(seen);
  EXPECT_GT(seen["2 2 stop 0.75"], 0) << json(seen);
  for (const auto& [prompt, rows] : groups) {
    double mean = 0, sum = 0;
    for (const json& row : rows)
      mean += row["score"].get<double>() / static_cast<double>(rows.size());
    for (const json& row : rows) {
      sum += row["advantage"].get<double>();
      EXPECT_EQ(row["advantage"] > 0.001, row["score"] > mean + 0.001) << row["score"];
    }
    EXPECT_NEAR(sum, 0, 1e-3);
  }
  EXPECT_EQ(json_file(scratch_folder() + "/run/metrics.jsonl").back()["environment/failed"], 0);
}

// The last episode's answer waits until the run has computed something in the meantime, at most
// for 20 seconds, in which polls alone take less time than that. The other episodes end at once.
constexpr const char* kSlow = R"(
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
        before, end = cpu_ticks(), time.time() + 20
        while cpu_ticks() < before + 25 and time.time() < end: time.sleep(0.01)
        last['extra'] = {'worked': int(cpu_ticks() >= before + 25)}
        print(json.dumps(last), flush=True)
)";

TEST(EnvironmentRunTest, ComputesGradientsWhileTheEnvironmentWorks) {
  const std::string script = scratch_file("slow.py", kSlow);
  const Ended ended = run_program(run_with("[\"python3\",\"" + script + "\"]"));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const json metrics = json_file(scratch_folder() + "/run/metrics.jsonl").back();
  EXPECT_GT(metrics["rollout/early_gradient_seconds"], 0);
  EXPECT_EQ(metrics["environment/failed"], 0)
      << "15 others are done before the first one is answered";
}

// Then there are no gradients to compute: no other worker is needed, nor idle.
TEST(EnvironmentRunTest, TrainsTheDraftModelWhileTheEnvironmentWorks) {
  const std::string script = scratch_file("slow.py", kSlow);
  const Ended ended =
      run_program(run_with("[\"python3\",\"" + script + "\"]", {"actor.early_gradients=false"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const json metrics = json_file(scratch_folder() + "/run/metrics.jsonl").back();
  EXPECT_GT(metrics["drafter/used_seconds"], 0);
  double worked = 0;
  for (const json& row : json_file(scratch_folder() + "/run/rollouts/000001.jsonl"))
    worked += row.value("worked", 0.0);
  EXPECT_EQ(worked, 1) << "the last answer came after 20 seconds of waiting";
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
  EXPECT_THAT(refusal(run_with(game, {"speculative.train.consolidate_below=8"})),
              AllOf(HasSubstr("consolidate_below is 8"), HasSubstr("do not migrate")));
  EXPECT_THAT(refusal(run_with(game, {"environment.tool_calls=xml"})),
              HasSubstr("use auto, hermes, llama3_json or json"));
}

}  // namespace
}  // namespace tlt::apps
