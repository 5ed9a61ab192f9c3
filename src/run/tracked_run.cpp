// SPDX-License-Identifier: Apache-2.0
#include "run/tracked_run.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "base/version.h"

namespace tlt::run {

namespace {

// The other workers wait for it in a collective.
std::chrono::milliseconds start_time(const RunOptions& options) {
  constexpr double kMost = 60'000;
  return std::chrono::milliseconds(
      static_cast<int64_t>(std::min(kMost, 500 * options.trainer.timeout_seconds)));
}

}  // namespace

tracker::TrackedRun tracked_run(const RunOptions& options, const std::string& folder) {
  RunOptions copy = options;  // collect_options() needs mutable options
  nlohmann::ordered_json config = {{"tlt.version", kVersion}, {"tlt.commit", kCommit}};
  for (const OptionRef& ref : collect_options(copy))
    std::visit([&](const auto* value) { config[ref.name] = *value; }, ref.value);
  return {.loggers = options.trainer.logger,
          .folder = folder,
          .project = options.trainer.project_name,
          .name = options.trainer.experiment_name,
          .config = std::move(config),
          .start_time = start_time(options)};
}

tracker::Table table_of(const DumpedStep& dumped, const tokenizer::Tokenizer& tokenizer) {
  tracker::Table table{
      .name = "val/generations",
      .step = dumped.step,
      .columns = {"step", "prompt_id", "data_source", "input", "output", "gts", "score"},
      .rows = {}};
  const size_t distance = std::max<size_t>(1, dumped.rollouts.size() / kTableRows);
  for (size_t i = 0; i < dumped.rollouts.size() && table.rows.size() < kTableRows; i += distance) {
    const Rollout& rollout = dumped.rollouts[i];
    const data::Prompt& prompt = dumped.prompts[rollout.prompt];
    table.rows.push_back({dumped.step, prompt.id, prompt.data_source,
                          text_of_prompt(rollout, prompt, tokenizer),
                          tokenizer.decode(rollout.response.tokens), prompt.ground_truth,
                          static_cast<double>(rollout.score)});
  }
  return table;
}

}  // namespace tlt::run
