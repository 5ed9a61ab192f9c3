// tlt score: log-probabilities of given tokens, in natural logarithms at temperature 1.
//
//   in    {"tokens": [t0, t1, …]}, perhaps with an "id", which comes back
//   out   {"logprobs": […]}: entry i is log p(t(i+1) given t0 … ti)
//
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <CLI/CLI.hpp>

#include "apps/commands.h"
#include "apps/model_flags.h"
#include "apps/rows.h"
#include "base/check.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "cluster/comm.h"
#include "cluster/launch.h"
#include "model/safetensors.h"
#include "model/tape.h"
#include "train/trainer.h"

namespace tlt::apps {
namespace {

constexpr int64_t kPackTokens = 4096;  // go through the model at once; a longer row goes alone

std::vector<train::TrainSample> samples_of(std::span<const InputRow> rows) {
  std::vector<train::TrainSample> samples;
  for (const InputRow& row : rows) {
    if (row.tokens.size() < 2) continue;
    train::TrainSample& sample = samples.emplace_back();
    sample.tokens = row.tokens;
    sample.response_begin = 1;
  }
  return samples;
}

// How many of the rows from `first` on are a pack.
size_t pack_size(std::span<const InputRow> rows, size_t first) {
  size_t count = 1;
  for (size_t tokens = rows[first].tokens.size(); first + count < rows.size(); ++count) {
    tokens += rows[first + count].tokens.size();
    if (tokens > static_cast<size_t>(kPackTokens)) break;
  }
  return count;
}

void append_pack(AtomicFile& file, std::span<const InputRow> rows,
                 const std::vector<std::vector<float>>& logprobs) {
  auto next = logprobs.begin();
  for (const InputRow& row : rows) {
    nlohmann::ordered_json line;
    if (!row.id.is_null()) line["id"] = row.id;
    line["logprobs"] = row.tokens.size() > 1 ? numbers(*next++) : nlohmann::ordered_json::array();
    file.append(to_line(line));
  }
}

void write_logprobs(const model::PolicyModel& policy, const std::vector<InputRow>& rows,
                    const std::string& path) {
  const auto comm = cluster::make_comm(cluster::Launch{}, {});
  Progress progress("score", std::ssize(rows));
  AtomicFile file(path);
  for (size_t first = 0; first < rows.size();) {
    const std::span<const InputRow> pack = std::span(rows).subspan(first, pack_size(rows, first));
    const std::vector<train::TrainSample> samples = samples_of(pack);
    std::vector<std::vector<float>> logprobs;
    if (!samples.empty())
      logprobs = train::score_samples(policy, samples, /*temperature=*/1.0, kPackTokens, *comm);
    append_pack(file, pack, logprobs);
    progress.advance(std::ssize(pack));
    first += pack.size();
  }
  file.commit();
}

// [T, V] float32 of one row.
at::Tensor logits_of(const model::PolicyModel& policy, const InputRow& row) {
  model::Tape tape(policy, /*recompute=*/true);
  tape.add_sequence(row.tokens.data(), static_cast<int32_t>(row.tokens.size()));
  const at::Tensor& hidden = policy.forward(tape);
  at::Tensor logits =
      policy.device().empty({hidden.size(0), policy.config().vocabulary}, at::kFloat);
  policy.logits(hidden, logits);
  return logits.cpu();
}

// "row0", "row1", …; computed one at a time, as they are written.
void write_logits(const model::PolicyModel& policy, const std::vector<InputRow>& rows,
                  const std::string& path) {
  std::vector<model::TensorSource> sources;
  for (size_t i = 0; i < rows.size(); ++i)
    sources.push_back({"row" + std::to_string(i),
                       at::kFloat,
                       {std::ssize(rows[i].tokens), policy.config().vocabulary},
                       [&policy, &row = rows[i]] { return logits_of(policy, row); }});
  model::write_safetensors(path, std::move(sources));
}

void check_positions(const std::vector<InputRow>& rows, const model::ModelConfig& config) {
  for (const InputRow& row : rows)
    TLT_CHECK_INPUT(std::ssize(row.tokens) <= config.max_positions, row.place, ": ",
                    row.tokens.size(), " tokens and the model has ", config.max_positions,
                    " positions; give fewer");
}

}  // namespace

int run_score(const Arguments& arguments) {
  ModelFlags model;
  std::string input, output, logits;
  CLI::App app("Log-probabilities of the tokens of each row: of token i + 1 given tokens 0 to i.");
  model.add_to(app);
  app.add_option("--input", input, "JSONL file: {\"tokens\"} a line.")->required();
  app.add_option("--output", output, "JSONL file: {\"logprobs\"} a line.")->required();
  app.add_option("--logits", logits,
                 "Safetensors file for the logits, float32: row0 [tokens, vocabulary], row1, …");
  if (!try_parse(app, arguments)) return 0;

  const auto policy = model.load();
  const auto rows = read_token_rows(input, policy->config().vocabulary);
  check_positions(rows, policy->config());
  write_logprobs(*policy, rows, output);
  if (!logits.empty()) write_logits(*policy, rows, logits);
  return 0;
}

}  // namespace tlt::apps
