// `tlt sft` writes checkpoints and resumes (B3); train, sft, dpo and draft refuse the folder of another
// command or model (B3, B23).
//
// SPDX-License-Identifier: Apache-2.0
#include <pty.h>

#include <cmath>

#include "tests/first_use/warm_up.h"
#include "tests/support/breakpoint.h"
#include "tests/support/small_run.h"

namespace tlt::first_use {
namespace {

// The command line of a small run of train, sft, dpo or draft.
Words small_run_of(const std::string& command, const fs::path& folder, int steps,
                   const Words& more = {}) {
  if (command == "train") {
    Words words = more;
    words.insert(words.begin(), "trainer.threads=1");
    return tests::small_run(folder, steps, /*workers=*/1, words);
  }
  if (command == "sft") return tests::small_sft(folder, steps, /*workers=*/1, more);
  if (command == "dpo") return tests::small_dpo(folder, steps, /*workers=*/1, more);
  Words words = {"draft",
                 std::string("model.path=") + tests::kSmallModel,
                 "data.train_files=[\"countdown:seed=5,size=16\"]",
                 "data.max_prompt_length=64",
                 "data.max_response_length=40",
                 "rollout.n=1",
                 "rollout.kv_memory_bytes=16777216",
                 "speculative.train.batch_size=4",
                 "trainer.total_training_steps=" + std::to_string(steps),
                 "trainer.save_freq=1",
                 "trainer.test_freq=1",
                 "trainer.threads=1",
                 "trainer.default_local_dir=" + folder.string()};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Runs the program on a pseudo-terminal; returns what it printed.
std::string run_on_terminal(const Words& words) {
  Words texts = words;
  texts.insert(texts.begin(), TLT_PROGRAM);
  std::vector<char*> argv;
  for (std::string& text : texts) argv.push_back(text.data());
  argv.push_back(nullptr);
  int terminal = -1;
  const pid_t pid = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (pid == 0) {
    if (chdir(TLT_SOURCE_DIR) == 0) execv(TLT_PROGRAM, argv.data());
    _exit(127);
  }
  std::string shown;
  char buffer[4096];
  for (ssize_t bytes = 0; (bytes = read(terminal, buffer, sizeof buffer)) > 0;)
    shown.append(buffer, static_cast<size_t>(bytes));
  int status = 0;
  waitpid(pid, &status, 0);
  close(terminal);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << shown;
  return shown;
}

class SftTest : public WarmUpTest {
 protected:
  Words words(const fs::path& folder, int steps, int workers = 1, const Words& more = {}) const {
    return tests::small_sft(folder, steps, workers, more);
  }
};

TEST_F(SftTest, FinishedRunIsNotOverwritten) {  // B3
  expect_success(words(run(), 2));
  const std::string policy = read_text(run() / "policy/model.safetensors");
  ASSERT_FALSE(policy.empty());
  expect_refused(words(run(), 2, 1, {"actor.optim.lr=1e-2"}),
                 "has a run with other options (actor.optim.lr is 0.01 here and 0.001 there); give "
                 "another trainer.experiment_name, or trainer.resume_mode=disable to move that run "
                 "aside");
  expect_success(words(run(), 2));
  EXPECT_THAT(output(), AllOf(HasSubstr("complete (2 of 2 steps)"),
                              HasSubstr("raise trainer.total_training_steps")));
  expect_success(words(run(), 3));
  EXPECT_THAT(output(), HasSubstr("step_000002, step 2"));
  EXPECT_NE(read_text(run() / "policy/model.safetensors"), policy);
}

TEST_F(SftTest, RunWithoutCheckpointsIsNotOverwritten) {
  expect_success(words(run(), 1, 1, {"trainer.save_freq=0"}));
  EXPECT_FALSE(fs::exists(run() / "checkpoints"));
  EXPECT_TRUE(fs::exists(run() / "policy/model.safetensors"));
  expect_refused(words(run(), 1, 1, {"trainer.save_freq=0", "actor.optim.lr=1e-2"}),
                 "has a run with other options");
}

TEST_F(SftTest, ResumedRunEqualsAnUninterruptedOne) {
  const std::pair<const char*, Words> kinds[] = {
      {"whole", {}},
      {"adapter", {"model.lora_rank=3", "model.lora_alpha=12"}},
      {"shared", {"actor.use_distributed_optimizer=true"}}};
  for (const auto& [kind, more] : kinds) {
    const fs::path whole = scratch_ / (std::string(kind) + "_whole"), run = scratch_ / kind;
    expect_success(words(whole, 4, 1, more));
    expect_success(words(run, 2, 2, more));
    expect_success(words(run, 3, 1, more));
    expect_success(words(run, 4, 3, more));
    tests::expect_same_sft(run, whole, 4);
    if (std::string(kind) == "adapter")
      tests::expect_same_files(run, whole,
                               {tests::adapter_file(4), "adapter/adapter_model.safetensors"});
    EXPECT_EQ(read_text(run / "checkpoints/latest"), "step_000004\n");
    EXPECT_EQ(tests::lasting_metrics(run).size(), 5u) << "steps 0 to 4, each once";
  }
}

TEST_F(SftTest, ValidationChangesNoBitOfTheWeights) {
  expect_success(words(scratch_ / "with", 3));
  expect_success(words(scratch_ / "without", 3, 1, {"data.val_files=[]"}));
  for (int step = 1; step <= 3; ++step)
    tests::expect_same_files(scratch_ / "without", scratch_ / "with",
                             tests::checkpoint_files(step));
  for (const auto& row : apps::json_file(scratch_ / "without/metrics.jsonl"))
    EXPECT_FALSE(row.contains("val/loss"));
}

// On the same rows and weights, validation loss and training loss are equal.
TEST_F(SftTest, ValidationLossEqualsTrainingLoss) {
  std::ofstream(scratch_ / "rows.jsonl") << R"({"prompt":"7,6,3:60<think>","response":"7+3=10\n"}
{"prompt":"5,2,1:9<think>","response":"5*2=10\n10-1=9"}
{"prompt":"4,4,2:6<think>","response":"4+4=8"}
)";
  const std::string rows = (scratch_ / "rows.jsonl").string();
  expect_success(words(run(), 3, 1,
                       {"data.train_files=" + rows, "data.val_files=" + rows,
                        "data.train_batch_size=3", "data.loss_weights=[\"\\n=3\"]"}));
  const auto steps = apps::json_file((run() / "metrics.jsonl").string());
  ASSERT_EQ(steps.size(), 4u);
  for (size_t step = 0; step < 3; ++step) {
    const double held_out = steps[step].at("val/loss"), next = steps[step + 1].at("train/loss");
    EXPECT_NEAR(held_out, next, 1e-9) << "after step " << step;
    EXPECT_DOUBLE_EQ(steps[step].at("val/perplexity"), std::exp(held_out));
  }
  EXPECT_GT(std::abs(steps[0].at("val/loss").get<double>() - steps[3].at("val/loss").get<double>()),
            1e-3);
}

TEST_F(SftTest, WorkersNeverChangeTheWeights) {
  for (const int workers : {1, 2, 3})
    expect_success(words(scratch_ / std::to_string(workers), 2, workers));
  for (const int workers : {2, 3})
    tests::expect_same_sft(scratch_ / std::to_string(workers), scratch_ / "1", 2);
}

// Tests of tlt sft, tlt dpo and tlt draft.
class WarmUps : public WarmUpTest, public ::testing::WithParamInterface<const char*> {
 protected:
  std::string command() const { return GetParam(); }
  bool is_draft() const { return command() == "draft"; }
  Words words(const fs::path& folder, int steps, const Words& more = {}) const {
    return small_run_of(command(), folder, steps, more);
  }
  int many() const { return is_draft() ? 240 : 24; }  // enough steps to interrupt the run
  // Before its metrics are written.
  static tests::Breakpoint end_of_step(int step) { return {{"tlt::run::Run::report_pace(", step}}; }
  std::string result() const {
    return is_draft() ? "drafter/model.safetensors" : "policy/model.safetensors";
  }
  Words files(int step) const {
    const std::string checkpoint = tests::checkpoint_folder(step);
    return {checkpoint + result(), checkpoint + "state/optimizer.safetensors",
            checkpoint + "state/loop.json"};
  }
};

TEST_P(WarmUps, ResumeModeDisableMovesTheOldRunAside) {
  expect_success(words(run(), 3, {"trainer.max_ckpt_to_keep=2"}));
  const auto old = files_of(run());
  const std::string optim = is_draft() ? "speculative.train.optim.lr=1e-4" : "actor.optim.lr=2e-4";
  const Words again = {"trainer.max_ckpt_to_keep=2", optim, "trainer.resume_mode=disable"};
  expect_success(words(run(), 1, again));
  EXPECT_THAT(output(), HasSubstr("the run that was here is in " + run().string() + ".1"));
  EXPECT_EQ(files_of(scratch_ / "run.1") == old, true);
  EXPECT_EQ(read_text(run() / "checkpoints/latest"), "step_000001\n");
  EXPECT_TRUE(fs::exists(run() / tests::checkpoint_folder(1)));
  EXPECT_FALSE(fs::exists(run() / tests::checkpoint_folder(3)));
  expect_success(words(run(), 2, {"trainer.max_ckpt_to_keep=2", optim}));
  EXPECT_THAT(output(), HasSubstr("step_000001, step 1"));
}

TEST_P(WarmUps, InterruptedRunReportsItAndResumes) {
  if (!end_of_step(1).can_set()) GTEST_SKIP() << tests::kNoBreakpoint;
  const Words one_save = {"trainer.save_freq=" + std::to_string(many()), "trainer.test_freq=0"};
  expect_success(words(scratch_ / "whole", many(), one_save));
  for (const int signal : {SIGINT, SIGTERM}) {
    const bool is_alone = signal == SIGINT;
    Words stopped = words(run(), many(), one_save);
    if (!is_alone) stopped.insert(stopped.end(), {"--workers", "2"});
    tests::Program program(stopped, log());
    const pid_t worker = is_alone ? program.pid() : tests::wait_for_worker(program.pid(), 0);
    ASSERT_TRUE(end_of_step(4).at(worker, [&] {
      program.send(signal);  // which passes it on to its workers
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    })) << output();
    int code = 0;
    ASSERT_TRUE(program.wait_for(30, &code)) << output();
    EXPECT_EQ(code, 128 + signal) << output();
    EXPECT_THAT(output(), AllOf(HasSubstr("interrupted: the run saves and ends"),
                                HasSubstr("the same command resumes from there")));
    EXPECT_FALSE(fs::exists(run() / tests::checkpoint_folder(many())));
    EXPECT_TRUE(fs::exists(run() / result()));
    expect_success(words(run(), many(), one_save));
    tests::expect_same_files(run(), scratch_ / "whole", files(many()));
    tests::expect_same_files(run(), scratch_ / "whole", {result()});
    EXPECT_EQ(tests::lasting_metrics(run()), tests::lasting_metrics(scratch_ / "whole"));
    fs::remove_all(run());
  }
}

TEST_P(WarmUps, KilledRunHasEachStepOnce) {
  if (!end_of_step(1).can_set()) GTEST_SKIP() << tests::kNoBreakpoint;
  const int saved = many() * 2 / 3;
  const Words some = {"trainer.save_freq=" + std::to_string(saved), "trainer.test_freq=7"};
  expect_success(words(scratch_ / "whole", many(), some));
  {
    tests::Program program(words(run(), many(), some), log());
    ASSERT_TRUE(end_of_step(saved + 3).at(program.pid(), [&] {
      EXPECT_TRUE(tests::appears(run() / tests::checkpoint_folder(saved))) << output();
      program.kill_all();
    })) << output();
  }
  ASSERT_FALSE(fs::exists(run() / tests::checkpoint_folder(many())));
  expect_success(words(run(), many(), some));
  EXPECT_THAT(output(), HasSubstr(", step " + std::to_string(saved)));
  tests::expect_same_files(run(), scratch_ / "whole", files(many()));
  EXPECT_EQ(tests::lasting_metrics(run()), tests::lasting_metrics(scratch_ / "whole"));
}

TEST_P(WarmUps, WithoutCheckpointsNothingIsResumable) {
  tests::Program program(words(run(), 4000, {"trainer.save_freq=0", "trainer.test_freq=0"}), log());
  ASSERT_TRUE(does_step(3)) << output();
  program.send(SIGINT);
  EXPECT_EQ(program.wait(), 130) << output();
  EXPECT_THAT(output(), AllOf(HasSubstr("trainer.save_freq=0 keeps no checkpoints"),
                              Not(HasSubstr("resumes from there"))));
}

TEST_P(WarmUps, InvalidOptionLeavesTheRunInPlace) {
  expect_success(words(run(), 1));
  expect_refused(words(run(), 1, {"trainer.resume_mode=disable", "data.train_files=none.jsonl"}),
                 "none.jsonl");
  EXPECT_FALSE(fs::exists(scratch_ / "run.1"));
}

// Progress appears on a terminal only; the commands at the end can be pasted.
TEST_P(WarmUps, SummaryListsTheNextCommands) {
  expect_success(words(run(), 2));
  const std::string said = output();
  EXPECT_EQ(said.find('\r'), std::string::npos);
  for (const char* line :
       {" step 0/2  validation loss ", " step 2/2  loss ", " tok/s ", " ETA 0:00",
        " step 2/2  validation loss ", "Run summary (2 steps, ", "  held-out loss       ",
        "  training loss       ", "  result              ", "  next\n"})
    EXPECT_THAT(said, HasSubstr(line));
  const std::string summary = read_text(run() / "summary.txt");
  std::istringstream lines(summary.substr(summary.find("  next\n")));
  int commands = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("build/tlt ") == line.npos) continue;
    EXPECT_EQ(std::system(("cd " TLT_SOURCE_DIR " && " + line + " >/dev/null 2>&1").c_str()), 0)
        << line;
    ++commands;
  }
  EXPECT_EQ(commands, is_draft() ? 2 : 1);
  EXPECT_EQ(apps::json_file((run() / "example_answer.jsonl").string()).size(), 1u);
}

TEST_P(WarmUps, EveryMetricIsOnThePage) {
  expect_success(words(run(), 2));
  expect_all_on_the_page(apps::json_file((run() / "metrics.jsonl").string()));
}

TEST_P(WarmUps, TerminalShowsProgress) {
  const std::string shown = run_on_terminal(words(run(), 40, {"trainer.test_freq=5"}));
  EXPECT_THAT(shown, AllOf(HasSubstr("\r\033[Kstep "), HasSubstr("/40 ("), HasSubstr("; update, "),
                           HasSubstr("Run summary (40 steps")));
}

INSTANTIATE_TEST_SUITE_P(Commands, WarmUps, ::testing::Values("sft", "dpo", "draft"),
                         [](const auto& info) { return std::string(info.param); });

// Tests of tlt train, sft, dpo and draft.
class EveryRun : public WarmUpTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(EveryRun, IsNotMixedWithAnother) {  // B3
  expect_success(small_run_of(GetParam(), run(), 1));
  for (const std::string other : {"train", "sft", "dpo", "draft"})
    if (other != GetParam())
      expect_refused(small_run_of(other, run(), 2),
                     "has a run of tlt " + std::string(GetParam()) +
                         "; give another trainer.experiment_name, or trainer.resume_mode=disable");
}

TEST_P(EveryRun, DoesNotResumeFromAnotherModel) {  // B23
  expect_success(tests::small_sft(scratch_ / "sft", 1, 1));
  const std::string other = (scratch_ / "sft/policy").string(), copy = (scratch_ / "copy").string();
  fs::copy(fs::path(TLT_SOURCE_DIR) / tests::kSmallModel, copy);
  expect_success(small_run_of(GetParam(), run(), 1));
  expect_refused(small_run_of(GetParam(), run(), 2, {"model.path=" + other}),
                 "has a run from another model than that of model.path");
  expect_success(small_run_of(GetParam(), run(), 2, {"model.path=" + copy}));
  EXPECT_THAT(output(), HasSubstr("step_000001, step 1"));
}

TEST_P(EveryRun, DamagedRunJsonIsNamed) {
  expect_success(small_run_of(GetParam(), run(), 1));
  std::ofstream(run() / "run.json") << "{\"command\": 1}";
  expect_refused(small_run_of(GetParam(), run(), 2), "run.json: does not say what run this is");
  fs::remove(run() / "run.json");
  expect_refused(small_run_of(GetParam(), run(), 2), "without run.json");
}

TEST_P(EveryRun, ModelInTheRunFolderIsNotMovedAway) {
  expect_success(tests::small_sft(run(), 1, 1));
  expect_refused(
      small_run_of(GetParam(), run(), 1,
                   {"model.path=" + (run() / "policy").string(), "trainer.resume_mode=disable"}),
      "which trainer.resume_mode=disable would move away");
}

// A run that failed before its first step may be replaced.
TEST_P(EveryRun, AfterAFailedStartOptionsMayChange) {
  fs::create_directories(run());
  std::ofstream(run() / "run.json")
      << R"({"command": ")" << GetParam() << R"(", "model": "", "options": ["data.seed = 7"]})";
  std::ofstream(run() / "metrics.jsonl") << "{\"step\":0}\n";
  expect_success(small_run_of(GetParam(), run(), 1));
}

INSTANTIATE_TEST_SUITE_P(Commands, EveryRun, ::testing::Values("train", "sft", "dpo", "draft"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tlt::first_use
