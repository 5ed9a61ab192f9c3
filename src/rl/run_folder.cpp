// SPDX-License-Identifier: Apache-2.0
#include "rl/run_folder.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/json_lines.h"
#include "base/log.h"
#include "rl/curve.h"
#include "rl/timeline_picture.h"

namespace tlt::rl {

namespace {

namespace fs = std::filesystem;

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

// Whether a run has written here; other folders are not ours to move.
bool has_run(const std::string& folder) {
  for (const char* trace : {"options.toml", "metrics.jsonl", "checkpoints", "log.txt"})
    if (fs::exists(folder + "/" + trace)) return true;
  return false;
}

// Renames runs/x to runs/x.1, or the first such name that is free. REQUIRES: the lock of `folder`.
std::string move_aside(const std::string& folder) {
  int number = 1;
  const auto name = [&] { return folder + "." + std::to_string(number); };
  while (fs::exists(fs::symlink_status(name()))) ++number;
  if (::rename(folder.c_str(), name().c_str()) != 0)
    throw_file_error(folder, "move the run in it to " + name(), errno);
  return name();
}

}  // namespace

RunFolder::RunFolder(const RunOptions& options, cluster::Comm& comm)
    : path_(without_slashes(options.trainer.folder())), is_writer_(comm.rank() == 0) {
  if (is_writer_) take(/*starts_again=*/options.trainer.resume_mode == "disable");
  comm.barrier("run folder");
  make_folder(path_);  // on a machine that does not share it, for the timeline of its workers
}

void RunFolder::take(bool starts_again) {
  make_folder(path_);
  lock_ = std::make_unique<FolderLock>(path_);
  std::string aside;
  if (starts_again && has_run(path_)) {
    aside = move_aside(path_);
    make_folder(path_);
    lock_ = std::make_unique<FolderLock>(path_);
  }
  open_log_file(path_ + "/log.txt");
  if (!aside.empty()) log_info("{}: the run that was here is in {} now", path_, aside);
}

void RunFolder::start(const RunOptions& options, int64_t step) {
  if (!is_writer_) return;
  RunOptions copy = options;  // collect_options() needs to point somewhere
  write_file_atomic(path_ + "/options.toml", to_toml(collect_options(copy)));
  metrics_ = std::make_unique<MetricsWriter>(path_, step > 0 ? step : -1);
  if (options.trainer.dump_rollouts)
    for (const char* dump : {"/rollouts", "/validation"}) make_folder(path_ + dump);
}

void RunFolder::write_metrics(int64_t step, const Metrics& metrics) {
  if (metrics_) metrics_->write(step, metrics);
}

void RunFolder::draw() {
  if (!metrics_) return;
  const std::string name = path_.substr(path_.find_last_of('/') + 1);
  const std::string curve = draw_curve(path_ + "/metrics.jsonl", name);
  if (!curve.empty()) write_file_atomic(path_ + "/curve.svg", curve);
  const std::string timeline = draw_timeline(path_ + "/timeline.json", name);
  if (!timeline.empty()) write_file_atomic(path_ + "/timeline.svg", timeline);
}

void RunFolder::write_rollouts(int64_t step, std::span<const data::Prompt> prompts,
                               std::span<const Rollout> rollouts,
                               const data::Tokenizer& tokenizer) {
  if (is_writer_)
    write_dump(fmt::format("{}/rollouts/{:06}.jsonl", path_, step), step, prompts, rollouts,
               tokenizer);
}

void RunFolder::write_validation(int64_t step, std::span<const data::Prompt> prompts,
                                 std::span<const Rollout> rollouts,
                                 const data::Tokenizer& tokenizer) {
  if (is_writer_)
    write_dump(fmt::format("{}/validation/{:06}.jsonl", path_, step), step, prompts, rollouts,
               tokenizer);
}

void RunFolder::write_dump(const std::string& path, int64_t step,
                           std::span<const data::Prompt> prompts, std::span<const Rollout> rollouts,
                           const data::Tokenizer& tokenizer) {
  JsonLinesWriter file(path);
  for (const Rollout& rollout : rollouts) {
    const data::Prompt& prompt = prompts[rollout.prompt];
    const std::vector<int32_t>& tokens = rollout.response.tokens;
    nlohmann::ordered_json row = {{"input", prompt.text},
                                  {"output", tokenizer.decode(tokens)},
                                  {"gts", prompt.ground_truth},
                                  {"score", rollout.score},
                                  {"step", step},
                                  {"prompt_id", prompt.id},
                                  {"sample", rollout.response.sample},
                                  {"finish_reason", to_string(rollout.response.finish)},
                                  // What `tlt reward` needs besides to score the row again.
                                  {"response", tokenizer.decode(tokens, /*skip_special=*/true)},
                                  {"response_tokens", tokens.size()},
                                  {"data_source", prompt.data_source}};
    if (!prompt.extra_info.empty()) row["extra_info"] = prompt.extra_info;
    if (!prompt.messages.is_null()) row["prompt"] = prompt.messages;
    for (const auto& [name, value] : rollout.extras) row[name] = value;
    if (!rollout.fault.empty()) row["reward_fault"] = rollout.fault;
    file.write(row);
  }
  file.flush();
}

}  // namespace tlt::rl
