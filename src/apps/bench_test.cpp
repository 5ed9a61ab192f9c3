// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "apps/program.h"

namespace tlt::apps {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST(BenchTest, DecodeReportsEachBatchSize) {
  const Ended ended = run_program({"bench", "decode", "--model", golden_model("qwen2_tied"),
                                   "--batch", "1,5", "--prompt-tokens", "9", "--new-tokens", "12",
                                   "--repeat", "2", "--threads", "1"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const auto rows = json_lines(ended.out);
  ASSERT_EQ(rows.size(), 2u);
  for (const json& row : rows) {
    EXPECT_EQ(row["bench"], "decode");
    EXPECT_EQ(row["model"], "qwen2_tied");
    EXPECT_EQ(row["dtype"], "float32");
    EXPECT_EQ(row["threads"], 1);
    EXPECT_EQ(row["accept_length"], 1.0);
    EXPECT_LE(row["tokens_per_second"], row["best"]);
    EXPECT_LE(row["step_seconds_p50"], row["step_seconds_p90"]);
    for (const char* name :
         {"tokens_per_second", "step_seconds_p50", "peak_memory_bytes", "weight_bytes_per_token",
          "kv_bytes_per_token", "read_bandwidth_bytes_per_second", "bandwidth_share"})
      EXPECT_GT(row.value(name, 0.0), 0.0) << name;
    for (const char* name : {"commit", "machine"})
      EXPECT_TRUE(row.value(name, json()).is_string()) << name;
  }
  EXPECT_LT(rows[0]["peak_memory_bytes"], int64_t{256} << 20)
      << "the buffer of the bandwidth's probe is not counted";
  EXPECT_EQ(rows[0]["batch"], 1);
  EXPECT_EQ(rows[1]["batch"], 5);
  EXPECT_DOUBLE_EQ(rows[0]["weight_bytes_per_token"].get<double>(),
                   5 * rows[1]["weight_bytes_per_token"].get<double>());
}

TEST(BenchTest, TrainReportsBothHalvesOfAStep) {
  const Ended ended = run_program({"bench", "train", "--model", golden_model("qwen2_tied"),
                                   "--prompts", "2", "--samples", "3", "--prompt-tokens", "5",
                                   "--new-tokens", "7", "--repeat", "1", "--threads", "1"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const json row = json_lines(ended.out).at(0);
  EXPECT_GT(row["rollout_seconds"], 0.0);
  EXPECT_GT(row["train_seconds"], 0.0);
  EXPECT_EQ(row["rollout_probs_diff_max"], 0.0) << "engine and trainer share their arithmetic";
}

std::string result(double rate, const std::string& machine) {
  return json{{"bench", "decode"}, {"batch", 8},    {"tokens_per_second", rate},
              {"repeat", 3},       {"commit", "c"}, {"machine", machine}}
             .dump() +
         "\n";
}

TEST(BenchTest, CompareGivesRatiosOfOneMachineOnly) {
  const std::string before = scratch_file("old.jsonl", result(100, "here")),
                    after = scratch_file("new.jsonl", result(150, "here"));
  const Ended ended = run_program({"bench", "compare", before, after});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("x 1.500"));
  EXPECT_THAT(ended.out, HasSubstr("decode batch 8"));
  EXPECT_THAT(ended.out, Not(HasSubstr("repeat")));
  const Ended refused =
      run_program({"bench", "compare", before, scratch_file("there.jsonl", result(150, "there"))});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(complaint(refused, "bench"), HasSubstr("different machines"));
}

TEST(BenchTest, WrongFlagsAreNamed) {
  const Ended ended = run_program({"bench", "decode", "--batch", "0"});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(complaint(ended, "bench"), HasSubstr("--batch has 0; give"));
  EXPECT_EQ(run_program({"bench", "decode", "--shape", "huge"}).exit_code, 2);
}

}  // namespace
}  // namespace tlt::apps
