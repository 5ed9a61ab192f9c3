// What sets options: TOML recipes, overrides of the command line, and verl's YAML.
//
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include "base/files.h"
#include "base/options.h"
#include "cli/verl_config.h"
#include "data/data_options.h"
#include "tests/support/fuzz.h"
#include "tests/support/test_folder.h"

namespace tlt::tests {
namespace {

// Options of every type.
struct Options {
  data::DataOptions data;
  std::vector<int64_t> counts = {1, 2};
  std::vector<double> betas = {0.9, 0.95};
  double rate = 1e-3;

  void visit(auto& v) {
    v.group("data", data);
    v(counts, "counts", Affects::kSpeed, "A list of integers.");
    v(betas, "betas", Affects::kResults, "A list of numbers.");
    v(rate, "rate", Affects::kResults, "A number.");
  }
};

TEST(OptionsFuzzTest, RecipesAreAppliedOrRejected) {
  FuzzPlan plan{.name = "toml",
                .corpus = {"[data]\ntrain_files = [\"a.jsonl\"]\ntrain_batch_size = 16\n",
                           "counts = [1, 2, 3]\nbetas = [0.9, 1e-3]\nrate = 0.5 # comment\n",
                           "data.max_prompt_length = 64\ndata.shuffle = true\n"},
                .dictionary = {"[data]",     "[[data]]",
                               "[",          "]",
                               "{",          "}",
                               "=",          ".",
                               "\"",         "'''",
                               "\"\"\"",     "#",
                               "\n",         "true",
                               "inf",        "nan",
                               "0x",         "1_0",
                               "2026-01-01", "12:00:00",
                               "\\u0000",    "\\U0010ffff",
                               "data.",      "counts",
                               "rate",       "actor_rollout_ref."},
                .inputs = 10000};
  for (const auto& file : std::filesystem::directory_iterator(TLT_SOURCE_DIR "/recipes"))
    plan.corpus.push_back(read_text(file.path()));
  std::sort(plan.corpus.begin(), plan.corpus.end());
  fuzz(plan, [](const std::string& text) {
    Options options;
    const auto refs = collect_options(options);
    apply_toml_text(refs, text, "recipe.toml");
    // What was accepted is written so that it reads back to the same values.
    const std::string written = to_toml(refs);
    Options again;
    const auto other = collect_options(again);
    apply_toml_text(other, written, "options.toml");
    TLT_CHECK(to_toml(other) == written, written);
    return written.substr(0, 60);
  });
}

TEST(OptionsFuzzTest, OverridesAreAppliedOrRejected) {
  fuzz({.name = "override",
        .corpus = {"data.train_batch_size=16", "counts=1,2", "betas=[0.9, 1e-3]", "rate=0.5",
                   "data.train_files=[\"a\",\"b\"]", "data.shuffle=True"},
        .dictionary = {"data.", "counts", "=", "[", "]", ",", "\"", "'", "True", "null", "1e999"},
        .inputs = 10000,
        .max_bytes = 1 << 12},
       [](const std::string& text) {
         Options options;
         const auto refs = collect_options(options);
         apply_override(refs, text);
         return to_toml(refs).substr(0, 60);
       });
}

TEST(OptionsFuzzTest, ConfigurationsOfVerlAreReadOrRejected) {
  FuzzPlan plan{
      .name = "yaml",
      .corpus = {read_text(TLT_SOURCE_DIR "/tests/golden/verl/fastrl.yaml"),
                 "a: &a [1, 2]\nb: *a\nc: {x: ${d}, y: '${.x}'}\nd: ${oc.select:e.f,7}\n",
                 "actor_rollout_ref:\n  rollout:\n    n: 8\n  actor: {optim: {lr: 1e-6}}\n"},
      .dictionary = {"&a ",
                     "*a",
                     "<<: *a",
                     "${",
                     "}",
                     "${oc.select:",
                     "${oc.env:HOME}",
                     "- ",
                     "? ",
                     ": ",
                     "!!binary ",
                     "!!str ",
                     "|\n",
                     ">-\n",
                     "---\n",
                     "...\n",
                     "%YAML 1.2\n",
                     "{",
                     "[",
                     "]",
                     "\"",
                     "'",
                     "#",
                     "\t",
                     "\n  ",
                     "\\x00",
                     ".inf",
                     "null",
                     "~"},
      .inputs = 4000,
      .max_bytes = 1 << 14};
  const TestFolder folder;
  FileHandle file(folder / "verl.yaml", O_RDWR | O_CREAT);
  fuzz(plan, [&](const std::string& text) {
    file.write_at(0, text);
    file.truncate(std::ssize(text));
    std::string summary;
    for (const cli::VerlEntry& entry : cli::read_verl_config(file.path(), {"trainer.seed=${a}"}))
      if (summary.size() < 60) summary += entry.value.type_name()[0];
    return summary;
  });
}

}  // namespace
}  // namespace tlt::tests
