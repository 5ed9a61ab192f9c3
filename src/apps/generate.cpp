// tlt generate: responses to prompts, in the order of the prompts.
//
//   in    {"id"?, "prompt": string or [messages]} or {"id"?, "tokens": […]}
//   out   {"id", "sample", "prompt_tokens", "tokens", "logprobs", "text", "finish_reason",
//         "target_forwards"}
//
// The uniforms of a row depend on its id, so its responses do not depend on its position in the
// file. A row without an id has its row number as id. "text" includes special tokens; it is left
// out if the model folder has no tokenizer. Without --output only the text is printed.
//
// With --tensor-parallel-size the command runs in as many workers; the first one reads, decodes and
// writes, and the others compute their part of each pass.
//
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <unordered_map>

#include "apps/commands.h"
#include "apps/generation_workers.h"
#include "base/check.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/sentence.h"
#include "cli/generation_flags.h"
#include "cli/ordered_output.h"
#include "cli/recipe.h"
#include "cli/rows.h"
#include "model/tensor_parallel.h"
#include "rollout/engine.h"

namespace tlt::apps {
namespace {

using nlohmann::json;

constexpr double kShortSeconds = 10;  // reported with a decimal

struct GenerateFlags : cli::GenerationFlags {
  std::vector<std::string> texts;
  std::string prompts, output;  // output empty: print the text
  int64_t samples = 1, tensor_parallel_size = 1;
  bool resume = false, raw = false, chat = false;

  void add_to(CLI::App& flags) {
    model.add_to(flags);
    flags.add_option("--prompts", prompts,
                     "JSONL file, a line {\"id\", \"prompt\": string or messages} or {\"id\", "
                     "\"tokens\"}; -: standard input; countdown:seed=7,size=64: problems of the "
                     "demo.");
    flags
        .add_option("--prompt", texts,
                    "A prompt, instead of --prompts; may be given several times.")
        ->allow_extra_args(false)
        ->excludes("--prompts");
    flags.add_option("--output", output,
                     "JSONL file for tokens, logprobs and text, replaced as a whole at the end "
                     "(until then they are in FILE.partial); -: standard output. Without --output "
                     "only the text is printed.");
    flags.add_flag(
        "--resume", resume,
        "Finish an interrupted run of the same command: responses in FILE.partial are not "
        "computed again.");
    flags.add_option("--samples", samples, "Responses per prompt.");
    flags.add_flag("--raw", raw, "String prompts are used as they are (the default).");
    flags
        .add_flag("--chat", chat,
                  "String prompts are user messages, rendered by the model's chat template.")
        ->excludes("--raw");
    cli::GenerationFlags::add_to(flags);
    speculation.defers_measuring = true;
    flags.add_option("--max-running", engine.max_running,
                     "Maximum number of responses decoded together.");
    flags.add_option(kTensorParallel, tensor_parallel_size,
                     "Workers that decode together, each with its part of the model and the KV "
                     "cache: 1, 2, 4 or 8. Started on this machine, unless a launcher (torchrun, "
                     "mpirun, srun) has started them.");
  }

  void check() {
    cli::GenerationFlags::check();
    model::check_tensor_parallel_size(tensor_parallel_size, kTensorParallel);
    TLT_CHECK_INPUT(tensor_parallel_size == 1 || model.device == "cpu", kTensorParallel, " is ",
                    tensor_parallel_size, " and --device ", model.device,
                    "; only workers on the CPU decode together so far: give --device cpu");
    TLT_CHECK_INPUT(!prompts.empty() || !texts.empty(),
                    "no prompts; give a file with --prompts or a string with --prompt");
    TLT_CHECK_INPUT(samples >= 1 && samples <= 1 << 20, "--samples is ", samples,
                    "; give a number from 1 to ", 1 << 20);
    constexpr int64_t kMostRunning = 1 << 16;
    TLT_CHECK_INPUT(engine.max_running >= 1 && engine.max_running <= kMostRunning,
                    "--max-running is ", engine.max_running, "; give a number from 1 to ",
                    kMostRunning);
    engine.max_batch_tokens = std::max(engine.max_batch_tokens, engine.max_running);
    cli::OrderedOutput::check(output_path(), resume);
  }

  std::string output_path() const { return output.empty() ? "-" : output; }
};

// The prompts, each with its id and the key of its uniforms.
class Prompts {
 public:
  struct Prompt {
    cli::InputRow row;
    uint64_t random_key;
  };

  explicit Prompts(std::vector<cli::InputRow> rows) {
    for (cli::InputRow& row : rows) {
      const auto number = static_cast<uint64_t>(prompts_.size());
      const uint64_t key = row.id.is_null() ? number : key_of(row.id);
      if (row.id.is_null()) row.id = number;
      const auto [first, is_new] = by_id_.emplace(row.id.dump(), prompts_.size());
      TLT_CHECK_INPUT(is_new, row.place, ": the id ", row.id.dump(), " is also that of ",
                      prompts_[first->second].row.place,
                      "; give each row its own id (without one it is the row number, from 0)");
      prompts_.push_back({std::move(row), key});
    }
  }

  int64_t size() const { return std::ssize(prompts_); }
  const Prompt& operator[](int64_t index) const { return prompts_[static_cast<size_t>(index)]; }

  // nullopt: no prompt has this id.
  std::optional<int64_t> find(const json& id) const {
    const auto found = by_id_.find(id.dump());
    if (found == by_id_.end()) return std::nullopt;
    return static_cast<int64_t>(found->second);
  }

 private:
  // 64 bits of a hash: a collision among a million ids has a probability of 3e-8, and only makes
  // the responses of two prompts correlated.
  static uint64_t key_of(const json& id) {
    return std::stoull(sha256(id.dump()).substr(0, 16), nullptr, 16);
  }

  std::vector<Prompt> prompts_;
  std::unordered_map<std::string, size_t> by_id_;  // by the JSON of the id
};

Prompts read_all(const GenerateFlags& flags, const model::ModelConfig& config,
                 const cli::PromptFormat& format) {
  std::vector<cli::InputRow> rows;
  if (flags.texts.empty()) {
    rows = cli::read_prompts(flags.prompts, format);
  } else {
    cli::PromptEncoder encoder(format);
    for (const std::string& text : flags.texts) {
      cli::InputRow& row = rows.emplace_back();
      row.place = "--prompt " + std::to_string(rows.size());
      row.tokens = encoder.encode({{"prompt", text}}, row.place);
    }
  }
  for (const cli::InputRow& row : rows)
    TLT_CHECK_INPUT(std::ssize(row.tokens) < config.max_positions, row.place, ": the prompt has ",
                    row.tokens.size(), " tokens and the model ", config.max_positions,
                    " positions; give a shorter prompt");
  return Prompts(std::move(rows));
}

// What a response depends on besides its prompt: the header of a partial file, and what workers
// compare. Null where there is neither, as the files of the model are read for it.
nlohmann::ordered_json settings_of(const GenerateFlags& flags, const model::PolicyModel& policy) {
  if (is_stream(flags.output_path()) && flags.tensor_parallel_size == 1) return nullptr;
  const rollout::SamplingOptions& sampling = flags.sampling;
  nlohmann::ordered_json settings = flags.model.settings(policy);
  settings.update({{"--samples", flags.samples},
                   {"--max-new-tokens", sampling.max_new_tokens},
                   {"--temperature", sampling.temperature},
                   {"--top-k", sampling.top_k},
                   {"--top-p", sampling.top_p},
                   {"--seed", flags.seed},
                   {"--ignore-eos", sampling.ignore_eos},
                   {"--accept-rule", flags.speculation.accept_rule},
                   {"--accept-threshold-single", flags.speculation.accept_threshold_single},
                   {"--accept-threshold-acc", flags.speculation.accept_threshold_acc}});
  if (flags.tensor_parallel_size > 1) settings[kTensorParallel] = flags.tensor_parallel_size;
  // By that rule the tokens depend on what is drafted.
  if (flags.speculation.accept_rule == "target_only")
    settings.update({{"--speculation", flags.speculation.speculation},
                     {"--drafter", flags.speculation.drafter},
                     {"--strategy", flags.speculation.strategy}});
  return settings;
}

// Decodes the responses that the output lacks.
class Generation {
 public:
  Generation(const GenerateFlags& flags, const Prompts& prompts,
             const std::optional<tokenizer::Tokenizer>& tokenizer, cli::OrderedOutput& output)
      : flags_(flags), prompts_(prompts), tokenizer_(tokenizer), output_(output) {}

  static int64_t place_of(const GenerateFlags& flags, const Prompts& prompts, const json& line,
                          const std::string& where) {
    const auto index = prompts.find(line.value("id", json()));
    const json sample = line.value("sample", json());
    TLT_CHECK_INPUT(index && sample.is_number_integer() && sample >= 0 && sample < flags.samples &&
                        line.value("prompt_tokens", json()) == json(prompts[*index].row.tokens),
                    where, ": a response to a prompt with the id ", line.value("id", json()).dump(),
                    " that is not among the prompts; give the same prompts again, or delete the "
                    "partial file to start again");
    return *index * flags.samples + sample.get<int64_t>();
  }

  // False: interrupted. `stopwatch` started before the costs of speculation were measured.
  bool run(rollout::Engine& engine, const Stopwatch& stopwatch) {
    submit(engine);
    const int64_t responses = prompts_.size() * flags_.samples, before = output_.done();
    Progress progress("generate", responses - before);
    const auto rate = [&] {
      const rollout::EngineStats stats = engine.stats();
      return fmt::format("{:.0f} tokens/s, {} running",
                         static_cast<double>(stats.tokens) / stopwatch.seconds(), stats.running);
    };
    while (!interrupted() && engine.step()) {
      const std::vector<rollout::Response> finished = engine.take_finished();
      progress.advance(std::ssize(finished), rate());
      for (const rollout::Response& response : finished) write(response);
    }
    if (output_.done() < responses) return false;
    const double seconds = stopwatch.seconds();
    log_info("{} in {}; {}", counted(responses - before, "response"),
             seconds < kShortSeconds ? fmt::format("{:.1f} s", seconds) : format_duration(seconds),
             rate());
    if (const int64_t count = engine.stats().preemptions; count > 0)
      log_info("{} preemptions: the KV cache was full; raise --kv-memory", count);
    return true;
  }

 private:
  // A group of consecutive samples that the output lacks.
  struct Part {
    int64_t prompt = 0, first_sample = 0, samples = 0;
  };

  void submit(rollout::Engine& engine) {
    for (int64_t prompt = 0; prompt < prompts_.size(); ++prompt)
      for (int64_t sample = 0; sample < flags_.samples; ++sample) {
        if (output_.has(prompt * flags_.samples + sample)) continue;
        const bool continues = !parts_.empty() && parts_.back().prompt == prompt &&
                               parts_.back().first_sample + parts_.back().samples == sample;
        if (!continues) parts_.push_back({prompt, sample});
        ++parts_.back().samples;
      }
    const auto sampling = std::make_shared<const rollout::SamplingOptions>(flags_.sampling);
    for (size_t i = 0; i < parts_.size(); ++i) {
      const Prompts::Prompt& prompt = prompts_[parts_[i].prompt];
      engine.submit({.prompt_id = static_cast<uint32_t>(i),
                     .tokens = prompt.row.tokens,
                     .samples = parts_[i].samples,
                     .first_sample = parts_[i].first_sample,
                     .sampling = sampling,
                     .seed = static_cast<uint64_t>(flags_.seed),
                     .random_key = prompt.random_key});
    }
  }

  void write(const rollout::Response& response) {
    const int64_t prompt = parts_[response.prompt_id].prompt;
    const cli::InputRow& row = prompts_[prompt].row;
    output_.add(prompt * flags_.samples + response.sample,
                flags_.output.empty() ? text_of(row, response) : line_of(row, response));
  }

  std::string line_of(const cli::InputRow& row, const rollout::Response& response) const {
    nlohmann::ordered_json line = {{"id", row.id},
                                   {"sample", response.sample},
                                   {"prompt_tokens", row.tokens},
                                   {"tokens", response.tokens},
                                   {"logprobs", cli::numbers(response.logprobs)}};
    if (tokenizer_) line["text"] = tokenizer_->decode(response.tokens);
    line["finish_reason"] = rollout::to_string(response.finish);
    line["target_forwards"] = response.target_forwards;
    return cli::to_line(line);
  }

  // Text for the terminal, without the end-of-sequence token; if there are several responses, with
  // a line that has id and sample.
  std::string text_of(const cli::InputRow& row, const rollout::Response& response) const {
    std::span<const int32_t> tokens = response.tokens;
    if (response.finish == rollout::FinishReason::kStop) tokens = tokens.first(tokens.size() - 1);
    const std::string text = tokenizer_->decode(tokens) + "\n";
    if (prompts_.size() * flags_.samples == 1) return text;
    return fmt::format("--- id {}, sample {}\n{}", row.id.dump(), response.sample, text);
  }

  const GenerateFlags& flags_;
  const Prompts& prompts_;
  const std::optional<tokenizer::Tokenizer>& tokenizer_;
  cli::OrderedOutput& output_;
  std::vector<Part> parts_;  // indexed by the engine's prompt id
};

// Borrows flags and prompts.
cli::OrderedOutput open_output(const GenerateFlags& flags, const Prompts& prompts,
                               const nlohmann::ordered_json& settings,
                               const cli::Arguments& arguments) {
  return cli::OrderedOutput(
      {.path = flags.output_path(),
       .resume = flags.resume,
       .settings = settings,
       .lines = prompts.size() * flags.samples,
       .resume_command = cli::shell_command(arguments, "--resume")},
      [&flags, &prompts](const json& line, int64_t /*number*/, const std::string& where) {
        return Generation::place_of(flags, prompts, line, where);
      });
}

void log_speculation(const rollout::SpeculationStats& stats, const rollout::EngineStats& engine) {
  if (stats.trees == 0) return;
  const auto share = [](int64_t part, int64_t whole) {
    return 100.0 * static_cast<double>(part) / static_cast<double>(std::max<int64_t>(whole, 1));
  };
  log_info(
      "speculative decoding: mean acceptance length {:.2f}, acceptance rate {:.0f} % ({}/{} draft "
      "tokens), active in {:.0f} % of decode steps; draft {:.2f} s, target {:.2f} s",
      1 + static_cast<double>(stats.accepted_tokens) / static_cast<double>(stats.trees),
      share(stats.accepted_tokens, stats.drafted_tokens), stats.accepted_tokens,
      stats.drafted_tokens, share(stats.steps, stats.decode_steps), stats.draft_seconds,
      engine.forward_seconds);
}

}  // namespace

int run_generate(const cli::Arguments& arguments) {
  GenerateFlags flags;
  CLI::App app("Responses to prompts, in the order of the prompts.");
  flags.add_to(app);
  if (!cli::try_parse(app, arguments)) return 0;
  flags.check();
  GenerationWorkers workers(flags.tensor_parallel_size);
  if (workers.are_to_start()) return cli::start_workers(flags.tensor_parallel_size, arguments);
  workers.share_cores(flags.model);
  install_interrupt_handler();

  const auto policy = flags.model.load();
  const auto tokenizer = flags.model.load_tokenizer(*policy);
  model::check_divisible(policy->config(), flags.tensor_parallel_size, kTensorParallel,
                         flags.model.model);
  const nlohmann::ordered_json settings = settings_of(flags, *policy);
  if (!workers.is_first()) {
    workers.follow(settings, *policy);
    return interrupted() ? interrupt_exit_code() : 0;
  }
  TLT_CHECK_INPUT(tokenizer || !flags.output.empty(), flags.model.model,
                  " has no tokenizer.json, so no text can be printed; give --output");
  const Prompts prompts = read_all(flags, policy->config(),
                                   {.tokenizer = tokenizer,
                                    .model = flags.model.model,
                                    .vocabulary = policy->config().vocabulary,
                                    .wraps_texts = flags.chat});
  cli::OrderedOutput output = open_output(flags, prompts, settings, arguments);
  // So the tuner measures only batch sizes that can occur.
  const int64_t missing = prompts.size() * flags.samples - output.done();
  flags.engine.max_running = std::clamp<int64_t>(missing, 1, flags.engine.max_running);
  // Connected now: whatever is wrong with the input is known without the other workers.
  const rollout::TargetModel target = workers.connect(settings, *policy);
  const Stopwatch stopwatch;
  const auto speculation = flags.speculation.make(target, flags.engine);
  rollout::Engine engine(target, flags.engine, /*stop_string=*/nullptr, /*observer=*/nullptr,
                         speculation.get());
  const bool is_finished = Generation(flags, prompts, tokenizer, output).run(engine, stopwatch);
  workers.release();
  if (!is_finished) {
    log_warning("interrupted");
    return interrupt_exit_code();
  }
  output.commit();
  if (speculation) log_speculation(speculation->stats(), engine.stats());
  return 0;
}

}  // namespace tlt::apps
