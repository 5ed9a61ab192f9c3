// SPDX-License-Identifier: Apache-2.0
#include "simulate/workload.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numbers>
#include <utility>

#include "base/check.h"
#include "base/json_lines.h"
#include "base/random.h"
#include "data/data_files.h"
#include "data/length_trace.h"

namespace tlt::simulate {
namespace {

constexpr double kScoreOfP99 = 2.3263478740408408;
constexpr int kQuantiles = 10000;
constexpr double kBytesPerToken = 4;     // of English text, as OpenAI's help centre has it
constexpr uint32_t kOfGroup = 1u << 31;  // in place of a sample

// The share of a normal distribution above the score.
double share_above(double score) { return 0.5 * std::erfc(score / std::numbers::sqrt2); }

// Tokens of a response; 0: the row is damaged. A row of verl has its text only.
double response_tokens(const nlohmann::json& row) {
  if (!row.is_object()) return 0;
  const auto tokens = row.find("response_tokens"), output = row.find("output");
  if (tokens != row.end() && tokens->is_number_integer()) return tokens->get<double>();
  if (tokens != row.end() || output == row.end() || !output->is_string()) return 0;
  return std::ceil(static_cast<double>(output->get_ref<const std::string&>().size()) /
                   kBytesPerToken);
}

std::optional<double> score_of(const nlohmann::json& row) {
  const auto score = row.find("score");
  if (score == row.end() || !score->is_number()) return std::nullopt;
  return score->get<double>();
}

std::vector<RecordedResponse> read_rollouts(const std::string& path) {
  std::vector<RecordedResponse> responses;
  JsonLinesReader reader(path);
  for (nlohmann::json row; reader.try_next(row);) {
    const double tokens = response_tokens(row);
    TLT_CHECK_INPUT(tokens > 0, reader.place(),
                    ": neither response_tokens above 0 nor verl's output; give a file of a run's "
                    "folder rollouts/, or of verl's trainer.rollout_data_dir");
    responses.push_back({tokens, score_of(row)});
  }
  TLT_CHECK_INPUT(!responses.empty(), path,
                  ": no responses; give a file of a run's folder rollouts/");
  return responses;
}

std::vector<std::vector<RecordedResponse>> read_steps(const std::string& folder,
                                                      const SimulateOptions& options) {
  std::vector<std::vector<RecordedResponse>> steps;
  for (const std::string& file : data::find_step_files(folder)) {
    steps.push_back(read_rollouts(file));
    TLT_CHECK_INPUT(std::ssize(steps.back()) == options.train_batch_size * options.n, file, " has ",
                    steps.back().size(),
                    " responses, not train_batch_size=", options.train_batch_size,
                    " times n=", options.n,
                    "; give both as in that run, or a single file as a distribution of lengths");
  }
  return steps;
}

std::vector<double> read_trace(const std::string& path) {
  const data::LengthTrace trace = data::LengthTrace::read(path);
  std::vector<double> lengths;
  for (int i = 0; i < kQuantiles; ++i)
    lengths.push_back(static_cast<double>(trace.quantile((i + 0.5) / kQuantiles)));
  return lengths;
}

}  // namespace

Workload::Workload(const SimulateOptions& options)
    : correlation_(options.length_correlation),
      most_(options.max_response_length),
      seed_(static_cast<uint64_t>(options.seed)),
      samples_(options.n) {
  const std::string& text = options.lengths;
  const size_t colon = std::min(text.find(':'), text.size());
  const std::string kind = text.substr(0, colon),
                    rest = text.substr(std::min(colon + 1, text.size()));
  if (kind == "rollouts" && std::filesystem::is_directory(rest)) {
    kind_ = Kind::kReplay;
    steps_ = read_steps(rest, options);
  } else if (kind == "rollouts") {
    for (const RecordedResponse& response : read_rollouts(rest)) table_.push_back(response.tokens);
    std::ranges::sort(table_);
  } else if (kind == "servegen") {
    table_ = read_trace(rest);
  } else {
    TLT_CHECK_INPUT(kind == "lognormal" || kind == "pareto", "lengths is \"", text,
                    "\"; give lognormal:MEDIAN,P99, pareto:MEDIAN,P99, rollouts:PATH or "
                    "servegen:PATH");
    kind_ = kind == "pareto" ? Kind::kPareto : Kind::kLognormal;
    read_parameters(rest);
  }
  if (!options.bench_suffix.empty()) read_tokens(options.bench_suffix);
}

void Workload::read_parameters(const std::string& text) {
  double p99 = 0;
  const char* const end = text.data() + text.size();
  std::from_chars_result read = std::from_chars(text.data(), end, median_);
  const bool has_two = read.ec == std::errc() && read.ptr != end && *read.ptr == ',';
  if (has_two) read = std::from_chars(read.ptr + 1, end, p99);
  TLT_CHECK_INPUT(has_two && read.ec == std::errc() && read.ptr == end && median_ >= 1 &&
                      p99 >= median_ && p99 <= 1e9,
                  "lengths has \"", text,
                  "\"; give the median and a 99th percentile that is not smaller, as 2000,20000");
  const double ratio = std::log(p99 / median_);
  // Pareto: quantile = scale x (1 - share)^(-shape), so p99 / median = 50^shape.
  shape_ = kind_ == Kind::kLognormal ? ratio / kScoreOfP99 : ratio / std::log(50.0);
}

double Workload::at(double score) const {
  switch (kind_) {
    case Kind::kLognormal:
      return median_ * std::exp(shape_ * score);
    case Kind::kPareto:
      return median_ * std::pow(2 * share_above(score), -shape_);
    case Kind::kTable:
    case Kind::kReplay:
      break;
  }
  const auto size = static_cast<double>(table_.size());
  return table_[static_cast<size_t>(std::min((1 - share_above(score)) * size, size - 1))];
}

// A response is as long as its tokens: verl's dumps do not count them.
void Workload::read_tokens(const std::string& path) {
  TLT_CHECK_INPUT(kind_ == Kind::kReplay,
                  "bench_suffix has the tokens of a run's responses; give the folder of these, as "
                  "lengths=rollouts:runs/a/rollouts");
  tokens_ = RecordedTokens(path);
  const size_t responses = steps_.size() * steps_.front().size();
  TLT_CHECK_INPUT(tokens_.responses().size() == responses, path, " has the tokens of ",
                  tokens_.responses().size(), " responses, and lengths has ", responses,
                  "; run tlt bench suffix with the folder of lengths");
  size_t response = 0;
  for (std::vector<RecordedResponse>& step : steps_)
    for (RecordedResponse& recorded : step)
      recorded.tokens = static_cast<double>(tokens_.responses()[response++].tokens.size());
}

const ResponseTokens* Workload::tokens(int64_t step, int64_t prompt, int64_t sample) const {
  if (tokens_.is_empty()) return nullptr;
  return &tokens_.responses()[replayed_step(step) * steps_.front().size() +
                              replayed_response(prompt, sample)];
}

bool Workload::has_gradient(int64_t step, int64_t prompt) const {
  if (kind_ != Kind::kReplay || samples_ == 1) return true;
  const auto group = std::span(steps_[replayed_step(step)])
                         .subspan(replayed_response(prompt, 0), static_cast<size_t>(samples_));
  return std::ranges::any_of(group, [&](const RecordedResponse& response) {
    return !response.score || response.score != group.front().score;
  });
}

int64_t Workload::length(int64_t step, int64_t prompt, int64_t sample) const {
  const auto limited = [&](double tokens) {
    return std::llround(std::clamp(tokens, 1.0, static_cast<double>(most_)));
  };
  if (kind_ == Kind::kReplay)
    return limited(steps_[replayed_step(step)][replayed_response(prompt, sample)].tokens);
  const auto score = [&](uint32_t of) {
    return RandomStream(seed_, {.step = static_cast<uint32_t>(step),
                                .prompt = static_cast<uint32_t>(prompt),
                                .sample = of})
        .normal();
  };
  const double z = std::sqrt(correlation_) * score(kOfGroup) +
                   std::sqrt(1 - correlation_) * score(static_cast<uint32_t>(sample));
  return limited(at(z));
}

}  // namespace tlt::simulate
