// SPDX-License-Identifier: Apache-2.0
#include "rl/run_folder.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json_lines.h"
#include "base/log.h"
#include "rl/curve.h"

namespace tlt::rl {

RunFolder::RunFolder(const RunOptions& options, bool is_writer)
    : path_(options.trainer.folder()), is_writer_(is_writer) {
  make_folder(path_);  // on a machine that does not share it, for the timeline of its workers
  if (!is_writer_) return;
  lock_ = std::make_unique<FolderLock>(path_);
  open_log_file(path_ + "/log.txt");
}

void RunFolder::start(const RunOptions& options, int64_t step) {
  if (!is_writer_) return;
  RunOptions copy = options;  // collect_options() needs to point somewhere
  write_file_atomic(path_ + "/options.toml", to_toml(collect_options(copy)));
  metrics_ = std::make_unique<MetricsWriter>(path_, step > 0 ? step : -1);
  if (options.trainer.dump_rollouts) make_folder(path_ + "/rollouts");
}

void RunFolder::write_metrics(int64_t step, const Metrics& metrics) {
  if (metrics_) metrics_->write(step, metrics);
}

void RunFolder::draw() {
  if (!metrics_) return;
  const std::string picture =
      draw_curve(path_ + "/metrics.jsonl", path_.substr(path_.find_last_of('/') + 1));
  if (!picture.empty()) write_file_atomic(path_ + "/curve.svg", picture);
}

void RunFolder::write_rollouts(int64_t step, std::span<const data::Prompt> prompts,
                               std::span<const Rollout> rollouts,
                               const data::Tokenizer& tokenizer) {
  if (!is_writer_) return;
  JsonLinesWriter file(fmt::format("{}/rollouts/{:06}.jsonl", path_, step));
  for (const Rollout& rollout : rollouts) {
    const data::Prompt& prompt = prompts[rollout.prompt];
    nlohmann::ordered_json row = {{"input", prompt.text},
                                  {"output", tokenizer.decode(rollout.response.tokens)},
                                  {"gts", prompt.ground_truth},
                                  {"score", rollout.score},
                                  {"step", step},
                                  {"prompt_id", prompt.id},
                                  {"sample", rollout.response.sample},
                                  {"finish_reason", to_string(rollout.response.finish)}};
    for (const auto& [name, value] : rollout.extras) row[name] = value;
    if (!rollout.fault.empty()) row["reward_fault"] = rollout.fault;
    file.write(row);
  }
  file.flush();
}

}  // namespace tlt::rl
