// --device cuda before any card has been seen to pass the tests: one sentence, nothing computed.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/first_use/support.h"

namespace tlt::first_use {
namespace {

TEST(DeviceTest, CudaIsRefusedWithOneSentence) {
  const std::string prompts = scratch_file("prompts.jsonl", R"({"prompt": "7,6,3:60<think>"})");
  const std::string output = scratch_folder() + "/out.jsonl";
  for (const char* device : {"cuda", "cuda:0"})
    expect_refusal(
        run_program({"generate", "--model", demo_model(), "--prompts", prompts, "--output", output,
                     "--device", device}),
        AllOf(HasSubstr("CUDA"), HasSubstr("no GPU has passed the tests yet"), HasSubstr("cpu")));
  EXPECT_FALSE(std::filesystem::exists(output));
}

TEST(DeviceTest, TrainNamesItsOwnOption) {  // B10: it named --device, which tlt train has not
  expect_refusal(run_program({"train", "model.path=" + demo_model(), "trainer.device=cuda",
                              "data.train_files=[\"countdown:seed=1,size=64\"]",
                              "trainer.default_local_dir=" + scratch_folder() + "/run"}),
                 HasSubstr("trainer.device=cpu"));
}

}  // namespace
}  // namespace tlt::first_use
