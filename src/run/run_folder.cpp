// SPDX-License-Identifier: Apache-2.0
#include "run/run_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/atomic_folder.h"
#include "base/check.h"
#include "base/json_lines.h"
#include "base/log.h"
#include "run/report/run_report.h"
#include "run/tracked_run.h"
#include "tracker/trackers.h"

namespace tlt::run {

namespace {

namespace fs = std::filesystem;

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

constexpr const char* kIdentity = "/run.json";

// Whether a run has written here. Other folders are never moved.
bool has_run(const std::string& folder) {
  for (const char* name : {"run.json", "options.toml", "metrics.jsonl", "checkpoints", "log.txt"})
    if (fs::exists(folder + "/" + name)) return true;
  return false;
}

// Whether the run has done a step; before that its folder may be taken over.
bool has_steps(const std::string& folder) {
  for (const char* result : {"checkpoints/latest", "policy", "drafter"})
    if (fs::exists(folder + "/" + result)) return true;
  std::ifstream metrics(folder + "/metrics.jsonl");  // a file: check_kinds()
  for (std::string line; std::getline(metrics, line);) {
    const auto row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (row.is_object() && row.contains("step") && row["step"].is_number() && row["step"] > 0)
      return true;
  }
  return false;
}

// InputError if one of the files that a run reads or continues is none: to open a FIFO could wait
// for ever.
void check_kinds(const std::string& folder) {
  for (const char* name : {".lock", "run.json", "options.toml", "metrics.jsonl", "timeline.json",
                           "log.txt", "unfinished_step"}) {
    const std::string path = folder + "/" + name;
    std::error_code error;
    TLT_CHECK_INPUT(!fs::exists(path, error) || fs::is_regular_file(path, error), path,
                    " is not a file, and a run writes one there; remove it");
  }
}

// The folder itself included.
bool is_in(const std::string& path, const std::string& folder) {
  const auto with_slash = [](const std::string& one) {
    return without_slashes(fs::weakly_canonical(one).string()) + "/";
  };
  return with_slash(path).starts_with(with_slash(folder));
}

// InputError: `folder` belongs to another run.
void check_run(const std::string& folder, const RunIdentity& identity,
               const std::vector<Override>& overrides) {
  const std::string path = folder + kIdentity;
  if (!fs::exists(path)) {
    TLT_CHECK_INPUT(!has_steps(folder), folder,
                    " has a run of an earlier version of tlt, without run.json; give another "
                    "trainer.experiment_name, or trainer.resume_mode=disable to move that run "
                    "aside and start again");
    return;
  }
  RunIdentity there = parse_identity(read_file(path, kMaxIdentityBytes), path);
  there.options = with_overrides(there.options, overrides);
  if (there.command != identity.command || has_steps(folder))
    check_same_run(folder, identity, there);
}

// Renames runs/x to runs/x.1, or to the first free such name. REQUIRES: the lock of `folder`.
std::string move_aside(const std::string& folder) {
  int number = 1;
  const auto name = [&] { return folder + "." + std::to_string(number); };
  while (fs::exists(fs::symlink_status(name()))) ++number;
  if (::rename(folder.c_str(), name().c_str()) != 0)
    throw_file_error(folder, "move the run in it to " + name(), errno);
  return name();
}

// Over the tokens that were sampled.
double mean(std::span<const float> values, const train::TrainSample& sample) {
  double sum = 0, count = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (sample.weight(static_cast<int64_t>(i)) == 0) continue;
    sum += values[i], ++count;
  }
  return count > 0 ? sum / count : 0;
}

// What an episode consists of: {"role": "environment" or "assistant", "tokens": n, "text": "…"} for
// each part. Only the assistant's tokens count in the loss.
nlohmann::ordered_json turns_of(const rollout::Response& response,
                                const tokenizer::Tokenizer& tokenizer) {
  nlohmann::ordered_json turns = nlohmann::ordered_json::array();
  const std::span tokens = response.tokens;
  const auto add = [&](const char* role, size_t begin, size_t end) {
    if (begin == end) return;
    turns.push_back({{"role", role},
                     {"tokens", end - begin},
                     {"text", tokenizer.decode(tokens.subspan(begin, end - begin))}});
  };
  size_t at = 0;
  for (const rollout::TokenSpan& span : response.observed) {
    add("assistant", at, static_cast<size_t>(span.begin));
    at = static_cast<size_t>(span.end);
    add("environment", static_cast<size_t>(span.begin), at);
  }
  add("assistant", at, tokens.size());
  return turns;
}

// Rows of a dump, at equal distances, that also have their tokens: with all of them the dump would
// be several times as large.
constexpr size_t kRowsWithTokens = 8;

bool has_tokens(size_t i, size_t rows) {
  const size_t distance = std::max<size_t>(1, rows / kRowsWithTokens);
  return i % distance == 0 && i / distance < kRowsWithTokens;
}

// Adds the text of each token, which together are `output`, and its logprob to four decimals.
void add_tokens(const rollout::Response& response, const tokenizer::Tokenizer& tokenizer,
                nlohmann::ordered_json& row) {
  std::vector<std::string> texts;
  std::vector<double> logprobs;
  tokenizer::StreamingDecoder decoder(tokenizer);
  for (const int32_t token : response.tokens) texts.push_back(decoder.push(token));
  if (!texts.empty()) texts.back() += decoder.finish();
  for (const float logprob : response.logprobs)
    logprobs.push_back(std::round(static_cast<double>(logprob) * 1e4) / 1e4);
  row["token_texts"] = texts;
  row["token_logprobs"] = logprobs;
  if (response.observed.empty()) return;
  std::vector<int> mask;  // 1: sampled; 0: from the environment, without a logprob
  response.visit_tokens([&](size_t, bool is_observed) { mask.push_back(is_observed ? 0 : 1); });
  row["token_mask"] = mask;
}

// An example of supervised fine-tuning; its tokens are a row of `tlt score`.
nlohmann::ordered_json row_of(const train::TrainSample& sample, int64_t step,
                              const tokenizer::Tokenizer& tokenizer) {
  const auto response = sample.tokens.begin() + sample.response_begin;
  return {{"input", tokenizer.decode(std::vector<int32_t>(sample.tokens.begin(), response))},
          {"output", tokenizer.decode(std::vector<int32_t>(response, sample.tokens.end()))},
          {"step", step},
          {"tokens", sample.tokens}};
}

}  // namespace

RunFolder::RunFolder(const RunOptions& options, const RunIdentity& identity, cluster::Comm& comm)
    : path_(without_slashes(options.trainer.folder())),
      is_writer_(comm.rank() == 0),
      identity_(identity) {
  if (is_writer_) take(options);
  comm.barrier("run folder");
  make_folder(path_);  // on hosts that do not share the disk, for the timeline of their workers
}

RunFolder::~RunFolder() = default;

void RunFolder::take(const RunOptions& options) {
  make_folder(path_);
  check_kinds(path_);
  lock_ = std::make_unique<FolderLock>(path_);
  std::string aside;
  if (options.trainer.resume_mode != "disable") {
    check_run(path_, identity_, options.overrides);
  } else if (has_run(path_)) {
    const auto check_stays = [&](const char* option, const std::string& folder) {
      TLT_CHECK_INPUT(folder.empty() || !is_in(folder, path_), option, " is ", folder,
                      ", which trainer.resume_mode=disable would move away with the run in ", path_,
                      "; give another trainer.experiment_name");
    };
    check_stays("model.path", options.model.path);
    check_stays("critic.model.path", options.critic.model.path);
    aside = move_aside(path_);
    make_folder(path_);
    lock_ = std::make_unique<FolderLock>(path_);
  }
  for (const char* part : {"", "/checkpoints", "/rollouts", "/validation", "/skipped"})
    remove_unfinished(path_ + part);
  // That of a run that resumes is written in start(), after the history of its overrides.
  if (!has_steps(path_)) write_file_atomic(path_ + kIdentity, to_json(identity_));
  open_log_file(path_ + "/log.txt");
  if (!aside.empty()) log_info("{}: the run that was here is in {} now", path_, aside);
}

void RunFolder::start(const RunOptions& options, int64_t step, bool is_resumed) {
  if (!is_writer_) return;
  RunOptions copy = options;  // collect_options() needs mutable options
  const std::vector<OptionRef> refs = collect_options(copy);
  for (Override& change : copy.overrides) {
    if (change.step == Override::kNew) change.step = step;
    const auto option = std::ranges::find(refs, change.name, &OptionRef::name);
    if (option != refs.end() && to_text(option->value) == change.value)
      log_info("{} is {} after step {}, instead of {} (--override)", change.name, change.value,
               change.step, change.before);
  }
  write_file_atomic(path_ + "/options.toml", to_toml(refs) + to_toml(copy.overrides));
  write_file_atomic(path_ + kIdentity, to_json(identity_));
  metrics_ = std::make_unique<MetricsWriter>(path_, is_resumed ? step : -1);
}

void RunFolder::start_trackers(const RunOptions& options) {
  if (is_writer_) trackers_ = std::make_unique<tracker::Trackers>(tracked_run(options, path_));
}

void RunFolder::finish_trackers(int exit_code) {
  if (trackers_) trackers_->finish(exit_code);
}

void RunFolder::write_metrics(int64_t step, const Metrics& metrics) {
  if (metrics_) metrics_->write(step, metrics);
  if (trackers_) trackers_->log(step, metrics);
}

void RunFolder::write_report() {
  if (!metrics_) return;
  try {
    const RunReport report = report_runs({{path_}});
    for (const std::string& sentence : report.left_out)
      log_warning("report.html leaves out: {}", sentence);
    write_file_atomic(report_path(), report.html);
  } catch (const std::exception& error) {  // the run is complete without it
    log_warning("no report.html: {}; tlt report makes it later", error.what());
  }
}

void RunFolder::write_rollouts(const DumpedStep& step, const tokenizer::Tokenizer& tokenizer) {
  write_dump(fmt::format("rollouts/{:06}.jsonl", step.step), step, tokenizer);
}

void RunFolder::write_validation(const DumpedStep& step, const tokenizer::Tokenizer& tokenizer) {
  write_dump(fmt::format("validation/{:06}.jsonl", step.step), step, tokenizer);
  if (trackers_ && !trackers_->is_empty()) trackers_->log_table(table_of(step, tokenizer));
}

std::string text_of_prompt(const Rollout& rollout, const data::Prompt& prompt,
                           const tokenizer::Tokenizer& tokenizer) {
  return rollout.own_prompt.empty() ? prompt.text : tokenizer.decode(rollout.own_prompt);
}

nlohmann::ordered_json dump_row(const DumpedStep& dumped, const Rollout& rollout,
                                const tokenizer::Tokenizer& tokenizer,
                                const train::TrainSample* sample) {
  const data::Prompt& prompt = dumped.prompts[rollout.prompt];
  const std::vector<int32_t>& tokens = rollout.response.tokens;
  nlohmann::ordered_json row = {{"input", text_of_prompt(rollout, prompt, tokenizer)},
                                {"output", tokenizer.decode(tokens)},
                                {"gts", prompt.ground_truth},
                                {"score", rollout.score},
                                {"step", dumped.step},
                                {"prompt_id", prompt.id},
                                {"sample", rollout.response.sample},
                                {"finish_reason", to_string(rollout.response.finish)},
                                // Also needed by `tlt reward` to score the row again.
                                {"response", tokenizer.decode(tokens, /*skip_special=*/true)},
                                {"response_tokens", tokens.size()},
                                {"data_source", prompt.data_source}};
  if (sample) row["advantage"] = mean(sample->advantages, *sample);
  if (!prompt.extra_info.empty()) row["extra_info"] = prompt.extra_info;
  if (!prompt.messages.is_null() && rollout.own_prompt.empty()) row["prompt"] = prompt.messages;
  for (const auto& [name, value] : rollout.extras)  // which must not replace a column
    if (!row.contains(name)) row[name] = value;
  if (rollout.episode) row["turns_of_episode"] = turns_of(rollout.response, tokenizer);
  if (!rollout.fault.empty()) row["reward_fault"] = rollout.fault;
  return row;
}

std::string RunFolder::write_skipped(const DumpedStep& step,
                                     const tokenizer::Tokenizer& tokenizer) {
  const std::string file = fmt::format("skipped/step_{:06}.jsonl", step.step);
  write_dump(file, step, tokenizer);
  return path_ + "/" + file;
}

void RunFolder::write_dump(const std::string& file, const DumpedStep& dumped,
                           const tokenizer::Tokenizer& tokenizer) const {
  if (!is_writer_) return;
  const std::string path = path_ + "/" + file;
  make_folder(path.substr(0, path.rfind('/')));
  JsonLinesWriter rows(path);
  for (size_t i = 0; i < dumped.rollouts.size(); ++i) {
    const Rollout& rollout = dumped.rollouts[i];
    nlohmann::ordered_json row =
        dump_row(dumped, rollout, tokenizer, dumped.samples.empty() ? nullptr : &dumped.samples[i]);
    if (has_tokens(i, dumped.rollouts.size())) add_tokens(rollout.response, tokenizer, row);
    rows.write(row);
  }
  for (size_t i = dumped.rollouts.size(); i < dumped.samples.size(); ++i)
    rows.write(row_of(dumped.samples[i], dumped.step, tokenizer));
  rows.flush();
}

}  // namespace tlt::run
