// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "apps/row_probe.h"
#include "tests/support/run_program.h"

namespace tlt::apps {
namespace {

using ::testing::HasSubstr;

TEST(DoctorTest, ReportsEveryCheck) {
  const Ended ended = run_program({"doctor"});
  EXPECT_EQ(ended.exit_code, 0) << ended.out;
  for (const char* what : {"CPU", "kernels", "bfloat16", "cores", "ridge", "memory", "torch",
                           "CUDA", "ZeroMQ", "disk", "\nOK\n"})
    EXPECT_THAT(ended.out, HasSubstr(what));
}

TEST(DoctorTest, OptionsPageHasTheOptions) {
  const Ended ended = run_program({"options"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  for (const char* name :
       {"rollout.n", "data.train_batch_size", "actor.optim.lr", "trainer.total_training_steps"})
    EXPECT_THAT(ended.out, HasSubstr(name));
}

TEST(RowProbeTest, RowsDoNotDependOnTheBatch) {
  const Device device = Device::cpu(/*threads=*/0);
  EXPECT_EQ(first_row_difference(device, at::kFloat), "");
  EXPECT_EQ(first_row_difference(device, at::kBFloat16), "");
}

TEST(DoctorTest, ProductsAreOfOtherDevices) {
  const Ended ended = run_program({"doctor", "--products", "Qwen2.5-0.5B"});
  EXPECT_EQ(ended.exit_code, 2) << ended.out;
  EXPECT_THAT(ended.err, HasSubstr("give --device cuda"));
}

}  // namespace
}  // namespace tlt::apps
