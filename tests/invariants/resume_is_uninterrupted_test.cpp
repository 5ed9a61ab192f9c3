// Invariant: a run that is killed (kill -9) at any time and restarted ends like an uninterrupted
// one: weights, optimizer, cursor and rollouts are the same bytes.
//
// SPDX-License-Identifier: Apache-2.0
#include <random>

#include "tests/support/small_run.h"

namespace tlt {
namespace {

using tests::Program;
using tests::run_program;
using tests::Scratch;
using tests::small_run;

constexpr int kResumeSteps = 4;

class ResumeIsUninterrupted : public ::testing::TestWithParam<std::string> {
 protected:
  std::vector<std::string> run_in(const std::filesystem::path& folder) const {
    return small_run(folder, kResumeSteps, 1, {"model.dtype=" + GetParam(), "trainer.threads=1"});
  }
};

TEST_P(ResumeIsUninterrupted, KilledAtTwentyRandomPoints) {
  const Scratch scratch;
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(run_program(run_in(scratch / "whole"), scratch / "log"), 0)
      << tests::read_text(scratch / "log");
  const double whole =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  std::mt19937 random(20);  // times of the kills; the rest depends on the machine
  // Ten here, ten with the other type; on a slow device two.
  const int wanted = tests::device_of_runs().empty() ? 10 : 2;
  int kills = 0;
  for (int round = 0; kills < wanted; ++round) {
    const auto folder = scratch / ("killed" + std::to_string(round));
    for (int attempt = 0;; ++attempt) {
      Program program(run_in(folder), scratch / "log");
      int code = 0;
      const double seconds = std::uniform_real_distribution<double>(0.05, 1.1)(random) * whole;
      if (attempt < 3 && !program.wait_for(seconds, &code)) {
        program.kill_all();
        ++kills;
        continue;
      }
      if (attempt >= 3) code = program.wait();
      ASSERT_EQ(code, 0) << program.output();
      break;
    }
    tests::expect_same_run(folder, scratch / "whole", kResumeSteps);
    std::filesystem::remove_all(folder);
  }
}

TEST_P(ResumeIsUninterrupted, WithAnAdapter) {
  const Scratch scratch;
  const auto run = [&](const std::filesystem::path& folder) {
    auto arguments = run_in(folder);
    for (const std::string& option : tests::with_adapter()) arguments.push_back(option);
    return arguments;
  };
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(run_program(run(scratch / "whole"), scratch / "log"), 0)
      << tests::read_text(scratch / "log");
  const double whole =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (const double share : {0.5, 0.7, 0.9}) {
    const auto folder = scratch / ("killed" + std::to_string(share));
    {
      Program program(run(folder), scratch / "log");
      int code = 0;
      if (!program.wait_for(share * whole, &code)) program.kill_all();
    }
    ASSERT_EQ(run_program(run(folder), scratch / "log"), 0) << tests::read_text(scratch / "log");
    tests::expect_same_run(folder, scratch / "whole", kResumeSteps);
    const std::string file = tests::adapter_file(kResumeSteps);
    ASSERT_FALSE(tests::read_text(folder / file).empty());
    EXPECT_EQ(tests::read_text(folder / file), tests::read_text(scratch / "whole" / file));
  }
  auto other = run(scratch / "whole");
  other.push_back("model.lora_rank=4");
  EXPECT_EQ(run_program(other, scratch / "log"), 2);
  EXPECT_NE(tests::read_text(scratch / "log").find("model.lora_rank"), std::string::npos);
  // Another base is told by its fingerprint.
  const auto copy = scratch / "base";
  std::filesystem::copy(scratch / "whole" / "checkpoints/step_000001/policy", copy);
  other.back() = "model.path=" + copy.string();
  EXPECT_EQ(run_program(other, scratch / "log"), 2);
  EXPECT_NE(tests::read_text(scratch / "log").find("from another model than that of model.path"),
            std::string::npos)
      << tests::read_text(scratch / "log");
}

// The cursor is saved up to the last batch; the next one has new uniforms.
TEST_P(ResumeIsUninterrupted, WithDynamicSampling) {
  const Scratch scratch;
  const auto run = [&](const std::filesystem::path& folder) {
    auto arguments = run_in(folder);
    for (const std::string& option : tests::with_dynamic_sampling()) arguments.push_back(option);
    return arguments;
  };
  ASSERT_EQ(run_program(run(scratch / "whole"), scratch / "log"), 0)
      << tests::read_text(scratch / "log");
  EXPECT_GT(tests::sum_of_metric(scratch / "whole", "train/num_gen_batches"), kResumeSteps);
  auto half = run(scratch / "half");
  half.push_back("trainer.total_training_steps=2");
  ASSERT_EQ(run_program(half, scratch / "log"), 0) << tests::read_text(scratch / "log");
  half.back() = "trainer.total_training_steps=" + std::to_string(kResumeSteps);
  ASSERT_EQ(run_program(half, scratch / "log"), 0) << tests::read_text(scratch / "log");
  tests::expect_same_run(scratch / "half", scratch / "whole", kResumeSteps);
}

// Greedy sampling never keeps a group: the limit ends the run with an explanation.
TEST_P(ResumeIsUninterrupted, DynamicSamplingStopsAtItsLimit) {
  const Scratch scratch;
  auto run = run_in(scratch / "run");
  for (const std::string& option : tests::with_dynamic_sampling()) run.push_back(option);
  run.push_back("rollout.temperature=0");
  run.push_back("algorithm.filter_groups.max_num_gen_batches=2");
  EXPECT_EQ(run_program(run, scratch / "log"), 2);
  const std::string output = tests::read_text(scratch / "log");
  EXPECT_NE(output.find("step 1 has only 0 of 4 groups after 2 generation batches"),
            std::string::npos)
      << output;
}

// Negative control: a resumed run without its position is detected.
TEST_P(ResumeIsUninterrupted, DetectsAMissingCursor) {
  const Scratch scratch;
  ASSERT_EQ(run_program(run_in(scratch / "whole"), scratch / "log"), 0)
      << tests::read_text(scratch / "log");
  auto half = run_in(scratch / "half");
  half.push_back("trainer.total_training_steps=2");
  ASSERT_EQ(run_program(half, scratch / "log"), 0);
  half.back() = "trainer.total_training_steps=4";
  half.push_back("data.seed=99");  // other options: the error names them
  EXPECT_EQ(run_program(half, scratch / "log"), 2);
  EXPECT_NE(tests::read_text(scratch / "log").find("data.seed"), std::string::npos);
  half.pop_back();
  ASSERT_EQ(run_program(half, scratch / "log"), 0) << tests::read_text(scratch / "log");
  tests::expect_same_run(scratch / "half", scratch / "whole", kResumeSteps);
  // Without the cursor, step 3 uses the prompts of step 1.
  half.push_back("trainer.resume_mode=disable");
  ASSERT_EQ(run_program(half, scratch / "log"), 0);
  EXPECT_NE(tests::read_text(scratch / "half" / "rollouts/000001.jsonl"),
            tests::read_text(scratch / "whole" / "rollouts/000003.jsonl"));
}

TEST_P(ResumeIsUninterrupted, IncompleteCheckpointIsNotResumed) {
  const Scratch scratch;
  ASSERT_EQ(run_program(run_in(scratch / "run"), scratch / "log"), 0)
      << tests::read_text(scratch / "log");
  const auto optimizer = scratch / "run" / "checkpoints/step_000004/state/optimizer.safetensors";
  std::filesystem::resize_file(optimizer, std::filesystem::file_size(optimizer) - 1);
  const std::string before =
      tests::read_text(scratch / "run" / "checkpoints/step_000003/MANIFEST.json");
  ASSERT_EQ(run_program(run_in(scratch / "run"), scratch / "log"), 0)
      << tests::read_text(scratch / "log");
  const std::string output = tests::read_text(scratch / "log");
  EXPECT_NE(output.find("step_000004 is broken"), std::string::npos) << output;
  EXPECT_NE(output.find("step 4/4"), std::string::npos) << output;
}

INSTANTIATE_TEST_SUITE_P(Types, ResumeIsUninterrupted, ::testing::Values("float32", "bfloat16"));

}  // namespace
}  // namespace tlt
