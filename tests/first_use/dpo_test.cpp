// `tlt dpo`: workers, resume and the reference logprobs change no bit; what it refuses.
//
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numbers>

#include "tests/first_use/warm_up.h"
#include "tests/support/small_run.h"

namespace tlt::first_use {
namespace {

class DpoTest : public WarmUpTest {
 protected:
  Words words(const fs::path& folder, int steps, int workers = 1, const Words& more = {}) const {
    return tests::small_dpo(folder, steps, workers, more);
  }
  std::vector<nlohmann::json> metrics() const {
    return apps::json_file((run() / "metrics.jsonl").string());
  }
  // The command line of a run on these rows.
  Words on_rows(const std::string& rows, const Words& more = {}) const {
    std::ofstream(scratch_ / "rows.jsonl") << rows;
    Words all = {"data.train_files=" + (scratch_ / "rows.jsonl").string(),
                 "data.train_batch_size=1", "data.val_files=[]"};
    all.insert(all.end(), more.begin(), more.end());
    return words(run(), 1, 1, all);
  }
};

TEST_F(DpoTest, WorkersAndResumeNeverChangeTheWeights) {
  const std::pair<const char*, Words> kinds[] = {
      {"whole", {}},
      {"adapter", {"model.lora_rank=3", "model.lora_alpha=12", "actor.optim.lr=1e-3"}},
      {"ipo",
       {"dpo.loss_type=ipo", "actor.use_distributed_optimizer=true",
        "actor.enable_gradient_checkpointing=true"}}};
  for (const auto& [kind, more] : kinds) {
    const fs::path whole = scratch_ / (std::string(kind) + "_whole"), run = scratch_ / kind;
    expect_success(words(whole, 3, 1, more));
    expect_success(words(run, 1, 2, more));
    expect_success(words(run, 3, 3, more));
    EXPECT_THAT(output(), HasSubstr("pairs are from an earlier start"));
    tests::expect_same_sft(run, whole, 3);
    if (std::string(kind) == "adapter")
      tests::expect_same_files(run, whole,
                               {tests::adapter_file(3), "adapter/adapter_model.safetensors"});
    EXPECT_NE(read_text(whole / "policy/model.safetensors"),
              read_text(fs::path(TLT_SOURCE_DIR) / tests::kSmallModel / "model.safetensors"));
  }
}

TEST_F(DpoTest, AccuracyRisesFromTheReference) {
  expect_success(words(run(), 12, 1,
                       {"data.train_files=[\"countdown:seed=1,size=256\"]",
                        "data.val_files=[\"countdown:seed=7,size=24\"]", "data.train_batch_size=16",
                        "actor.optim.lr=3e-4", "trainer.test_freq=4"}));
  const auto steps = metrics();
  ASSERT_EQ(steps.size(), 13u);
  EXPECT_EQ(steps[0].at("val/rewards/margins"), 0);
  EXPECT_NEAR(steps[0].at("val/loss"), std::numbers::ln2, 1e-12);
  EXPECT_NEAR(steps[1].at("train/loss"), std::numbers::ln2, 1e-12);
  EXPECT_GE(steps[12].at("val/rewards/accuracies"), 0.75) << output();
  EXPECT_LT(steps[12].at("val/loss"), 0.9 * std::numbers::ln2);
  EXPECT_GT(steps[12].at("val/rewards/margins"), 0);
  EXPECT_THAT(output(), HasSubstr("held-out accuracy   0.000 -> "));
}

// On the same pairs and weights, validation and training have the same means.
TEST_F(DpoTest, ValidationEqualsTraining) {
  std::ofstream(scratch_ / "rows.jsonl")
      << R"({"prompt":"7,6,3:60<think>","chosen":"7+3=10\n","rejected":"7-3=4"}
{"prompt":"5,2,1:9<think>","chosen":"5*2=10\n10-1=9","rejected":"5+2=7"}
)";
  const std::string rows = (scratch_ / "rows.jsonl").string();
  expect_success(
      words(run(), 3, 1,
            {"data.train_files=" + rows, "data.val_files=" + rows, "data.train_batch_size=2",
             "dpo.label_smoothing=0.1", "dpo.loss_type=robust"}));
  const auto steps = metrics();
  ASSERT_EQ(steps.size(), 4u);
  for (size_t step = 0; step < 3; ++step)
    for (const auto& [held_out, training] : {std::pair{"val/loss", "train/loss"},
                                             {"val/rewards/chosen", "rewards/chosen"},
                                             {"val/logps/rejected", "logps/rejected"}})
      EXPECT_NEAR(steps[step].at(held_out), steps[step + 1].at(training).get<double>(), 1e-9)
          << training << " after step " << step;
}

TEST_F(DpoTest, DamagedReferenceIsComputedAgain) {
  expect_success(words(scratch_ / "whole", 2));
  expect_success(words(run(), 1));
  std::string file = read_text(run() / "reference_logprobs");
  ASSERT_GT(file.size(), 100u);
  file[file.size() - 3] ^= 1;
  std::ofstream(run() / "reference_logprobs", std::ios::binary) << file;
  expect_success(words(run(), 2));
  EXPECT_THAT(output(), HasSubstr("reference_logprobs is not used, and computed again: "));
  tests::expect_same_sft(run(), scratch_ / "whole", 2);
}

// Before its first step the folder of a run may be taken over by one of another model.
TEST_F(DpoTest, ReferenceOfOtherWeightsIsComputedAgain) {
  expect_success(words(scratch_ / "whole", 1));
  expect_success(words(scratch_ / "other", 1, 1, {"model.random_seed=1"}));
  fs::create_directories(run());
  fs::copy_file(scratch_ / "other" / "reference_logprobs", run() / "reference_logprobs");
  expect_success(words(run(), 1));
  EXPECT_THAT(output(), HasSubstr("reference_logprobs is not used, and computed again: "));
  tests::expect_same_sft(run(), scratch_ / "whole", 1);
}

TEST_F(DpoTest, StopBeforeTheFirstStepKeepsTheReference) {
  const Words many = {"data.train_files=[\"countdown:seed=1,size=100000\"]"};
  tests::Program program(words(run(), 25000, 2, many), log());
  ASSERT_TRUE(tests::appears(run() / "log.txt")) << output();
  program.send(SIGTERM);
  int code = 0;
  ASSERT_TRUE(program.wait_for(120, &code)) << output();
  EXPECT_EQ(code, 128 + SIGTERM) << output();
  EXPECT_THAT(output(), HasSubstr("interrupted: the same command resumes"));
  EXPECT_FALSE(fs::exists(run() / "policy"));
  const bool has_some = fs::exists(run() / "reference_logprobs");  // or no pair was computed yet
  expect_success(words(run(), 1, 1, many));
  EXPECT_EQ(output().find("from an earlier start") != std::string::npos, has_some) << output();
  expect_success(words(scratch_ / "whole", 1, 1, many));
  tests::expect_same_sft(run(), scratch_ / "whole", 1);
}

TEST_F(DpoTest, RowsThatAreNoPairsAreRefused) {
  const std::string good = R"({"prompt":"1,2:3<think>","chosen":"1+2=3","rejected":"2-1=1"})";
  expect_refused(on_rows(R"({"prompt":"1","response":"2"})"),
                 "rows.jsonl:1: no \"chosen\"; a row of tlt dpo has prompt, chosen and rejected");
  expect_refused(on_rows(good + "\n" + R"({"prompt":"1","chosen":"2"})"),
                 "rows.jsonl:2: no \"rejected\"");
  expect_refused(on_rows(R"({"prompt":"1","chosen":"2","rejected":"2"})"),
                 "in 1 chosen and rejected are equal");
  expect_refused(on_rows(good, {"data.train_batch_size=2"}), "fewer than data.train_batch_size=2");
  expect_refused(on_rows(good, {"data.loss_weights=[\"1=2\"]"}),
                 "all tokens of a response count alike");
  expect_refused(on_rows(good, {"dpo.beta=0"}), "dpo.beta is 0; use a number above 0");
  expect_refused(on_rows(good, {"dpo.loss_type=kto"}), "use sigmoid, robust, hinge or ipo");
  expect_refused(on_rows(good, {"distillation.teacher=models/demo"}), "leave it out of `tlt dpo`");
  EXPECT_FALSE(fs::exists(run())) << "a refused start leaves no folder";
  expect_success(on_rows(good + "\n" + R"({"prompt":"1","chosen":"2","rejected":"2"})"));
  EXPECT_THAT(output(), HasSubstr("data.train_files: 1 pair left out, whose chosen and rejected "
                                  "are equal"));
}

}  // namespace
}  // namespace tlt::first_use
