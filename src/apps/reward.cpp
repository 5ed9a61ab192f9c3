// tlt reward: scores given responses with the reward of a recipe, without a model.
//
//   in    {"response", "prompt"?, "ground_truth"? or "reward_model"?, "data_source"?,
//         "extra_info"?, "response_tokens"? or "tokens"?, "truncated"?}, or rows of a run's
//         rollouts/ and validation/
//   out   {"score", "seconds", "parts"?, "error"?} in input order, with the id of its row
//
// "parts" are additional values of a reward, such as each function's score of a weighted sum. A row
// that fails has "error", and 0 as its score.
//
// SPDX-License-Identifier: Apache-2.0
#include "reward/reward.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "apps/commands.h"
#include "base/check.h"
#include "base/interrupt.h"
#include "base/json_lines.h"
#include "base/log.h"
#include "base/sentence.h"
#include "cli/recipe.h"
#include "cli/rows.h"
#include "data/row_fields.h"
#include "data/rows.h"
#include "reward/reward_pool.h"

namespace tlt::apps {
namespace {

using Json = nlohmann::ordered_json;

struct Sample {
  Json row;
  std::string place;  // "rows.jsonl:17"
  reward::RewardJob job;
};

constexpr size_t kBatchRows = 256;  // rows scored before the next are read

// Fields that identify a row; copied to the output.
constexpr const char* kIdentity[] = {"id", "step", "prompt_id", "sample"};

// Makes the reward's input from a row.
class SampleReader {
 public:
  SampleReader(const data::DataOptions& options, const reward::RewardNeeds& needs)
      : options_(options), needs_(needs) {}

  // InputError: no response, or a field that the reward needs is missing.
  reward::RewardJob read(const Json& row, const std::string& place) const {
    // Rows of a dump have the reward's input under other names.
    const bool is_dump = data::find_field(row, "gts") && data::find_field(row, "output");
    reward::RewardJob job;
    job.response = response_of(row, place, is_dump);
    job.raw_response = is_dump ? data::text_of(row["output"]) : job.response;
    job.ground_truth = is_dump ? data::text_of(row["gts"]) : ground_truth_of(row, place);
    job.data_source = data_source_of(row, place);
    job.extra_info = std::make_shared<const Json>(extra_info_of(row, is_dump));
    const Json* prompt = data::find_field(row, is_dump ? "prompt" : options_.prompt_key);
    if (prompt != nullptr && prompt->is_array())
      job.messages = std::make_shared<const Json>(*prompt);
    if (const Json* text = is_dump ? data::find_field(row, "input") : prompt;
        text != nullptr && text->is_string())
      job.prompt = text->get<std::string>();
    job.truncated =
        row.value("truncated", Json()) == true || row.value("finish_reason", Json()) == "length";
    read_tokens(row, place, job);
    job.max_response_tokens = options_.max_response_length;
    return job;
  }

 private:
  std::string response_of(const Json& row, const std::string& place, bool is_dump) const {
    const char* key = is_dump ? "response" : options_.response_key.c_str();
    if (is_dump && data::find_field(row, key) == nullptr) key = "output";
    const Json& response = data::require_field(row, key, place, "data.response_key");
    TLT_CHECK_INPUT(response.is_string(), place, ": \"", key, "\" is not a string");
    return response.get<std::string>();
  }

  // A row without the column that the recipe names may have the answer under the default name.
  std::string ground_truth_of(const Json& row, const std::string& place) const {
    const bool has_column = !data::answer_field(row, options_).empty();
    return data::ground_truth_of(row, has_column ? options_ : data::DataOptions(), place,
                                 needs_.ground_truth);
  }

  std::string data_source_of(const Json& row, const std::string& place) const {
    data::DataOptions options = options_;
    if (data::source_field(row, options_).empty())
      options.reward_fn_key = data::DataOptions().reward_fn_key;
    return data::data_source_of(row, options, place, needs_.data_source);
  }

  Json extra_info_of(const Json& row, bool is_dump) const {
    if (is_dump) return row.value("extra_info", Json::object());
    Json columns = row;
    columns.erase(options_.response_key);
    return data::extra_info_of(columns, options_);
  }

  void read_tokens(const Json& row, const std::string& place, reward::RewardJob& job) const {
    const Json* count = data::find_field(row, "response_tokens");
    const Json* tokens = data::find_field(row, "tokens");
    TLT_CHECK_INPUT(count == nullptr || count->is_number_integer(), place,
                    ": \"response_tokens\" is not an integer");
    if (tokens != nullptr) {
      const bool is_list = tokens->is_array() && std::ranges::all_of(*tokens, [](const Json& id) {
                             return id.is_number_integer() && id >= 0 && id <= INT32_MAX;
                           });
      TLT_CHECK_INPUT(is_list, place, ": \"tokens\" is not a list of token ids");
      job.response_ids = tokens->get<std::vector<int32_t>>();
    }
    job.response_tokens = count != nullptr ? count->get<int64_t>() : std::ssize(job.response_ids);
    TLT_CHECK_INPUT(!needs_.response_tokens || count != nullptr || tokens != nullptr, place,
                    ": no \"response_tokens\"; the reward length needs it");
  }

  const data::DataOptions& options_;
  const reward::RewardNeeds needs_;
};

// Scores rows and writes the results in input order.
class Scorer {
 public:
  Scorer(const reward::RewardOptions& options, std::shared_ptr<const reward::Reward> reward,
         const std::string& output)
      : reward_(std::move(reward)), pool_(reward_, options), output_(output) {}

  void score(std::vector<Sample> samples) {
    std::vector<reward::ScoredSample> scores(samples.size());
    for (size_t i = 0; i < samples.size(); ++i) {
      try {
        reward_->check_row(samples[i].job.input());
        pool_.submit(i, std::move(samples[i].job));
      } catch (const InputError& error) {
        scores[i].status = reward::RewardStatus::kFailed;
        scores[i].error = error.what();
      }
    }
    for (reward::ScoredSample& score : pool_.wait_all()) scores[score.id] = std::move(score);
    for (size_t i = 0; i < samples.size(); ++i) write(samples[i], scores[i]);
  }

  // Error: no row has a score.
  void finish() {
    TLT_CHECK_INPUT(scored_ + failed_ > 0,
                    "no rows; give one JSON object with a response per line");
    output_.commit();
    if (scored_ == 0)
      throw Error("none of the " + counted(failed_, "row") + " has a score; " + first_error_);
    if (failed_ > 0) log_warning("{}", first_error_);
    log_info("{} scored, mean score {:.4g}; {} failed", counted(scored_, "row"),
             sum_ / static_cast<double>(scored_), failed_);
  }

 private:
  void write(const Sample& sample, const reward::ScoredSample& score) {
    Json answer = Json::object();
    for (const char* name : kIdentity)
      if (sample.row.contains(name)) answer[name] = sample.row[name];
    answer["score"] = score.result.score;
    answer["seconds"] = score.seconds;
    if (!score.result.extras.empty()) answer["parts"] = score.result.extras;
    if (score.status == reward::RewardStatus::kScored) {
      ++scored_;
      sum_ += score.result.score;
    } else {
      answer["error"] = score.error;
      if (failed_++ == 0) first_error_ = sample.place + ": " + score.error;
    }
    output_.append(cli::to_line(answer));
  }

  const std::shared_ptr<const reward::Reward> reward_;
  reward::RewardPool pool_;
  AtomicFile output_;
  int64_t scored_ = 0, failed_ = 0;
  double sum_ = 0;
  std::string first_error_;
};

}  // namespace

int run_reward(const cli::Arguments& arguments) {
  cli::RecipeWords words;
  std::string input, output;
  CLI::App app(
      "Scores given responses with the reward of a recipe, without a model: to try a reward, or to "
      "regrade the rollouts of a run. Options besides reward.* and data.* are not used.");
  words.add_to(app);
  app.add_option("--input", input,
                 "JSONL file: {\"response\", \"prompt\", \"ground_truth\", \"data_source\", "
                 "\"extra_info\"} per line, with at least the fields that the reward reads, or a "
                 "run's rollouts/000001.jsonl; -: standard input.")
      ->required();
  app.add_option("--output", output,
                 "JSONL file: {\"score\", \"seconds\", \"parts\", \"error\"} per line; -: standard "
                 "output.")
      ->required();
  if (!cli::try_parse(app, arguments)) return 0;
  const run::RunOptions options = words.read();
  options.data.check();
  install_interrupt_handler();
  const std::shared_ptr<const reward::Reward> reward = reward::make_reward(options.reward);
  reward->start();

  const SampleReader reader(options.data, reward->needs());
  JsonLinesReader lines(open_input(input));
  Scorer scorer(options.reward, reward, output);
  std::vector<Sample> samples;
  for (Json row; !interrupted() && lines.try_next(row);) {
    TLT_CHECK_INPUT(row.is_object(), lines.place(), ": a row must be a JSON object");
    reward::RewardJob job = reader.read(row, lines.place());
    samples.push_back({std::move(row), lines.place(), std::move(job)});
    if (samples.size() == kBatchRows) scorer.score(std::exchange(samples, {}));
  }
  if (!interrupted()) scorer.score(std::move(samples));
  if (interrupted()) {
    log_warning("interrupted{}", is_stream(output) ? "" : "; " + output + " was not modified");
    return interrupt_exit_code();
  }
  scorer.finish();
  return 0;
}

}  // namespace tlt::apps
