// Optimizer steps whose gradient is not finite, in whole runs: they are skipped, the same ones on
// any number of workers and after a resume, up to a limit; and a run that ends there continues with
// other options.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "base/checksum.h"
#include "tests/support/small_run.h"

namespace tlt {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using tests::read_text;
using tests::run_program;
using tests::Scratch;

// Two prompts of the demo, in the second mini-batch of step 3 and the first one of step 4, whose
// scores are so large that the gradient does not fit. The mini-batches after them are learned from.
// While the file "broken" is there, so are those of all prompts. A score depends on the row but not
// on its "id", which counts the requests of the process.
constexpr const char* kReward = R"(while read -r line; do
  rest=${line#*,}
  [ ! -e "${0%/*}/broken" ] || { echo $(( ${#rest} % 7 * 150000000 )); continue; }
  case "$line" in
    *'"prompt":"5,2,3:30'*|*'"prompt":"4,3,6:42'*) echo $(( ${#rest} % 2 * 1000000000 )) ;;
    *) echo $(( ${#rest} % 7 )) ;;
  esac
done
)";

class SkippedStepsTest : public ::testing::Test {
 protected:
  SkippedStepsTest() { std::ofstream(scratch_ / "reward.sh") << kReward; }

  int run(const std::string& folder, int steps, int workers = 1,
          std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"reward.functions=command",
                             "reward.command=sh " + (scratch_ / "reward.sh").string(),
                             "algorithm.norm_adv_by_std_in_grpo=false", "trainer.threads=1"});
    return run_program(tests::small_run(scratch_ / folder, steps, workers, more), scratch_ / "log");
  }
  std::string output() const { return read_text(scratch_ / "log"); }
  // The metric's value in each step; -1: null.
  std::vector<double> metric(const std::string& folder, const std::string& name) const {
    std::ifstream file(scratch_ / folder / "metrics.jsonl");
    std::vector<double> values;
    for (std::string line; std::getline(file, line);) {
      const auto value = nlohmann::json::parse(line).at(name);
      values.push_back(value.is_null() ? -1 : value.get<double>());
    }
    return values;
  }

  const Scratch scratch_;
};

TEST_F(SkippedStepsTest, AreTheSameForAnyWorkersAndAfterAResume) {
  ASSERT_EQ(run("whole", 5), 0) << output();
  EXPECT_THAT(metric("whole", "actor/skipped_steps"), ElementsAre(0, 0, 1, 1, 0));
  EXPECT_THAT(output(), AllOf(HasSubstr("step 3: the gradient of "),
                              HasSubstr("skipped/step_000003.jsonl); 1 optimizer step skipped")));
  for (const int workers : {2, 3}) {
    const std::string folder = "workers" + std::to_string(workers);
    ASSERT_EQ(run(folder, 5, workers), 0) << output();
    tests::expect_same_run(scratch_ / folder, scratch_ / "whole", 5);
  }
  for (const int steps : {3, 4, 5}) ASSERT_EQ(run("resumed", steps), 0) << output();
  tests::expect_same_run(scratch_ / "resumed", scratch_ / "whole", 5);
  EXPECT_THAT(read_text(scratch_ / "whole" / tests::checkpoint_folder(3) / "state/loop.json"),
              AllOf(HasSubstr("\"optimizer_steps\": 5"), HasSubstr("\"skipped_in_row\": 1")));
  EXPECT_EQ(read_text(scratch_ / "whole/skipped/step_000003.jsonl"),
            read_text(scratch_ / "whole/rollouts/000003.jsonl"));
}

// A step has two optimizer steps. The first five in a row are skipped, whichever process counts.
TEST_F(SkippedStepsTest, TooManyInARowEndTheRunWithAWayOut) {
  std::ofstream(scratch_ / "broken") << "x";
  ASSERT_EQ(run("run", 2), 0) << output();
  ASSERT_EQ(run("run", 3, 2), 1) << output();
  EXPECT_THAT(output(), AllOf(HasSubstr(": step 3: the gradient of "),
                              HasSubstr("6 optimizer steps in a row without a valid gradient, more "
                                        "than 5: start again from the last checkpoint with "
                                        "--override actor.optim.lr=…")));
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "run/skipped/step_000003.jsonl"));
  EXPECT_THAT(metric("run", "actor/skipped_steps"), ElementsAre(2, 2));
  std::filesystem::remove(scratch_ / "broken");
  ASSERT_EQ(run("run", 3, 1, {"--override", "actor.optim.lr=1e-5"}), 0) << output();
  EXPECT_THAT(output(), HasSubstr("actor.optim.lr is 1e-05 after step 2, instead of 0.00015"));
  EXPECT_THAT(metric("run", "actor/lr"), ElementsAre(1.5e-4, 1.5e-4, 1e-5));
  EXPECT_THAT(read_text(scratch_ / "run/options.toml"),
              AllOf(HasSubstr("\nlr = 1e-05\n"),
                    HasSubstr("[[override]]\nstep = 2\nname = \"actor.optim.lr\"\n"
                              "before = 0.00015\nvalue = 1e-05\n")));
  EXPECT_EQ(run("run", 4, 1, {"actor.optim.lr=1e-3"}), 2);
  EXPECT_THAT(output(), AllOf(HasSubstr("(actor.optim.lr is 0.001 here and 1e-05 there)"),
                              HasSubstr("or add --override actor.optim.lr=0.001 to resume it")));
}

// The newest checkpoint has weights that are not finite, as after steps of a learning rate that is
// too high: each command that resumes from it ends with the same way out, which works.
TEST_F(SkippedStepsTest, LogitsThatAreNotFiniteEndTheRunWithAWayOut) {
  ASSERT_EQ(run("whole", 3), 0) << output();
  ASSERT_EQ(run("run", 2), 0) << output();
  const std::string newest = scratch_ / "run" / tests::checkpoint_folder(2);
  const std::string weights = newest + "state/optimizer.safetensors";
  std::string bytes = read_text(weights);
  const std::string nan("\0\0\xc0\x7f", 4);
  for (size_t at = bytes.size() / 8 * 4; at + 4 <= bytes.size(); at += 4) bytes.replace(at, 4, nan);
  std::ofstream(weights, std::ios::binary) << bytes;
  auto manifest = nlohmann::json::parse(read_text(newest + "MANIFEST.json"));
  manifest["files"]["state/optimizer.safetensors"]["sha256"] = sha256_of_file(weights);
  std::ofstream(newest + "MANIFEST.json") << manifest;
  for (const int workers : {1, 2}) {
    ASSERT_EQ(run("run", 3, workers), 1) << output();
    EXPECT_THAT(output(), AllOf(HasSubstr(": the model's logits are not finite: its weights are "
                                          "broken, or its learning rate was too high; start a run "
                                          "again with the same command and --override "
                                          "actor.optim.lr=…"),
                                HasSubstr("delete its newest checkpoint first"),
                                Not(HasSubstr("check failed")), Not(HasSubstr(".cpp"))));
  }
  std::filesystem::remove_all(newest);
  ASSERT_EQ(run("run", 3), 0) << output();
  EXPECT_THAT(output(), HasSubstr("resuming from"));
  tests::expect_same_run(scratch_ / "run", scratch_ / "whole", 3);
}

}  // namespace
}  // namespace tlt
