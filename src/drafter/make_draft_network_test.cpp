// SPDX-License-Identifier: Apache-2.0
#include "drafter/make_draft_network.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/check.h"
#include "drafter/eagle/draft_eagle3.h"
#include "drafter/files/draft_folder.h"
#include "tests/support/tensors.h"
#include "tests/support/test_folder.h"
#include "tests/support/tiny_model.h"

namespace tlt::drafter {
namespace {

struct MakeDraftNetworkTest : testing::Test {
  static model::ModelConfig config() {
    model::ModelConfig config = tests::tiny_config(model::Family::kQwen2);
    config.layers = 3;
    return config;
  }
  const std::unique_ptr<model::PolicyModel> target = tests::make_tiny_model(config(), at::kFloat);

  auto weights(const DraftNetworkPlan& plan) const {
    return tests::weights_of(*make_draft_network(plan, *target));
  }
};

TEST_F(MakeDraftNetworkTest, WeightsAreOfTheSeedAndTheStart) {
  const auto one = weights({.seed = 1});
  EXPECT_TRUE(tests::all_equal(weights({.seed = 1}), one));
  EXPECT_FALSE(tests::all_equal(weights({.seed = 2}), one));
  EXPECT_FALSE(tests::all_equal(weights({.from_target = true, .seed = 1}), one));
  EXPECT_THROW(make_draft_network({.algorithm = "eagle4"}, *target), Error);
}

TEST_F(MakeDraftNetworkTest, Eagle3HeadHasTheMostFrequentTokens) {
  const int64_t all = target->config().vocabulary;
  for (const int64_t head_rows : {int64_t{0}, all, all + 1}) {
    const DraftNetworkPlan plan = {.algorithm = "eagle3", .head_rows = head_rows};
    const auto network = make_draft_network(plan, *target);
    EXPECT_EQ(network->head_rows(), all);
    EXPECT_FALSE(misses_head_tokens(plan, *network));
  }
  const DraftNetworkPlan plan = {.algorithm = "eagle3", .head_rows = 3, .seed = 4};
  const auto network = make_draft_network(plan, *target);
  ASSERT_TRUE(misses_head_tokens(plan, *network));
  std::vector<int32_t> ranked(static_cast<size_t>(all));
  std::iota(ranked.rbegin(), ranked.rend(), 0);  // the highest id first
  choose_head_tokens(plan, ranked, *network);
  const auto last = static_cast<int32_t>(all - 1);
  EXPECT_EQ(network->head_tokens(), (std::vector{last - 2, last - 1, last}));
  Eagle3Network want(*target, Eagle3Config::make(target->config(), 3));
  want.set_head_tokens({last - 2, last - 1, last});
  want.initialize(4);
  EXPECT_TRUE(tests::all_equal(tests::weights_of(*network), tests::weights_of(want)));
}

TEST_F(MakeDraftNetworkTest, FolderOverridesTheRestOfThePlan) {
  const TestFolder folder;
  const DraftNetworkPlan made = {.algorithm = "eagle3", .head_rows = 3, .seed = 4};
  const auto network = make_draft_network(made, *target);
  save_drafter(*network, folder / "drafter");
  const DraftNetworkPlan plan = {.folder = folder / "drafter", .seed = 9};
  const auto loaded = make_draft_network(plan, *target);
  EXPECT_EQ(loaded->algorithm(), "eagle3");
  EXPECT_FALSE(misses_head_tokens(plan, *loaded));
  EXPECT_TRUE(tests::all_equal(tests::weights_of(*loaded), tests::weights_of(*network)));
}

}  // namespace
}  // namespace tlt::drafter
