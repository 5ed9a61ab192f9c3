// tlt export, run as a user would, on golden draft models and on a run folder.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "base/checksum.h"
#include "tests/support/run_program.h"

namespace tlt::apps {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

struct ExportTest : ::testing::Test {
  const std::string out = scratch_folder() + "/out";
  const std::string target = golden_model("qwen2_tied");

  static std::string golden_drafter(const std::string& name) {
    return std::string(TLT_SOURCE_DIR) + "/tests/golden/drafters/" + name;
  }
  Ended run(const std::string& source, const std::string& format = "sglang",
            const std::string& model = "") const {
    return run_program({"export", "drafter", source, "--target", model.empty() ? target : model,
                        "--format", format, "--out", out});
  }
  void expect_complaint(const Ended& ended, const char* part) const {
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    const std::string text = complaint(ended, "export");
    EXPECT_THAT(text, HasSubstr(part));
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << "one line: " << text;
    EXPECT_FALSE(fs::exists(out) || fs::exists(out + ".writing"));
  }
  std::string card() const { return read_file(out + "/README.md", 1 << 20); }

  // A run folder with two checkpoints of the golden draft model qwen2; the newer one may be
  // damaged.
  std::string make_run(bool newest_is_broken) const {
    std::string run = scratch_folder() + "/run";
    for (const char* step : {"step_000002", "step_000004"}) {
      const std::string folder = run + "/checkpoints/" + step;
      fs::create_directories(folder + "/state");
      fs::copy(golden_drafter("qwen2"), folder + "/drafter");
      nlohmann::json files;
      for (const char* file : {"state/loop.json", "state/optimizer.safetensors"}) {
        write_file_atomic(folder + "/" + file, "{}");
        files[file] = {{"bytes", 2}, {"sha256", sha256("{}")}};
      }
      write_file_atomic(folder + "/MANIFEST.json", nlohmann::json{{"files", files}}.dump());
    }
    if (newest_is_broken) write_file_atomic(run + "/checkpoints/step_000004/state/loop.json", "{]");
    std::string rows;
    for (int step = 0; step < 6; ++step)
      rows += nlohmann::json{{"step", step},
                             {"drafter/version", step},
                             {"drafter/acceptance_length/after", 1.5 + step},
                             {"speculation/eagle/accept_rate_pos_1", 0.1 * step},
                             {"speculation/eagle/accept_rate_pos_2", 0.05 * step}}
                  .dump() +
              "\n";
    write_file_atomic(run + "/metrics.jsonl", rows);
    return run;
  }
};

TEST_F(ExportTest, NewestCompleteCheckpointIsExported) {
  for (const bool newest_is_broken : {false, true}) {
    fs::remove_all(out);
    fs::remove_all(scratch_folder() + "/run");
    const Ended ended = run(make_run(newest_is_broken));
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    for (const char* file : {"config.json", "model.safetensors"})
      EXPECT_TRUE(fs::exists(out + "/" + file)) << file;
    EXPECT_FALSE(fs::exists(out + ".writing"));
    const std::string step = newest_is_broken ? "2" : "4";
    EXPECT_THAT(card(), HasSubstr("trained in | run, step " + step + " |"));
    EXPECT_THAT(card(), HasSubstr(sha256_of_file(target + "/model.safetensors")));
    EXPECT_THAT(card(), HasSubstr(newest_is_broken ? "step 2.\n\n| K | 1 | 2 |\n|---|---|---|\n| "
                                                     "| 0.200 | 0.100 |"
                                                   : "step 4.\n\n| K | 1 | 2 |\n|---|---|---|\n| "
                                                     "| 0.400 | 0.200 |"));
    EXPECT_THAT(card(), HasSubstr("\n| " + step + " | " + step + " | " +
                                  (newest_is_broken ? "3.5" : "5.5") + " |\n"));
    EXPECT_THAT(card(), Not(HasSubstr("\n| 5 |")));  // of a later step
  }
}

TEST_F(ExportTest, DraftModelFolderIsExportedForVllm) {
  const Ended ended = run(golden_drafter("qwen2"), "vllm");
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const auto config = nlohmann::json::parse(read_file(out + "/config.json", 1 << 20));
  EXPECT_EQ(config.at("architectures").front(), "LlamaForCausalLM");
  EXPECT_THAT(card(), HasSubstr("--speculative-config"));
}

TEST_F(ExportTest, ErrorsAreOneSentenceAndWriteNothing) {
  expect_complaint(run(golden_drafter("qwen2"), "gguf"), "use sglang or vllm");
  expect_complaint(run(scratch_folder()), "no draft model (config.json");
  expect_complaint(run(golden_drafter("qwen2"), "sglang", golden_model("qwen3_untied")),
                   "made for this target");
  expect_complaint(run(golden_drafter("qwen2"), "sglang", scratch_folder()), "config.json");
  const std::string broken = scratch_folder() + "/broken";
  fs::copy(golden_drafter("qwen2"), broken);
  fs::copy_file(golden_drafter("llama") + "/model.safetensors", broken + "/model.safetensors",
                fs::copy_options::overwrite_existing);
  expect_complaint(run(broken), "tensor");
  expect_complaint(run_program({"export", "policy"}), "unknown command 'policy'");
  fs::create_directories(out);
  EXPECT_THAT(complaint(run(golden_drafter("qwen2")), "export"), HasSubstr("already exists"));
}

}  // namespace
}  // namespace tlt::apps
