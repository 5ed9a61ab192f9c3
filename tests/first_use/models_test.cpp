// Where a model is found, and the error if there is none (B13, B15, B19).
//
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "tests/first_use/support.h"
#include "tests/support/environment.h"

namespace tlt::first_use {
namespace {

using tests::Variable;

namespace fs = std::filesystem;

std::vector<std::string> generate(const std::string& model) {
  return {"generate",      "--model", model,       "--prompt", "7,6,3:60<think>",  "--output", "-",
          "--speculation", "off",     "--threads", "1",        "--max-new-tokens", "4"};
}

std::string output_of(const std::string& model, std::string* err = nullptr) {
  const Ended ended = run_program(generate(model));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  if (err) *err = ended.err;
  return ended.out;
}

// A cache folder in the layout of the Hugging Face libraries.
std::string hub_with(const std::string& name) {
  const std::string hub = scratch_folder() + "/hub", repository = hub + "/models--" + name;
  fs::create_directories(repository + "/refs");
  fs::create_directories(repository + "/snapshots");
  write_file_atomic(repository + "/refs/main", "0123abcd");
  fs::copy(demo_model(), repository + "/snapshots/0123abcd");
  return hub;
}

TEST(ModelsTest, RunFolderIsItsNewestPolicy) {  // B19
  const std::string folder = scratch_folder() + "/run";
  const Ended run = run_program(
      {"sft", std::string(TLT_SOURCE_DIR) + "/recipes/demo.toml", "model.path=" + demo_model(),
       "data.train_files=countdown:seed=3,size=8", "data.train_batch_size=4", "data.val_files=[]",
       "trainer.total_training_steps=1", "trainer.default_local_dir=" + folder});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  std::string err;
  EXPECT_EQ(output_of(folder, &err), output_of(folder + "/policy"));
  EXPECT_THAT(err, HasSubstr(folder + ": the run's policy"));
  const Ended score = run_program({"score", "--model", folder, "--input", "-", "--output", "-"},
                                  "{\"tokens\": [7, 8]}\n");
  EXPECT_EQ(score.exit_code, 0) << score.err;
  const Ended bench = run_program(
      {"bench", "decode", "--model", folder, "--batch", "1", "--new-tokens", "4", "--repeat", "1"});
  EXPECT_EQ(bench.exit_code, 0) << bench.err;
}

TEST(ModelsTest, NewestCheckpointOfATrainRunIsUsed) {  // B19
  const std::string folder = scratch_folder() + "/run";
  const Ended run = run_program(
      {"train", std::string(TLT_SOURCE_DIR) + "/recipes/demo.toml", "model.path=" + demo_model(),
       "data.train_files=countdown:seed=3,size=8", "data.train_batch_size=4", "rollout.n=2",
       "data.val_files=[]", "data.max_response_length=40", "actor.optim.lr=1e-3",
       "trainer.total_training_steps=2", "trainer.save_freq=1", "trainer.val_before_train=false",
       "trainer.default_local_dir=" + folder});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  std::string err;
  EXPECT_EQ(output_of(folder, &err), output_of(folder + "/checkpoints/step_000002/policy"));
  EXPECT_THAT(err, HasSubstr("step_000002/policy"));
}

TEST(ModelsTest, FolderWithoutAModelIsNamed) {
  const std::string folder = scratch_folder() + "/empty";
  fs::create_directory(folder);
  expect_refusal(
      run_program(generate(folder)),
      HasSubstr(folder + ": no model (config.json, checkpoints/ or policy/) in this folder"));
}

TEST(ModelsTest, HuggingFaceCacheIsSearched) {
  const std::string hub = hub_with("some-lab--tiny_1.5"), want = output_of(demo_model());
  {
    const Variable cache("HF_HUB_CACHE", hub);
    std::string err;
    EXPECT_EQ(output_of("some-lab/tiny_1.5", &err), want);
    EXPECT_THAT(err, HasSubstr("some-lab/tiny_1.5: from the Hugging Face cache, " + hub));
    expect_refusal(run_program({"train", "model.path=some-lab/tiny_1.5",
                                "data.train_files=countdown:seed=1,size=64",
                                "trainer.default_local_dir=" + scratch_folder() + "/run"}),
                   HasSubstr("data.train_batch_size"));
  }
  {
    const Variable home("HF_HOME", scratch_folder());
    EXPECT_EQ(output_of("some-lab/tiny_1.5"), want);
  }
  fs::create_directories(scratch_folder() + "/home/.cache/huggingface");
  fs::rename(hub, scratch_folder() + "/home/.cache/huggingface/hub");
  const Variable home("HOME", scratch_folder() + "/home");
  EXPECT_EQ(output_of("some-lab/tiny_1.5"), want);
}

TEST(ModelsTest, MissingHubModelNamesTheDownloadCommand) {
  const Variable cache("HF_HUB_CACHE", scratch_folder());
  const auto says = HasSubstr(
      "Qwen/Qwen2.5-0.5B-Instruct: no such folder, and not in the Hugging Face cache (" +
      scratch_folder() +
      "); type: hf download Qwen/Qwen2.5-0.5B-Instruct --local-dir Qwen2.5-0.5B-Instruct");
  expect_refusal(run_program(generate("Qwen/Qwen2.5-0.5B-Instruct")), says);
  expect_refusal(run_program({"train", "model.path=Qwen/Qwen2.5-0.5B-Instruct",
                              "data.train_files=countdown:seed=1,size=64"}),
                 says);
}

TEST(ModelsTest, AGitLfsPointerIsNamed) {  // B15
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 4777304\n";
  for (const char* name : {"model.safetensors", "tokenizer.json"}) {
    const std::string model = scratch_folder() + "/" + name + "_model";
    fs::copy(demo_model(), model);
    write_file_atomic(model + "/" + name, pointer);
    expect_refusal(run_program(generate(model)),
                   HasSubstr(std::string(name) + ": a Git LFS pointer, not the file itself; type: "
                                                 "git lfs pull"));
  }
}

}  // namespace
}  // namespace tlt::first_use
