// tlt eval: scores a model on data, with several responses to each prompt; or compares evaluations,
// or the validations of a run.
//
//   FOLDER/responses.jsonl    a line per response: verl's dump, with "answer" and "passed"
//   FOLDER/statistics.jsonl   {"metric", "data_source", "value", "low", "high"} per statistic
//   FOLDER/settings.json      what the responses depend on
//
// Until all responses are there they are in responses.jsonl.partial; the same command continues.
//
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <sstream>

#include "apps/commands.h"
#include "apps/eval_table.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/checksum.h"
#include "base/files.h"
#include "base/log.h"
#include "base/sentence.h"
#include "cli/find_model.h"
#include "cli/ordered_output.h"
#include "cli/recipe.h"
#include "cli/rows.h"
#include "ops/cpu.h"
#include "rl/evaluation.h"
#include "rl/validation.h"
#include "run/run_folder.h"
#include "run/run_inputs.h"

namespace tlt::apps {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxSettingsBytes = int64_t{1} << 24;

struct EvalFlags {
  std::string model, output;
  std::vector<std::string> data;
  int64_t samples = 0;

  void add_to(CLI::App& app) {
    app.add_option("--model", model,
                   "Folder of a Hugging Face model, a run's folder (its newest checkpoint) or "
                   "organisation/name in the cache; instead of model.path.");
    app.add_option("--data", data,
                   "File of rows with answers (.parquet, .jsonl, .json), a folder, a pattern, or "
                   "countdown:…; instead of data.val_files. May be given several times.")
        ->allow_extra_args(false);
    app.add_option("--samples", samples, "Responses per prompt; instead of rollout.val_kwargs.n.");
    app.add_option("--output", output,
                   "Folder of the results; the same command continues what is there. Default: "
                   "evals/MODEL-DIGEST, by what the responses depend on.");
  }

  // What is only for training is reset: neither its files nor its values matter here.
  void set(run::RunOptions& options) const {
    if (!model.empty()) options.model.path = cli::find_model(model);
    if (!data.empty()) options.data.val_files = data;
    TLT_CHECK_INPUT(samples >= 0, "--samples is ", samples, "; give at least 1");
    if (samples > 0) options.rollout.validation.n = samples;
    TLT_CHECK_INPUT(options.rollout.validation.n <= 1 || options.rollout.validation.temperature > 0,
                    "rollout.val_kwargs.temperature is 0, greedy, so all ",
                    options.rollout.validation.n,
                    " responses to a prompt would be the same; give --samples 1, or "
                    "rollout.val_kwargs.temperature above 0");
    const run::RunOptions defaults;
    options.data.train_files.clear();
    options.data.train_weights.clear();
    options.data.train_batch_size = defaults.data.train_batch_size;
    options.data.gen_batch_size = defaults.data.gen_batch_size;
    options.data.train_max_samples = defaults.data.train_max_samples;
    options.data.shuffle = defaults.data.shuffle;
    options.data.seed = defaults.data.seed;
    options.rollout.n = defaults.rollout.n;
    options.actor = defaults.actor;
    options.algorithm = defaults.algorithm;
    options.trainer.total_training_steps = defaults.trainer.total_training_steps;
    options.trainer.total_epochs = defaults.trainer.total_epochs;
    options.trainer.resume_mode = "disable";  // no run is resumed
    options.speculative.train.idle.enable_drafter_training = false;
  }
};

// What the responses depend on, by the user's names.
Json eval_settings_of(const run::RunOptions& options) {
  run::RunOptions copy = options;  // collect_options() needs mutable options
  Json settings = {{"TLT_CPU_CAPABILITY", ops::cpu_capability()}};
  std::istringstream lines(options_digest(collect_options(copy)));
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find(" = ");
    settings[line.substr(0, equals)] = line.substr(equals + 3);
  }
  for (const cluster::Input& input : run::fingerprint_inputs(options))
    settings["SHA-256 of " + input.name] = input.fingerprint;
  return settings;
}

std::string default_folder(const run::RunOptions& options, const Json& settings) {
  std::string path = options.model.path;
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return fmt::format("evals/{}-{}", std::filesystem::path(path).filename().string(),
                     sha256(settings.dump()).substr(0, 8));
}

// The folder of an evaluation, on rank 0.
class EvalFolder {
 public:
  EvalFolder(std::string path, const Json& settings, const std::vector<data::Prompt>& prompts,
             int64_t samples, const std::string& command)
      : path_((make_folder(path), std::move(path))),
        lock_(path_),
        settings_(settings),
        samples_(samples),
        rows_(prompts.size() * static_cast<size_t>(samples)) {
    for (const data::Prompt& prompt : prompts) {
      index_of_[prompt.id] = std::ssize(input_hashes_);
      input_hashes_.push_back(std::hash<std::string>()(prompt.text));
    }
    check_settings();
    if (std::filesystem::exists(responses())) {
      log_info("{}: all responses are there", path_);
      rows_ = read_eval_table(path_, responses()).rows;
      TLT_CHECK_INPUT(rows_.size() == prompts.size() * static_cast<size_t>(samples), responses(),
                      " has ", rows_.size(),
                      " responses; the file was changed, so delete it to "
                      "evaluate again");
      return;
    }
    output_ = std::make_unique<cli::OrderedOutput>(
        cli::OrderedOutput::Setup{.path = responses(),
                                  .resume = true,
                                  .settings = settings,
                                  .lines = std::ssize(rows_),
                                  .resume_command = command},
        [this](const nlohmann::json& line, int64_t /*number*/, const std::string& where) {
          return keep(parse_eval_row(line, where), where);
        });
  }

  // Rows of the data of which a response is missing.
  std::vector<int64_t> unfinished() const {
    std::vector<int64_t> rows;
    for (int64_t place = 0; output_ && place < std::ssize(rows_); ++place)
      if (!output_->has(place) && (rows.empty() || rows.back() != place / samples_))
        rows.push_back(place / samples_);
    return rows;
  }

  // Responses that are there already are not written again.
  void add(std::span<const data::Prompt> prompts, std::span<const run::Rollout> rollouts,
           const tokenizer::Tokenizer& tokenizer, const rl::GroupFilter& accuracy) {
    for (const run::Rollout& rollout : rollouts) {
      const int64_t place = int64_t{rollout.prompt} * samples_ + rollout.response.sample;
      if (output_->has(place)) continue;
      Json line =
          run::dump_row({.step = 0, .prompts = prompts, .rollouts = {}}, rollout, tokenizer);
      line["answer"] = rollout.answer;
      line["passed"] = rl::passes(rollout, accuracy);
      const std::string text = cli::to_line(line);
      keep(parse_eval_row(nlohmann::json::parse(text), path_), path_);  // as it will be read
      output_->add(place, text);
    }
    log_info("{} of {} are there", output_->done(), counted(std::ssize(rows_), "response"));
  }

  // Error: no response has a score.
  void finish() {
    if (std::ranges::all_of(rows_, &EvalRow::is_unscored))
      throw Error(
          fmt::format("none of the {} has a score, as the log says; repair the reward, delete "
                      "{} and evaluate again",
                      counted(std::ssize(rows_), "response"), path_));
    if (output_) {
      write_file_atomic(path_ + "/settings.json", settings_.dump(1) + "\n");
      output_->commit();
    }
    const std::vector<reward::EvalStatistic> statistics = statistics_of(rows_);
    std::string lines;
    for (const reward::EvalStatistic& one : statistics) lines += cli::to_line(line_of(one));
    write_file_atomic(path_ + "/statistics.jsonl", lines);
    fmt::print("{}", text_of_statistics(statistics, rows_));
    log_info("responses and statistics are in {}", path_);
  }

 private:
  std::string responses() const { return path_ + "/responses.jsonl"; }

  // Of a finished evaluation; OrderedOutput checks those of an unfinished one.
  void check_settings() const {
    const std::string file = path_ + "/settings.json";
    if (!std::filesystem::exists(responses()) || !std::filesystem::exists(file)) return;
    const Json there = Json::parse(read_file(file, kMaxSettingsBytes), nullptr,
                                   /*allow_exceptions=*/false);
    TLT_CHECK_INPUT(there.is_object(), file, " is damaged; give another --output");
    Json names = there;
    names.update(settings_);  // a setting that only one of them has differs too
    for (const auto& [name, value] : names.items())
      TLT_CHECK_INPUT(there.value(name, Json()) == settings_.value(name, Json()), path_,
                      " has an evaluation with ", name, " ",
                      one_sentence(there.value(name, Json()).dump()), ", and this command has ",
                      one_sentence(settings_.value(name, Json()).dump()),
                      "; give another --output");
  }

  // Returns the row's place in responses.jsonl.
  int64_t keep(EvalRow row, const std::string& where) {
    const auto found = index_of_.find(row.prompt);
    TLT_CHECK_INPUT(found != index_of_.end() && row.sample >= 0 && row.sample < samples_, where,
                    ": a response to prompt ", row.prompt,
                    " that is not in the data; give the same data, or another --output");
    TLT_CHECK_INPUT(row.input_hash == input_hashes_[static_cast<size_t>(found->second)], where,
                    ": a response to another text of prompt ", row.prompt,
                    " (a chat template may print the date); delete it, or give another --output");
    const int64_t place = found->second * samples_ + row.sample;
    rows_[static_cast<size_t>(place)] = std::move(row);
    return place;
  }

  const std::string path_;
  const FolderLock lock_;
  const Json settings_;
  const int64_t samples_;
  std::vector<size_t> input_hashes_;            // of the prompts' texts
  std::map<int64_t, int64_t> index_of_;         // prompt id -> row
  std::vector<EvalRow> rows_;                   // by place
  std::unique_ptr<cli::OrderedOutput> output_;  // null: the evaluation is finished
};

// The same on every worker.
std::vector<int64_t> from_first(cluster::Comm& comm, const std::vector<int64_t>& mine) {
  ByteWriter bytes;
  bytes.list(mine);
  const std::vector<std::string> all =
      comm.all_gather_bytes(comm.rank() == 0 ? bytes.take() : std::string());
  return ByteReader(all.front()).list<std::vector<int64_t>>();
}

int evaluate(const EvalFlags& flags, const std::string& command, const run::RunOptions& options,
             const cluster::Launch& launch) {
  rl::Evaluation evaluation(options, launch);
  const run::RunContext& context = evaluation.context();
  const std::vector<data::Prompt>& prompts = evaluation.prompts();
  const rl::GroupFilter accuracy({}, options.reward);
  std::unique_ptr<EvalFolder> folder;
  if (context.is_first()) {
    const Json settings = eval_settings_of(options);
    folder = std::make_unique<EvalFolder>(
        flags.output.empty() ? default_folder(options, settings) : flags.output, settings, prompts,
        options.rollout.validation.n, command);
  }
  const std::vector<int64_t> rows =
      from_first(*context.comm, folder ? folder->unfinished() : std::vector<int64_t>());
  for (const std::vector<int64_t>& batch : evaluation.batches(rows)) {
    if (context.anyone_interrupted()) {
      if (folder) log_warning("interrupted; continue with: {}", command);
      return context.exit_code_of_stop();
    }
    const std::vector<run::Rollout> rollouts = evaluation.run(batch);
    if (folder) folder->add(prompts, rollouts, context.tokenizer, accuracy);
  }
  if (folder) folder->finish();
  return 0;
}

// `tlt eval FOLDER …`: each evaluation or validation against the first.
int compare_folders(const cli::Arguments& arguments) {
  std::vector<std::string> folders;
  std::string output;
  CLI::App app(
      "Compares the validations of runs, or evaluations of the same rows, with the first.");
  app.add_option("FOLDER", folders, "Folders of runs and of tlt eval.")->required();
  app.add_option("--output", output, "JSONL file of the comparisons; -: standard output.");
  if (!cli::try_parse(app, arguments)) return 0;
  std::vector<EvalTable> tables;
  for (const std::string& folder : folders)
    for (EvalTable& table : read_eval_folder(folder)) tables.push_back(std::move(table));
  TLT_CHECK_INPUT(tables.size() > 1, folders.front(),
                  " has one evaluation and nothing to compare it with; give another folder, or a "
                  "run with at least two validations");
  std::string text, lines;
  for (size_t i = 1; i < tables.size(); ++i) {
    const std::vector<Comparison> comparisons = compare(tables.front(), tables[i]);
    text += text_of_comparisons(comparisons);
    for (const Comparison& one : comparisons) lines += cli::to_line(line_of(one));
  }
  if (output != "-") fmt::print("{}", text);
  if (output.empty()) return 0;
  AtomicFile file(output);
  file.append(lines);
  file.commit();
  return 0;
}

}  // namespace

int run_eval(const cli::Arguments& arguments) {
  if (!arguments.words.empty() && std::filesystem::is_directory(arguments.words.front()))
    return compare_folders(arguments);
  EvalFlags flags;
  const std::string command =
      arguments.words.empty() ? "" : cli::shell_command(arguments, arguments.words.back());
  return cli::run_recipe(
      arguments,
      {.description =
           "Scores a model on data with several responses to each prompt: avg@k, pass@k, "
           "maj@k, best@k. With folders of runs or evaluations instead of a recipe: "
           "compares them.",
       .acknowledgement = "\ninterrupted: stops after this batch; again to stop at once\n",
       .add_flags = [&](CLI::App& app) { flags.add_to(app); },
       .use_flags = [&](run::RunOptions& options) { flags.set(options); }},
      [&](const run::RunOptions& options, const cluster::Launch& launch) {
        return evaluate(flags, command, options, launch);
      });
}

}  // namespace tlt::apps
