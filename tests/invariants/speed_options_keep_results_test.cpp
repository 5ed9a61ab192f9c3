// Invariant: an option marked *speed* changes time and memory only. Each is set to another value,
// several at a time; rollouts, losses, validation and weights are the same bytes.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "run/run_options.h"
#include "tests/support/small_run.h"

namespace tlt {
namespace {

using tests::read_text;
using tests::run_program;
using tests::Scratch;
using tests::small_run;

constexpr int kOptionSteps = 2;

// The reference run, in which every option has an effect. It starts from the demo's weights, so
// rewards differ.
const std::vector<std::string> kBase = {"model.dtype=float32", "trainer.val_before_train=true",
                                        "trainer.test_freq=2", "data.val_max_samples=7",
                                        "trainer.threads=1",   "trainer.save_freq=2"};

// Another value for each option than in the reference run. Values are small enough to have an
// effect: sequences wait for pages and for their turn, prompts are prefilled in chunks.
const std::map<std::string, std::string> kOther = {
    {"rollout.max_num_seqs", "5"},
    {"rollout.kv_memory_bytes", "600000"},
    {"rollout.max_num_batched_tokens", "64"},
    {"speculative.enable", "false"},
    {"speculative.drafters", "[\"ngram\",\"suffix\"]"},
    {"speculative.bs_threshold", "7"},
    {"speculative.eagle.tune_algorithm", "BEG"},
    {"speculative.eagle.mab_configs", "[\"9_7_13\",\"4_2_7\"]"},
    {"speculative.memory_bytes", "800000"},
    {"speculative.eagle.draft_vocab_size", "50"},
    {"speculative.train.enable_drafter_training", "false"},
    {"speculative.train.training_interval_steps", "1"},
    {"speculative.train.step_tokens", "512"},
    {"speculative.train.gap_share", "1"},
    {"speculative.train.consolidate_below", "8"},
    {"speculative.train.frozen_after_steps", "1"},
    {"actor.enable_gradient_checkpointing", "true"},
    {"actor.early_gradients", "false"},
    {"actor.use_distributed_optimizer", "true"},
    {"reward.threads", "1"},
    {"environment.processes", "2"},
    {"trainer.threads", "2"},
};

// Other options that an option needs. A draft model that starts in the run has no ranking of
// tokens, so that option has an effect only with folders of tlt draft
// (speculation_never_changes_tokens covers them).
const std::map<std::string, std::string> kNeeds = {
    {"rollout.max_num_batched_tokens", "rollout.max_num_seqs"},
    {"speculative.eagle.draft_vocab_size", "speculative.train.enable_drafter_training"}};

// With these another part of the program runs, and options of the replaced part have no effect.
const std::set<std::string> kAlone = {
    "speculative.enable", "speculative.drafters", "speculative.eagle.tune_algorithm",
    "speculative.eagle.draft_vocab_size", "speculative.train.enable_drafter_training"};

// Whether a metric depends on what was computed, not on speed.
bool is_result(const std::string& name) {
  const auto starts = [&](const char* prefix) { return name.starts_with(prefix); };
  return starts("actor/") || starts("critic/") || starts("val-") || starts("response_length/") ||
         starts("training/");
}

// One line per step: the metrics that are results, in full precision.
std::string results_of(const std::filesystem::path& run) {
  std::ifstream file(run / "metrics.jsonl");
  std::string text;
  for (std::string line; std::getline(file, line);) {
    const auto row = nlohmann::json::parse(line);
    for (const auto& [name, value] : row.items())
      if (name == "step" || is_result(name)) text += name + "=" + value.dump() + " ";
    text += "\n";
  }
  return text;
}

// The files that differ between two runs.
std::set<std::string> differences(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::set<std::string> names;
  std::vector<std::string> files = tests::state_files(kOptionSteps);
  files.push_back("rollouts/000001.jsonl");
  for (const std::string& file : files) {
    const std::string text = read_text(a / file);
    EXPECT_FALSE(text.empty()) << a / file;
    if (text != read_text(b / file)) names.insert(file);
  }
  if (tests::identity_text(a) != tests::identity_text(b)) names.insert("run.json");
  if (results_of(a) != results_of(b)) names.insert("metrics.jsonl");
  return names;
}

// The options in which two runs differ, except the folder.
std::set<std::string> changed_options(const std::filesystem::path& a,
                                      const std::filesystem::path& b) {
  run::RunOptions here, there;
  const auto refs = collect_options(here), other = collect_options(there);
  apply_toml_file(refs, a / "options.toml");
  apply_toml_file(other, b / "options.toml");
  std::set<std::string> names;
  for (size_t i = 0; i < refs.size(); ++i)
    if (to_text(refs[i].value) != to_text(other[i].value)) names.insert(refs[i].name);
  names.erase("trainer.default_local_dir");
  return names;
}

class SpeedOptionsKeepResults : public ::testing::Test {
 protected:
  void SetUp() override { run("base", {}); }

  // A run in the folder `name`.
  void run(const std::string& name, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = small_run(scratch_ / name, kOptionSteps, 1, kBase);
    arguments.insert(arguments.end(), more.begin(), more.end());
    ASSERT_EQ(run_program(arguments, scratch_ / "log"), 0) << read_text(scratch_ / "log");
  }

  // Whether these options, set to their other values, change nothing but their own values.
  bool expect_no_difference(const std::vector<std::string>& options) const {
    std::string name;
    std::vector<std::string> words;
    std::set<std::string> changed;
    const auto flip = [&](const std::string& option) {
      words.push_back(option + "=" + kOther.at(option));
      changed.insert(option);
    };
    for (const std::string& option : options) {
      name += (name.empty() ? "" : "+") + option;
      flip(option);
      if (const auto needed = kNeeds.find(option); needed != kNeeds.end()) flip(needed->second);
    }
    SCOPED_TRACE(name);
    run(name, words);
    const std::set<std::string> seen = differences(scratch_ / name, scratch_ / "base");
    EXPECT_EQ(changed_options(scratch_ / name, scratch_ / "base"), changed);
    EXPECT_EQ(seen, std::set<std::string>());
    return seen.empty();
  }

  const Scratch scratch_;
};

TEST_F(SpeedOptionsKeepResults, WithEachSetToAnotherValue) {
  constexpr size_t kTogether = 4;  // far from one another in the list: of different parts
  run::RunOptions options;
  std::vector<std::string> names;
  for (const OptionRef& option : collect_options(options))
    if (option.affects == Affects::kSpeed) names.push_back(option.name);
  for (const std::string& name : names)
    ASSERT_TRUE(kOther.contains(name)) << name << " is marked speed: give kOther a value for it";
  EXPECT_EQ(names.size(), kOther.size()) << "kOther has names that are not marked speed";
  for (const std::string& name : kAlone) expect_no_difference({name});
  std::erase_if(names, [](const std::string& name) { return kAlone.contains(name); });
  const size_t groups = (names.size() + kTogether - 1) / kTogether;
  for (size_t group = 0; group < groups; ++group) {
    std::vector<std::string> together;
    for (size_t i = group; i < names.size(); i += groups) together.push_back(names[i]);
    if (!expect_no_difference(together))
      for (const std::string& name : together) expect_no_difference({name});
  }
}

// Negative control: options that change results are detected, in the expected files.
TEST_F(SpeedOptionsKeepResults, DetectsOptionsThatChangeResults) {
  run("lr", {"actor.optim.lr=0.0001501"});
  EXPECT_TRUE(differences(scratch_ / "lr", scratch_ / "base")
                  .contains("checkpoints/step_000002/policy/model.safetensors"));
  run("temperature", {"rollout.temperature=0.9"});
  EXPECT_TRUE(
      differences(scratch_ / "temperature", scratch_ / "base").contains("rollouts/000001.jsonl"));
  run("validation", {"rollout.val_kwargs.temperature=0.5"});
  EXPECT_EQ(differences(scratch_ / "validation", scratch_ / "base"),
            (std::set<std::string>{"metrics.jsonl", "run.json"}));
  EXPECT_FALSE(results_of(scratch_ / "base").empty());
}

}  // namespace
}  // namespace tlt
