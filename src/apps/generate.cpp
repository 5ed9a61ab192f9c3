// tlt generate: responses to the prompts of a file, in the file's order.
//
//   in    {"id": …, "prompt": text or [messages]} or {"id": …, "tokens": […]}; without an id the
//   row's number is taken out   {"id", "sample", "prompt_tokens", "tokens", "logprobs", "text",
//   "finish_reason", "target_forwards"}
//
// "text" is that of all tokens, special ones too; it is left out where the model folder has no
// tokenizer.
//
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

#include "apps/commands.h"
#include "apps/model_flags.h"
#include "apps/rows.h"
#include "base/check.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/progress.h"
#include "rollout/engine.h"

namespace tlt::apps {
namespace {

using nlohmann::json;

constexpr int kInterrupted = 130;

struct GenerateFlags {
  ModelFlags model;
  SpeculationFlags speculation{"auto"};
  rollout::SamplingOptions sampling;
  rollout::EngineOptions engine;
  std::string prompts, output;
  int64_t samples = 1;
  int64_t seed = 0;  // CLI11 would take -1 for a very large unsigned number
  bool raw = false, chat = false;

  void add_to(CLI::App& flags) {
    model.add_to(flags);
    flags
        .add_option(
            "--prompts", prompts,
            "JSONL file: {\"id\", \"prompt\": text or messages} or {\"id\", \"tokens\"} a line; -: "
            "standard input.")
        ->required();
    flags
        .add_option(
            "--output", output,
            "JSONL file for the responses, replaced as a whole at the end; -: standard output.")
        ->required();
    flags.add_option("--samples", samples, "Responses per prompt.");
    flags.add_option("--max-new-tokens", sampling.max_new_tokens, "Longest response, in tokens.");
    flags.add_option("--temperature", sampling.temperature,
                     "Divides the logits; 0: the most likely token.");
    flags.add_option("--top-k", sampling.top_k, "Only the k most likely tokens; -1: all.");
    flags.add_option("--top-p", sampling.top_p,
                     "Only the most likely tokens that together have this probability.");
    flags.add_option("--seed", seed, "Of the random numbers: same seed, same tokens.");
    flags.add_flag("--ignore-eos", sampling.ignore_eos,
                   "End-of-sequence tokens do not end a response.");
    speculation.add_to(flags);
    flags.add_option("--max-running", engine.max_running,
                     "Responses that decode at the same time.");
    flags
        .add_option("--kv-memory", engine.kv_memory_bytes,
                    "Memory for keys and values, in bytes or as 512MB, 4GB.")
        ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
        ->default_str("1GB");
    flags.add_flag("--raw", raw, "Text prompts are taken as they are (the default).");
    flags
        .add_flag("--chat", chat,
                  "Text prompts are user messages, put into the model's chat template.")
        ->excludes("--raw");
  }

  void check() {
    TLT_CHECK_INPUT(samples >= 1 && samples <= 1 << 20, "--samples is ", samples,
                    "; give a number from 1 to ", 1 << 20);
    TLT_CHECK_INPUT(seed >= 0, "--seed is ", seed, "; give a whole number from 0");
    constexpr int64_t kMostRunning = 1 << 16;
    TLT_CHECK_INPUT(engine.max_running >= 1 && engine.max_running <= kMostRunning,
                    "--max-running is ", engine.max_running, "; give a number from 1 to ",
                    kMostRunning);
    TLT_CHECK_INPUT(engine.kv_memory_bytes >= 1, "--kv-memory is ", engine.kv_memory_bytes,
                    "; give a size as 4GB");
    engine.max_batch_tokens = std::max(engine.max_batch_tokens, engine.max_running);
    sampling.check();
    speculation.check();
  }
};

// Writes responses in the order of prompts and samples, whatever order they finish in.
class OrderedOutput {
 public:
  OrderedOutput(const std::string& path, const std::vector<InputRow>& rows, int64_t samples,
                const std::optional<data::Tokenizer>& tokenizer)
      : rows_(rows), samples_(samples), tokenizer_(tokenizer), file_(path) {}

  void add(rollout::Response response) {
    waiting_.emplace(int64_t{response.prompt_id} * samples_ + response.sample, std::move(response));
    for (; !waiting_.empty() && waiting_.begin()->first == written_; ++written_) {
      file_.append(to_line(row_of(waiting_.begin()->second)));
      waiting_.erase(waiting_.begin());
    }
  }

  void commit() {
    TLT_CHECK(written_ == std::ssize(rows_) * samples_, written_, " responses written");
    file_.commit();
  }

 private:
  nlohmann::ordered_json row_of(const rollout::Response& response) const {
    const InputRow& input = rows_[response.prompt_id];
    nlohmann::ordered_json row = {{"id", input.id.is_null() ? json(response.prompt_id) : input.id},
                                  {"sample", response.sample},
                                  {"prompt_tokens", input.tokens},
                                  {"tokens", response.tokens},
                                  {"logprobs", numbers(response.logprobs)}};
    if (tokenizer_) row["text"] = tokenizer_->decode(response.tokens);
    row["finish_reason"] = rollout::to_string(response.finish);
    row["target_forwards"] = response.target_forwards;
    return row;
  }

  const std::vector<InputRow>& rows_;
  const int64_t samples_;
  const std::optional<data::Tokenizer>& tokenizer_;
  AtomicFile file_;
  std::map<int64_t, rollout::Response> waiting_;  // finished before one that stands above them
  int64_t written_ = 0;
};

void check_lengths(const std::vector<InputRow>& rows, const model::ModelConfig& config) {
  for (const InputRow& row : rows)
    TLT_CHECK_INPUT(std::ssize(row.tokens) < config.max_positions, row.place, ": the prompt has ",
                    row.tokens.size(), " tokens and the model ", config.max_positions,
                    " positions; give a shorter prompt");
}

void submit_all(rollout::Engine& engine, const GenerateFlags& flags,
                const std::vector<InputRow>& rows) {
  const auto sampling = std::make_shared<const rollout::SamplingOptions>(flags.sampling);
  for (uint32_t i = 0; i < rows.size(); ++i)
    engine.submit({.prompt_id = i,
                   .tokens = rows[i].tokens,
                   .samples = flags.samples,
                   .sampling = sampling,
                   .seed = static_cast<uint64_t>(flags.seed)});
}

// False: interrupted.
bool decode(rollout::Engine& engine, int64_t responses, OrderedOutput& output) {
  Progress progress("generate", responses);
  const Stopwatch stopwatch;
  const auto rate = [&] {
    const rollout::EngineStats stats = engine.stats();
    return fmt::format("{:.0f} tokens/s, {} running",
                       static_cast<double>(stats.tokens) / stopwatch.seconds(), stats.running);
  };
  while (!interrupted() && engine.step()) {
    std::vector<rollout::Response> finished = engine.take_finished();
    progress.advance(std::ssize(finished), rate());
    for (rollout::Response& response : finished) output.add(std::move(response));
  }
  if (interrupted()) return false;
  log_info("{} responses in {}; {}", responses, format_duration(stopwatch.seconds()), rate());
  if (const int64_t count = engine.stats().preemptions; count > 0)
    log_info("{} times a response was set back for want of memory; a larger --kv-memory is faster",
             count);
  return true;
}

void log_speculation(const rollout::SpeculationStats& stats, const rollout::EngineStats& engine) {
  if (stats.trees == 0) return;
  log_info("speculation: {:.2f} tokens a forward pass and response; {:.0f} % of {} guesses right",
           1 + static_cast<double>(stats.accepted_tokens) / static_cast<double>(stats.trees),
           100.0 * static_cast<double>(stats.accepted_tokens) /
               static_cast<double>(std::max<int64_t>(stats.drafted_tokens, 1)),
           stats.drafted_tokens);
  log_info("  in {:.0f} % of the steps; {:.2f} s of drafting beside {:.2f} s of forward passes",
           100.0 * static_cast<double>(stats.steps) / static_cast<double>(stats.decode_steps),
           stats.draft_seconds, engine.forward_seconds);
}

}  // namespace

int run_generate(const Arguments& arguments) {
  GenerateFlags flags;
  CLI::App app("Responses to the prompts of a file, in the file's order.");
  flags.add_to(app);
  if (!try_parse(app, arguments)) return 0;
  flags.check();
  install_interrupt_handler();

  const auto policy = flags.model.load();
  const auto tokenizer = flags.model.load_tokenizer(*policy);
  const auto rows = read_prompts(flags.prompts, tokenizer, flags.model.model,
                                 policy->config().vocabulary, flags.chat);
  check_lengths(rows, policy->config());
  // The tuner then measures no batch sizes that there will not be.
  const int64_t responses = std::ssize(rows) * flags.samples;
  flags.engine.max_running = std::min(flags.engine.max_running, responses);
  const auto speculation = flags.speculation.make(*policy, flags.engine);
  rollout::Engine engine(*policy, flags.engine, /*stop_text=*/nullptr, /*tap=*/nullptr,
                         speculation.get());
  submit_all(engine, flags, rows);
  OrderedOutput output(flags.output, rows, flags.samples, tokenizer);
  if (!decode(engine, responses, output)) {
    log_warning("interrupted; {} is as it was", flags.output);
    return kInterrupted;
  }
  output.commit();
  if (speculation) log_speculation(speculation->stats(), engine.stats());
  return 0;
}

}  // namespace tlt::apps
