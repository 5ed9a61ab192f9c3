// tlt draft, run as a user would, on the embedded task with a few short rollouts.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "tests/support/breakpoint.h"
#include "tests/support/run_program.h"

namespace tlt::apps {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr int kSteps = 6;

const std::string kDemo = std::string(TLT_SOURCE_DIR) + "/models/demo";

struct DraftTest : ::testing::Test {
  std::string recipe =
      scratch_file("recipe.toml", "[data]\ntrain_files = [\"countdown:seed=5,size=64\"]\n");

  std::vector<std::string> words(const std::string& run,
                                 const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"draft",
                                      recipe,
                                      "model.path=" + kDemo,
                                      "data.train_max_samples=12",
                                      "data.max_prompt_length=64",
                                      "data.max_response_length=40",
                                      "rollout.n=2",
                                      "rollout.kv_memory_bytes=16777216",
                                      "speculative.train.batch_size=8",
                                      "trainer.total_training_steps=" + std::to_string(kSteps),
                                      "trainer.save_freq=2",
                                      "trainer.test_freq=3",
                                      "trainer.max_ckpt_to_keep=0",
                                      "trainer.threads=1",
                                      "trainer.default_local_dir=" + folder(run)};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  static std::string folder(const std::string& run) { return scratch_folder() + "/" + run; }
  static std::string drafter(const std::string& run) {
    return read_file(folder(run) + "/drafter/model.safetensors", int64_t{1} << 28);
  }
  void expect_success(const std::string& run, const std::vector<std::string>& more = {}) const {
    const Ended ended = run_program(words(run, more));
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
  }
  void expect_complaint(const std::string& run, const std::vector<std::string>& more,
                        const ::testing::Matcher<const std::string&>& matcher) const {
    const Ended ended = run_program(words(run, more));
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    const std::string text = complaint(ended, "draft");
    EXPECT_THAT(text, matcher);
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << "one line: " << text;
  }
};

TEST_F(DraftTest, WorkersNeverChangeTheDraftModel) {
  expect_success("one");
  expect_success("two", {"--workers", "2"});
  EXPECT_EQ(drafter("one"), drafter("two"));
  for (const char* file : {"options.toml", "metrics.jsonl", "log.txt", "drafter/config.json",
                           "checkpoints/step_000006/drafter/model.safetensors"})
    EXPECT_TRUE(fs::exists(folder("one") + "/" + file)) << file;
  const auto rows = json_file(folder("one") + "/metrics.jsonl");
  ASSERT_EQ(rows.size(), size_t{kSteps} + 1);
  for (const char* name :
       {"val-drafter/top1_accuracy", "val-drafter/top3_accuracy",
        "val-drafter/mean_acceptance_length", "val-drafter/acceptance_rate_pos_8"})
    for (const size_t step : {0, 3, 6}) EXPECT_TRUE(rows[step].contains(name)) << name << step;
  EXPECT_LT(rows[6].at("val-drafter/loss"), 0.9 * rows[0].at("val-drafter/loss").get<double>());
  EXPECT_GE(rows[0].at("val-drafter/mean_acceptance_length"), 1.0);
  EXPECT_TRUE(rows[1].contains("drafter/top1_accuracy"));
}

TEST_F(DraftTest, ResumesBitIdentically) {
  expect_success("whole");
  fs::copy(folder("whole"), folder("again"), fs::copy_options::recursive);
  for (const char* later : {"step_000004", "step_000006"})
    fs::remove_all(folder("again") + "/checkpoints/" + later);
  fs::remove_all(folder("again") + "/drafter");
  expect_success("again");
  EXPECT_EQ(drafter("again"), drafter("whole"));
  EXPECT_EQ(json_file(folder("again") + "/metrics.jsonl").size(), size_t{kSteps} + 1);
}

TEST_F(DraftTest, SignalLeavesAResumableRun) {
  const tests::Breakpoint sixth_step({{"tlt::run::Run::report_pace(", 6}});
  if (!sixth_step.can_set()) GTEST_SKIP() << tests::kNoBreakpoint;
  expect_success("whole", {"trainer.total_training_steps=60", "trainer.save_freq=20"});
  const std::string log = folder("log");
  tests::Program program(
      words("stopped", {"trainer.total_training_steps=60", "trainer.save_freq=20"}), log);
  ASSERT_TRUE(sixth_step.signal_at(program.pid(), SIGINT)) << program.output();
  EXPECT_EQ(program.wait(), 128 + SIGINT) << program.output();
  EXPECT_EQ(json_file(folder("stopped") + "/metrics.jsonl").size(), 7u) << "steps 0 to 6";
  EXPECT_TRUE(fs::exists(folder("stopped") + "/drafter/model.safetensors"));
  expect_success("stopped", {"trainer.total_training_steps=60", "trainer.save_freq=20"});
  EXPECT_EQ(drafter("stopped"), drafter("whole"));
}

TEST_F(DraftTest, DamagedStoreIsRebuiltAndIntactReused) {
  expect_success("first");
  const std::string store = folder("first") + "/hidden_states",
                    part = store + "/part_000000.safetensors";
  const auto made = fs::last_write_time(part);
  expect_success("second", {"speculative.train.hidden_states_dir=" + store});
  EXPECT_EQ(fs::last_write_time(part), made);
  EXPECT_EQ(drafter("second"), drafter("first"));
  std::string bytes = read_file(part, 1 << 26);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
  write_file_atomic(part, bytes);
  expect_success("third", {"speculative.train.hidden_states_dir=" + store});
  EXPECT_NE(fs::last_write_time(part), made);
  EXPECT_EQ(drafter("third"), drafter("first"));
}

TEST_F(DraftTest, TrainsOnGivenResponsesAndEarlierModel) {
  expect_success("given", {"speculative.train.source=responses", "speculative.train.init=random",
                           "data.max_response_length=400"});
  expect_success("more", {"speculative.train.init=" + folder("given") + "/drafter"});
  EXPECT_NE(drafter("more"), drafter("given"));
}

// EAGLE-3: trained on two workers, resumed, measured, loaded again, and used by tlt generate.
TEST_F(DraftTest, Eagle3IsTrainedResumedAndUsed) {
  const std::vector<std::string> eagle3 = {"speculative.train.algorithm=eagle3",
                                           "speculative.train.draft_vocab_size=30",
                                           "speculative.train.passes=3"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), eagle3.begin(), eagle3.end());
    return more;
  };
  expect_success("whole", eagle3);
  expect_success("two", with({"--workers", "2"}));
  EXPECT_EQ(drafter("two"), drafter("whole"));
  fs::copy(folder("whole"), folder("again"), fs::copy_options::recursive);
  fs::remove_all(folder("again") + "/checkpoints/step_000006");
  fs::remove_all(folder("again") + "/drafter");
  expect_success("again", eagle3);
  EXPECT_EQ(drafter("again"), drafter("whole"));
  const auto rows = json_file(folder("whole") + "/metrics.jsonl");
  EXPECT_LT(rows[6].at("val-drafter/loss"), rows[0].at("val-drafter/loss").get<double>());
  EXPECT_TRUE(rows[6].contains("val-drafter/mean_acceptance_length"));
  EXPECT_TRUE(rows[1].contains("drafter/top1_accuracy_pos_3"));

  const std::string made = folder("whole") + "/drafter";
  expect_success("more", with({"speculative.train.init=" + made}));
  EXPECT_NE(drafter("more"), drafter("whole"));
  expect_complaint("other", {"speculative.train.init=" + made},
                   HasSubstr("speculative.train.algorithm is eagle and the draft model in"));
  expect_complaint("store",
                   {"speculative.train.hidden_states_dir=" + folder("whole") + "/hidden_states"},
                   HasSubstr("other data"));
  expect_complaint("init", with({"speculative.train.init=target"}), HasSubstr("init is target"));
  const std::string prompts = scratch_file("prompts.jsonl", "{\"tokens\": [5, 6, 7, 8]}\n");
  const auto generated = [&](const std::vector<std::string>& more) {
    const std::string output = scratch_file("responses.jsonl", "");
    std::vector<std::string> words = {"generate", "--model",          kDemo, "--prompts",
                                      prompts,    "--max-new-tokens", "40",  "--seed",
                                      "3",        "--output",         output};
    words.insert(words.end(), more.begin(), more.end());
    const Ended ended = run_program(words);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return json_lines(read_file(output, 1 << 20)).at(0).at("tokens");
  };
  EXPECT_EQ(generated({"--speculation", "eagle", "--drafter", made, "--strategy", "4_2_8"}),
            generated({"--speculation", "off"}));
}

TEST_F(DraftTest, ErrorsAreOneSentence) {
  expect_complaint("a", {"model.path=nowhere"}, HasSubstr("nowhere"));
  expect_complaint("c", {"speculative.train.batch_size=100"},
                   HasSubstr("batch_size is 100 and there are"));
  expect_complaint("e", {"speculative.train.init=nowhere"}, HasSubstr("nowhere"));
  expect_complaint("f", {"speculative.train.source=books"}, HasSubstr("use rollouts or responses"));
  expect_success("first");
  const std::string store =
      "speculative.train.hidden_states_dir=" + folder("first") + "/hidden_states";
  expect_complaint("g", {store, "model.random_seed=1"},
                   HasSubstr("has the hidden states of another target model"));
  expect_complaint("h", {store, "rollout.n=3"},
                   HasSubstr("other data: rollout.n is 3 here and 2 there"));
}

}  // namespace
}  // namespace tlt::apps
