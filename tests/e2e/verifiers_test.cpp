// Environments of the package verifiers as environment.command (tools/verifiers_env.py): the
// rewards that arrive are those that the package computes itself, and a run repeats its bits.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/support/environment.h"
#include "tests/support/small_run.h"

namespace tlt {
namespace {

using tests::read_text;
using tests::run_program;
using tests::Scratch;
using Json = nlohmann::ordered_json;

const std::string kDeps = std::string(TLT_SOURCE_DIR) + "/.deps";
const std::string kPackages = kDeps + "/verifiers/site-packages";
const std::string kSource = TLT_SOURCE_DIR;
const std::string kEnvironments = kSource + "/tests/peers/verifiers_environments.py";

class VerifiersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kPackages + "/verifiers/__init__.py"))
      GTEST_SKIP() << "no verifiers in .deps/verifiers; type: setup/setup.sh --clients";
  }
  // Its standard output; the test fails if it does not end with status 0.
  std::string run_python(const std::string& words) const {
    const std::string out = scratch_ / "out";
    const std::string command =
        "python3 " + words + " >'" + out + "' 2>'" + out + ".err' </dev/null";
    EXPECT_EQ(std::system(command.c_str()), 0) << read_text(out + ".err");
    return read_text(out);
  }

  const Scratch scratch_;
  const tests::Variable variables_[3] = {{"PYTHONPATH", kPackages + ":" + kDeps + "/clients"},
                                         {"HF_HOME", scratch_ / "cache"},
                                         {"HF_HUB_OFFLINE", "1"}};
};

TEST_F(VerifiersTest, RewardsAreThoseOfThePackage) {
  const Json results = Json::parse(
      run_python("'" + kSource + "/tests/peers/verifiers_rewards.py' '" + scratch_.path() + "'"),
      nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(results.is_object());
  for (const char* kind : {"single", "several", "tools", "stateful", "group"}) {
    ASSERT_TRUE(results.contains(kind));
    const Json& result = results[kind];
    EXPECT_GE(result["episodes"], 18) << kind;
    EXPECT_LT(result["unfinished"], result["episodes"]) << kind;
    EXPECT_GE(result["rewards"].size(), 2u) << kind << ": " << result;
    if (std::string(kind) != "single") {
      EXPECT_GT(result["turns"], result["episodes"]) << kind;
    }
  }
}

TEST_F(VerifiersTest, TrainingRepeatsItsBits) {
  const std::string tool = kSource + "/tools/verifiers_env.py", rows = scratch_ / "rows.jsonl";
  run_python("'" + tool + "' '" + kEnvironments + "' --write-rows '" + rows + "'");
  const std::vector<std::string> options = {
      "data.train_files=[\"" + rows + "\"]",
      "data.chat_template=recipes/tool_demo.jinja",
      "environment.command=[\"python3\",\"" + tool + "\",\"" + kEnvironments + "\"]",
      "reward.functions=[\"auto\"]",
      "rollout.stop=[\"</think>\"]",
      "environment.timeout_seconds=600",  // the import of the package counts
      "data.max_response_length=160",
      "trainer.threads=1"};
  for (const int workers : {1, 2}) {
    const std::string name = "run" + std::to_string(workers);
    ASSERT_EQ(run_program(tests::small_run(scratch_ / name, 2, workers, options), scratch_ / "log"),
              0)
        << read_text(scratch_ / "log");
  }
  tests::expect_same_run(scratch_ / "run2", scratch_ / "run1", 2);
  EXPECT_EQ(tests::sum_of_metric(scratch_ / "run1", "environment/failed"), 0);
  EXPECT_GT(tests::sum_of_metric(scratch_ / "run1", "environment/turns"), 2 * 1.2);
  EXPECT_GT(tests::sum_of_metric(scratch_ / "run1", "environment/reward"), 0);
  EXPECT_GT(tests::sum_of_metric(scratch_ / "run1", "actor/grad_norm"), 0);
}

}  // namespace
}  // namespace tlt
