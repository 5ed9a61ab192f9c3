// SPDX-License-Identifier: Apache-2.0
#include "tinker/trained_policy.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "tests/support/golden_batch.h"
#include "tests/support/tensors.h"
#include "tests/support/test_folder.h"

namespace tlt::tinker {
namespace {

using train::LoraConfig;

class TrainedPolicyTest : public ::testing::TestWithParam<bool> {
 protected:
  static std::optional<LoraConfig> kind(int64_t rank = 3) {
    return GetParam() ? std::optional(LoraConfig{.rank = rank}) : std::nullopt;
  }
  static std::string model_folder() {
    return std::string(TLT_SOURCE_DIR) + "/tests/golden/models/qwen2_tied";
  }
  static TrainedPolicy::Options options() {
    return {.model_folder = model_folder(), .trainer = {.max_tokens = 40}};
  }
  std::vector<at::Tensor> weights() const { return tests::weights_of(*model_); }
  void train(TrainedPolicy& policy, int steps) const {
    const TrainBatch batch = {.samples = samples_, .targets = {}, .loss = train::LossOptions()};
    for (int i = 0; i < steps; ++i) {
      policy.forward(batch, /*is_backward=*/true);
      EXPECT_EQ(policy.step({.lr = 1e-2}).fault, "");
    }
  }

  const std::unique_ptr<model::PolicyModel> model_ = train::golden_model("qwen2_tied");
  const std::vector<train::TrainSample> samples_ =
      train::golden_samples(train::read_golden("qwen2_tied"), "t10");
};

TEST_P(TrainedPolicyTest, ShownWeightsComeAndGoBitForBit) {
  TrainedPolicy policy(*model_, options());
  const auto base = weights();
  policy.create(kind(), 1);
  EXPECT_TRUE(tests::all_equal(weights(), base));
  train(policy, 2);
  const Weights first = policy.snapshot();
  const auto after_two = weights();
  EXPECT_FALSE(tests::all_equal(after_two, base));
  train(policy, 1);
  const auto after_three = weights();
  EXPECT_FALSE(tests::all_equal(after_three, after_two));
  for (int i = 0; i < 2; ++i) {
    policy.show(first);
    EXPECT_TRUE(tests::all_equal(weights(), after_two));
    policy.show(nullptr);
    EXPECT_TRUE(tests::all_equal(weights(), base));
  }
  policy.show_training();
  EXPECT_TRUE(tests::all_equal(weights(), after_three));
  policy.show(first);
  train(policy, 1);
  const auto after_four = weights();
  policy.unload();
  EXPECT_TRUE(tests::all_equal(weights(), base));
  policy.show(first);
  EXPECT_TRUE(tests::all_equal(weights(), after_two)) << "also without a training";
  policy.create(kind(), 1);
  EXPECT_TRUE(tests::all_equal(weights(), base));
  train(policy, 4);
  EXPECT_TRUE(tests::all_equal(weights(), after_four));
}

TEST_P(TrainedPolicyTest, SavedStateContinuesBitForBit) {
  TestFolder folder;
  const std::string saved = folder / "model/weights/a", exported = folder / "model/sampler/b";
  TrainedPolicy policy(*model_, options());
  policy.create(kind(), 1);
  train(policy, 2);
  const auto after_two = weights();
  policy.save(saved, /*has_optimizer=*/true);
  policy.save(exported, /*has_optimizer=*/false);
  train(policy, 1);
  const auto after_three = weights();
  policy.load(saved, /*with_optimizer=*/true);
  EXPECT_TRUE(tests::all_equal(weights(), after_two));
  train(policy, 1);
  EXPECT_TRUE(tests::all_equal(weights(), after_three));
  policy.load(saved, /*with_optimizer=*/false);
  EXPECT_TRUE(tests::all_equal(weights(), after_two));
  train(policy, 1);
  EXPECT_FALSE(tests::all_equal(weights(), after_three)) << "the moments are new";
  EXPECT_THROW(policy.load(exported, true), InputError);
  EXPECT_THROW(policy.load(folder / "nothing", true), InputError);
  policy.unload();
  policy.show_folder(exported);
  EXPECT_TRUE(tests::all_equal(weights(), after_two));
  EXPECT_EQ(TrainedPolicy::read_kind(saved).has_value(), GetParam());
}

TEST_P(TrainedPolicyTest, WeightsOfAnotherKindAreRefused) {
  TestFolder folder;
  TrainedPolicy policy(*model_, options());
  policy.create(kind(), 1);
  train(policy, 1);
  const Weights other = policy.snapshot();
  policy.save(folder / "a", /*has_optimizer=*/true);
  policy.unload();
  policy.create(LoraConfig{.rank = 5}, 1);
  const auto before = weights();
  EXPECT_THROW(policy.show(other), InputError);
  EXPECT_THROW(policy.show_folder(folder / "a"), InputError);
  EXPECT_THROW(policy.load(folder / "a", true), InputError);
  EXPECT_TRUE(tests::all_equal(weights(), before));
}

INSTANTIATE_TEST_SUITE_P(Kinds, TrainedPolicyTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Adapter" : "AllWeights"; });

}  // namespace
}  // namespace tlt::tinker
