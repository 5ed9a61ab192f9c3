// Invariant: with a teacher, workers, speculation, early gradients and a resume change no bit of
// rollouts, weights and optimizer.
//
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <nlohmann/json.hpp>

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
    ASSERT_EQ(run("teacher", 1, {"actor.optim.lr=3e-3", "distillation.teacher="}), 0);
  }
  int run(const std::string& name, int workers, const std::vector<std::string>& more) const {
    std::vector<std::string> all = {"actor.use_kl_loss=false", "trainer.threads=1",
                                    "model.dtype=float32", "distillation.loss_mode=" + GetParam(),
                                    "distillation.teacher=" + (scratch_ / "teacher").string() +
                                        "/" + tests::checkpoint_folder(kSteps) + "policy"};
    all.insert(all.end(), more.begin(), more.end());
    const int code =
        run_program(small_run(scratch_ / name, kSteps, workers, all), scratch_ / "log");
    EXPECT_EQ(code, 0) << name << ": " << read_text(scratch_ / "log");
    return code;
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
