// tlt score: log-probabilities of given tokens, in natural logarithms at temperature 1.
//
//   in    {"tokens": [t0, t1, …]}        out   {"logprobs": […]}: entry i is log p(t(i+1) given
//                                              t0 … ti)
//         {"prompt_tokens", "tokens"}          {"logprobs": […]}: one for each of "tokens"
//         {"prompt", "response"}               {"tokens", "logprobs"}: the response's
//         {"messages"}                         {"tokens", "logprobs"}: the last assistant message's
//
// Each row may have an "id", which is copied to the output.
//
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <CLI/CLI.hpp>

#include "apps/commands.h"
#include "apps/score_rows.h"
#include "base/check.h"
#include "base/checksum.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/progress.h"
#include "cli/model_flags.h"
#include "cli/ordered_output.h"
#include "cluster/comm.h"
#include "cluster/launch.h"
#include "model/safetensors.h"
#include "model/tape.h"
#include "train/trainer.h"

namespace tlt::apps {
namespace {

struct ScoreFlags {
  cli::ModelFlags model;
  std::string input, output, logits;
  bool resume = false, raw = false, chat = false;

  void add_to(CLI::App& app) {
    model.add_to(app);
    app.add_option(
           "--input", input,
           "JSONL file. A line {\"tokens\"} gets a logprob for each token but the first; "
           "{\"prompt_tokens\", \"tokens\"}, as tlt generate writes it, for each of "
           "\"tokens\"; {\"prompt\", \"response\"} for the response's; {\"messages\"} for the "
           "last assistant message's, in the model's chat template. -: standard input.")
        ->required();
    app.add_option(
           "--output", output,
           "JSONL file, a line {\"id\"?, \"logprobs\"}, and \"tokens\" where the input has "
           "strings; replaced as a whole at the end (until then lines are in FILE.partial); "
           "-: standard output.")
        ->required();
    app.add_flag("--resume", resume,
                 "Finish an interrupted run of the same command: lines in FILE.partial are not "
                 "computed again.");
    app.add_flag("--raw", raw, "String prompts are used as they are (the default).");
    app.add_flag("--chat", chat,
                 "String prompts are user messages, rendered by the model's chat template.")
        ->excludes("--raw");
    app.add_option("--logits", logits,
                   "Safetensors file for the logits, float32: row0 [tokens, vocabulary], row1, …");
  }
};

constexpr int64_t kPackTokens = 4096;  // tokens of a pack; a longer row is a pack of its own

bool has_response(const cli::InputRow& row) { return row.response_begin < std::ssize(row.tokens); }

std::vector<train::TrainSample> samples_of(std::span<const cli::InputRow> rows) {
  std::vector<train::TrainSample> samples;
  for (const cli::InputRow& row : rows) {
    if (!has_response(row)) continue;  // {"tokens"} with a single token
    train::TrainSample& sample = samples.emplace_back();
    sample.tokens = row.tokens;
    sample.response_begin = row.response_begin;
  }
  return samples;
}

// Number of rows, from `first` on, that form a pack.
size_t pack_size(std::span<const cli::InputRow> rows, size_t first) {
  size_t count = 1;
  for (size_t tokens = rows[first].tokens.size(); first + count < rows.size(); ++count) {
    tokens += rows[first + count].tokens.size();
    if (tokens > static_cast<size_t>(kPackTokens)) break;
  }
  return count;
}

std::string line_of(const cli::InputRow& row, std::span<const float> logprobs) {
  nlohmann::ordered_json line;
  if (!row.id.is_null()) line["id"] = row.id;
  if (row.is_text) line["tokens"] = std::span(row.tokens).subspan(row.response_begin);
  line["logprobs"] = cli::numbers(logprobs);
  return cli::to_line(line);
}

// Scores the rows from output.done() on. False: interrupted.
bool write_logprobs(const model::PolicyModel& policy, const std::vector<cli::InputRow>& rows,
                    cli::OrderedOutput& output) {
  const auto comm = cluster::make_comm(cluster::Launch{}, {});
  Progress progress("score", std::ssize(rows) - output.done());
  for (size_t first = static_cast<size_t>(output.done()); first < rows.size();) {
    if (interrupted()) return false;
    const std::span<const cli::InputRow> pack =
        std::span(rows).subspan(first, pack_size(rows, first));
    const std::vector<train::TrainSample> samples = samples_of(pack);
    std::vector<std::vector<float>> logprobs;
    if (!samples.empty())
      logprobs = train::score_samples(policy, samples, {.max_tokens = kPackTokens}, *comm);
    auto next = logprobs.begin();
    for (const cli::InputRow& row : pack)
      output.add(static_cast<int64_t>(first++),
                 line_of(row, has_response(row) ? *next++ : std::vector<float>()));
    progress.advance(std::ssize(pack));
  }
  return true;
}

// Logits of one row, [T, V] float32.
at::Tensor logits_of(const model::PolicyModel& policy, const cli::InputRow& row) {
  model::Tape tape(policy, /*recompute=*/true);
  tape.add_sequence(row.tokens.data(), static_cast<int32_t>(row.tokens.size()));
  const at::Tensor& hidden = policy.forward(tape);
  at::Tensor logits =
      policy.device().empty({hidden.size(0), policy.config().vocabulary}, at::kFloat);
  policy.logits(hidden, logits);
  return logits.cpu();
}

// "row0", "row1", …; each is computed when it is written.
void write_logits(const model::PolicyModel& policy, const std::vector<cli::InputRow>& rows,
                  const std::string& path) {
  std::vector<model::TensorSource> sources;
  for (size_t i = 0; i < rows.size(); ++i)
    sources.push_back({"row" + std::to_string(i),
                       at::kFloat,
                       {std::ssize(rows[i].tokens), policy.config().vocabulary},
                       [&policy, &row = rows[i]] { return logits_of(policy, row); }});
  model::write_safetensors(path, std::move(sources));
}

// SHA-256 of the rows.
std::string digest_of(const std::vector<cli::InputRow>& rows) {
  Sha256 hash;
  for (const cli::InputRow& row : rows)
    hash.update(cli::to_line({{"id", row.id},
                              {"tokens", row.tokens},
                              {"response_begin", row.response_begin},
                              {"is_text", row.is_text}}));
  return hash.hex();
}

void check_positions(const std::vector<cli::InputRow>& rows, const model::ModelConfig& config) {
  for (const cli::InputRow& row : rows)
    TLT_CHECK_INPUT(std::ssize(row.tokens) <= config.max_positions, row.place, ": ",
                    row.tokens.size(), " tokens and the model has ", config.max_positions,
                    " positions; give fewer");
}

}  // namespace

int run_score(const cli::Arguments& arguments) {
  ScoreFlags flags;
  CLI::App app("Log-probabilities of given tokens, in natural logarithms at temperature 1.");
  flags.add_to(app);
  if (!cli::try_parse(app, arguments)) return 0;
  cli::OrderedOutput::check(flags.output, flags.resume);
  install_interrupt_handler("\ninterrupted: stops after these rows; again to stop at once\n");

  const auto policy = flags.model.load();
  const auto tokenizer = flags.model.load_tokenizer(*policy);
  const auto rows = read_score_rows(flags.input, {.tokenizer = tokenizer,
                                                  .model = flags.model.model,
                                                  .vocabulary = policy->config().vocabulary,
                                                  .wraps_texts = flags.chat});
  check_positions(rows, policy->config());
  nlohmann::ordered_json settings;
  if (!is_stream(flags.output)) {  // else there is no partial file to compare them with
    settings = flags.model.settings(*policy);
    settings["rows (SHA-256)"] = digest_of(rows);
  }
  cli::OrderedOutput output({.path = flags.output,
                             .resume = flags.resume,
                             .settings = settings,
                             .lines = std::ssize(rows),
                             .noun = "row",
                             .resume_command = cli::shell_command(arguments, "--resume")},
                            [](const auto&, int64_t number, const auto&) { return number; });
  if (!write_logprobs(*policy, rows, output)) {
    log_warning("interrupted");
    return interrupt_exit_code();
  }
  output.commit();
  if (!flags.logits.empty()) write_logits(*policy, rows, flags.logits);
  return 0;
}

}  // namespace tlt::apps
