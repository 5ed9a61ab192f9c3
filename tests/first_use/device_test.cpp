// --device cuda is refused with one sentence until a GPU has passed the tests.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/first_use/support.h"

namespace tlt::first_use {
namespace {

TEST(DeviceTest, CudaIsRefusedWithOneSentence) {
  const std::string prompts = scratch_file("prompts.jsonl", R"({"prompt": "7,6,3:60<think>"})");
  const std::string output = scratch_folder() + "/out.jsonl";
  for (const char* device : {"cuda", "cuda:0"})
    expect_refusal(run_program({"generate", "--model", demo_model(), "--prompts", prompts,
                                "--output", output, "--device", device}),
                   AllOf(HasSubstr("--device cpu"), HasSubstr("no GPU has passed the tests yet"),
                         HasSubstr("TLT_TRY_CUDA=1")));
  EXPECT_FALSE(std::filesystem::exists(output));
}

// B10: the error named --device, which tlt train does not have.
TEST(DeviceTest, TrainNamesItsOwnOption) {
  expect_refusal(run_program({"train", "model.path=" + demo_model(), "trainer.device=cuda",
                              "data.train_files=[\"countdown:seed=1,size=64\"]",
                              "trainer.default_local_dir=" + scratch_folder() + "/run"}),
                 HasSubstr("trainer.device=cpu"));
}

}  // namespace
}  // namespace tlt::first_use
