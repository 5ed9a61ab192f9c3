// SPDX-License-Identifier: Apache-2.0
#include "rl/unfinished_update.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "tests/support/test_folder.h"

namespace tlt::rl {
namespace {

using ::testing::HasSubstr;

UnfinishedUpdate example() {
  UnfinishedUpdate update;
  update.critic.metrics = {{"critic/vf_loss", 0.1}};
  update.critic.tokens = 7;
  update.critic.steps = 4;
  update.policy.metrics = {{"actor/loss", -0.0}, {"actor/grad_norm", 1e300}};
  update.policy.logprob_difference = 0;
  update.policy.skipped_steps = 1;
  update.policy.fault = "the gradient of x";
  update.policy.steps = 3;
  update.policy.is_abandoned = true;
  update.values = {{1, 2.5F}, {}};
  return update;
}

TEST(UnfinishedUpdateTest, IsReadAsItWasWritten) {
  const std::string bytes = example().pack();
  const UnfinishedUpdate update = UnfinishedUpdate::unpack(bytes, "here");
  EXPECT_EQ(update.pack(), bytes);
  EXPECT_EQ(update.steps(), 7);
  EXPECT_EQ(update.policy.metrics, example().policy.metrics);
  EXPECT_TRUE(update.policy.is_abandoned);
  EXPECT_FALSE(update.critic.is_abandoned);
  EXPECT_EQ(update.values, example().values);
}

TEST(UnfinishedUpdateTest, DamagedBytesAreRefusedWithAWayOut) {
  const std::string bytes = example().pack();
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THAT(thrown_message<InputError>(
                    [&] { UnfinishedUpdate::unpack(bytes.substr(0, size), "state/update.bin"); }),
                HasSubstr("state/update.bin: "))
        << size;
  for (const std::string& damaged : {bytes + "x", UnfinishedUpdate().pack()})
    EXPECT_THAT(
        thrown_message<InputError>([&] { UnfinishedUpdate::unpack(damaged, "update.bin"); }),
        HasSubstr("it is damaged; delete this checkpoint to resume from the one before"));
}

}  // namespace
}  // namespace tlt::rl
