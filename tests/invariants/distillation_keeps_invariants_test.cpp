// Invariant: with a teacher, workers, speculation, early gradients and a resume change no bit of
// rollouts, weights and optimizer; nor does it matter whether the teacher is a folder or `tlt serve`.
//
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/http_stub.h"
#include "tests/support/running_server.h"
#include "tests/support/small_run.h"

namespace tlt {
namespace {

using tests::read_text;
using tests::run_program;
using tests::Scratch;
using tests::small_run;

class DistillationKeepsInvariants : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr int kSteps = 2;

  // Its own first steps, with a large learning rate, make the teacher.
  void SetUp() override {
    run("teacher", 1, {"actor.optim.lr=3e-3", "distillation.teacher="});
    ASSERT_FALSE(HasFailure());
  }
  void run(const std::string& name, int workers, const std::vector<std::string>& more) const {
    std::vector<std::string> all = {"actor.use_kl_loss=false", "trainer.threads=1",
                                    "model.dtype=float32", "distillation.loss_mode=" + GetParam(),
                                    "distillation.teacher=" + (scratch_ / "teacher").string() +
                                        "/" + tests::checkpoint_folder(kSteps) + "policy"};
    all.insert(all.end(), more.begin(), more.end());
    tests::expect_small_run(scratch_, name, kSteps, workers, all);
  }
  void expect_same(const std::string& name, const std::string& as) const {
    tests::expect_same_run(scratch_ / name, scratch_ / as, kSteps);
  }

  const Scratch scratch_;
};

TEST_P(DistillationKeepsInvariants, ForWorkersSpeculationAndEarlyGradients) {
  run("one", 1, {});
  run("late", 1, {"actor.early_gradients=false", "speculative.enable=false"});
  run("three", 3, {});
  for (const char* name : {"late", "three"}) expect_same(name, "one");
  std::ifstream file(scratch_ / "one" / "metrics.jsonl");
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  EXPECT_TRUE(nlohmann::json::parse(line).contains("distillation/kl")) << line;

  run("without", 1, {"distillation.teacher="});
  EXPECT_NE(read_text(scratch_ / "without" / tests::state_files(1)[0]),
            read_text(scratch_ / "one" / tests::state_files(1)[0]))
      << "the teacher changes nothing";
}

TEST_P(DistillationKeepsInvariants, ForAResume) {
  run("one", 1, {"distillation.use_task_rewards=false"});
  run("again", 1, {"distillation.use_task_rewards=false"});
  // As after a kill between the checkpoints.
  std::filesystem::remove_all(scratch_ / "again" / tests::checkpoint_folder(2));
  run("again", 2, {"distillation.use_task_rewards=false"});
  expect_same("again", "one");
}

INSTANTIATE_TEST_SUITE_P(Losses, DistillationKeepsInvariants,
                         ::testing::Values("k1", "reverse_kl"));

// ---- other losses and teachers: the demo's model teaches one that a large learning rate has changed

class DistillationByTheDemo : public ::testing::Test {
 protected:
  static constexpr int kSteps = 2;

  void SetUp() override {
    ASSERT_EQ(run("student", 1, {"model.path=models/demo", "actor.optim.lr=3e-3"}), 0) << log();
  }
  std::vector<std::string> words(std::vector<std::string> more) const {
    std::vector<std::string> all = {"trainer.threads=1", "model.dtype=bfloat16",
                                    "model.path=" + (scratch_ / "student").string() + "/" +
                                        tests::checkpoint_folder(kSteps) + "policy"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  int run(const std::string& name, int workers, const std::vector<std::string>& more) const {
    std::vector<std::string> all = words(more);
    all.push_back("actor.use_kl_loss=false");
    return run_program(small_run(scratch_ / name, kSteps, workers, all), scratch_ / "log");
  }
  int run_sft(const std::string& name, int steps, int workers) const {
    return run_program(
        tests::small_sft(scratch_ / name, steps, workers,
                         words({"distillation.teacher=models/demo",
                                "distillation.loss_mode=forward_kl", "actor.optim.lr=3e-4"})),
        scratch_ / "log");
  }
  std::string log() const { return read_text(scratch_ / "log"); }
  void expect_same(const std::string& name, const std::string& as) const {
    tests::expect_same_run(scratch_ / name, scratch_ / as, kSteps);
  }

  const Scratch scratch_;
};

TEST_F(DistillationByTheDemo, OverItsTopTokensForAnyWorkers) {
  const std::vector<std::string> more = {
      "distillation.teacher=models/demo", "distillation.loss_mode=forward_kl",
      "distillation.top_k=4", "distillation.use_task_rewards=false"};
  ASSERT_EQ(run("one", 1, more), 0) << log();
  ASSERT_EQ(run("two", 2, more), 0) << log();
  expect_same("two", "one");
}

TEST_F(DistillationByTheDemo, OfGivenResponses) {
  constexpr int kSftSteps = 4;
  ASSERT_EQ(run_sft("one", kSftSteps, 1), 0) << log();
  ASSERT_EQ(run_sft("three", kSftSteps, 3), 0) << log();
  tests::expect_same_sft(scratch_ / "three", scratch_ / "one", kSftSteps);
  // As after a kill between the checkpoints.
  ASSERT_EQ(run_sft("again", kSftSteps, 1), 0) << log();
  for (const int step : {3, 4})
    std::filesystem::remove_all(scratch_ / "again" / tests::checkpoint_folder(step));
  ASSERT_EQ(run_sft("again", kSftSteps, 2), 0) << log();
  tests::expect_same_sft(scratch_ / "again", scratch_ / "one", kSftSteps);

  std::vector<double> kl;
  std::istringstream lines(read_text(scratch_ / "one" / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);)
    if (const auto row = nlohmann::json::parse(line); row.contains("distillation/kl"))
      kl.push_back(row["distillation/kl"]);
  ASSERT_EQ(kl.size(), size_t{kSftSteps});
  EXPECT_LT(kl.back(), 0.7 * kl.front());
}

// The run ends when the teacher's server answers nonsense in the second step, keeps the responses of
// that step, and ends as if nothing had happened.
TEST_F(DistillationByTheDemo, ByAServerThatFailsForAWhile) {
  const tests::RunningServer server;
  constexpr int64_t kAnswersOfFirstStep = 1 + 4 * 4;  // the probe, and each response
  std::atomic<int64_t> answers = 0;
  std::atomic<bool> is_broken = false;
  tests::HttpStub stub([&](const httplib::Request& request, httplib::Response& response) {
    const bool is_post = request.method == "POST";
    if (is_post && is_broken && answers >= kAnswersOfFirstStep) {
      response.set_content("{}", "application/json");
      return;
    }
    const auto answer = request.method == "GET" ? server.client().Get(request.path)
                                                : server.send(request.path, request.body);
    response.status = answer ? answer->status : 502;
    if (is_post && response.status == 200) ++answers;  // one that is asked for again counts once
    if (answer) response.set_content(answer->body, "application/json");
  });
  const std::vector<std::string> by_folder = {"distillation.loss_mode=k3",
                                              "distillation.teacher=models/demo"},
                                 by_server = {"distillation.loss_mode=k3",
                                              "distillation.teacher=" + stub.url("/v1")};
  ASSERT_EQ(run("folder", 1, by_folder), 0) << log();
  ASSERT_EQ(run("two", 2, by_server), 0) << log();
  expect_same("two", "folder");

  is_broken = true;
  answers = 0;
  EXPECT_EQ(run("fails", 1, by_server), 1);
  EXPECT_NE(log().find("step 2 has no logprobs of the teacher: the teacher's server answered `{}`, "
                       "which has no prompt_logprobs; the same command continues with the step's "
                       "responses"),
            std::string::npos)
      << log();
  is_broken = false;
  ASSERT_EQ(run("fails", 1, by_server), 0) << log();
  EXPECT_NE(log().find("step 2: 16 of 16 responses are from before the interruption"),
            std::string::npos)
      << log();
  expect_same("fails", "folder");
}

// A reward that fails always: nothing is trained on it.
TEST_F(DistillationByTheDemo, NeedsNoScores) {
  std::vector<std::string> more = {"distillation.teacher=models/demo",
                                   "distillation.use_task_rewards=false"};
  ASSERT_EQ(run("with", 1, more), 0) << log();
  more.insert(more.end(), {"reward.functions=[\"command\"]", "reward.command=read line; exit 1"});
  ASSERT_EQ(run("without", 1, more), 0) << log();
  EXPECT_NE(log().find("have no score and count as 0"), std::string::npos) << log();
  for (int step = 1; step <= kSteps; ++step)
    tests::expect_same_files(scratch_ / "without", scratch_ / "with",
                             {tests::checkpoint_folder(step) + "policy/model.safetensors"});
}

TEST_F(DistillationByTheDemo, WhatIsNotPossibleIsRefused) {
  const std::pair<std::vector<std::string>, const char*> kCases[] = {
      {{"distillation.teacher=http://127.0.0.1:9/v1", "rollout.temperature=0.7"},
       "whose logprobs are of temperature 1, and rollout.temperature is 0.7"},
      {{"distillation.teacher=http://127.0.0.1:9/v1", "distillation.loss_mode=reverse_kl"},
       "needs the teacher's whole distribution, and a server"},
      {{"distillation.teacher=http://127.0.0.1:9/v1"}, "start the server there"},
  };
  for (const auto& [more, sentence] : kCases) {
    EXPECT_EQ(run("refused", 1, more), 2) << sentence;
    EXPECT_NE(log().find(sentence), std::string::npos) << log();
  }
  const auto sft = [&](const std::vector<std::string>& more) {
    return run_program(tests::small_sft(scratch_ / "refused", 1, 1, words(more)), scratch_ / "log");
  };
  EXPECT_EQ(sft({"distillation.teacher=models/demo"}), 2);
  EXPECT_NE(log().find("set distillation.loss_mode=forward_kl"), std::string::npos) << log();
  EXPECT_EQ(sft({"distillation.teacher=models/demo", "distillation.loss_mode=forward_kl",
                 "distillation.use_task_rewards=false"}),
            2);
  EXPECT_NE(log().find("`tlt sft` has no rewards"), std::string::npos) << log();
}

TEST(DistillationTeacher, OfOtherTokensIsRefused) {
  const Scratch scratch;
  EXPECT_EQ(run_program(small_run(scratch / "run", 1, 1,
                                  {"actor.use_kl_loss=false",
                                   "distillation.teacher=tests/golden/models/qwen2_tied"}),
                        scratch / "log"),
            2);
  EXPECT_NE(read_text(scratch / "log").find("qwen2_tied"), std::string::npos)
      << read_text(scratch / "log");
  EXPECT_EQ(run_program(small_run(scratch / "run", 1, 1, {"distillation.teacher=models/demo"}),
                        scratch / "log"),
            2);
  EXPECT_NE(read_text(scratch / "log")
                .find("takes the place of the reference policy; set "
                      "actor.use_kl_loss=false"),
            std::string::npos)
      << read_text(scratch / "log");
}

}  // namespace
}  // namespace tlt
