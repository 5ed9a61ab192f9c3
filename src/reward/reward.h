// Reward: the score of a response.
//
//   const std::unique_ptr<const Reward> reward = make_reward(options);
//   reward->start();                                       // before anything slow
//   reward->check_row({.ground_truth = row.answer});       // once for each row
//   const double score = reward->score({.response = text, .ground_truth = row.answer}).score;
//
// Not here   when and on which thread a response is scored (reward_pool.h).
// Threading  a Reward is immutable: score() may be called from many threads at once.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/options.h"

namespace tlt::reward {

inline constexpr double kMaxTimeoutSeconds = 86'400;
inline constexpr int64_t kMaxThreads = 256;

struct OverlongOptions {
  int64_t len = 256;

  void visit(auto& v) {
    v(len, "len", Affects::kResults,
      "Length of the soft penalty's ramp before data.max_response_length, in tokens (reward "
      "length).");
  }
};

struct CodeOptions {
  bool partial = false;  // not an option: of code_partial, whose score is the share of tests passed
  // Not an option: CPU time of one test; 0: four tenths of reward.timeout_seconds, so that one that
  // hangs leaves time for others.
  double test_seconds = 0;
  // Not an option: address space of each process. Contest problems allow 256 MB; the interpreter
  // and its libraries take the rest.
  int64_t memory_megabytes = 512;
};

struct JudgeOptions {
  std::string base_url;
  std::string model;
  std::string prompt;

  void visit(auto& v) {
    v(base_url, "base_url", Affects::kResults,
      "Server of the reward judge, with OpenAI's API, such as http://127.0.0.1:8000/v1.");
    v(model, "model", Affects::kResults, "Model of the reward judge, as its server names it.");
    v(prompt, "prompt", Affects::kResults,
      "File with the judge's prompt, in which {prompt}, {response} and {ground_truth} are "
      "replaced.");
  }
};

struct RewardOptions {
  std::vector<std::string> functions = {"auto"};
  std::vector<double> weights;
  std::string regex;
  // TRL's think_format_reward.
  std::string format = R"((?s)\A<think>(?!.*<think>).*?</think>)";
  std::string command;
  std::vector<std::string> http;
  JudgeOptions judge;
  CodeOptions code;
  OverlongOptions overlong_buffer;
  double timeout_seconds = 10;
  int64_t threads = 2;

  void visit(auto& v) {
    v(functions, "functions", Affects::kResults,
      "Rewards to add up: gsm8k, gsm8k_flexible, math, math_strict, code, code_partial, countdown, "
      "countdown_trace, exact, regex, command, http, judge, format, length, repetition, or auto "
      "(by "
      "data_source).");
    v(weights, "weights", Affects::kResults,
      "One weight for each of reward.functions; empty: all 1.");
    v(regex, "regex", Affects::kResults,
      "PCRE2 pattern of the reward regex; its first group, if any, must equal the ground truth.");
    v(format, "format", Affects::kResults,
      "PCRE2 pattern of the reward format, which a response must match; the default: it "
      "begins with one <think> that ends.");
    v(command, "command", Affects::kResults,
      "Program of the reward command, for the shell: reads JSON lines, writes scores "
      "(docs/rewards.md).");
    v(http, "http", Affects::kResults,
      "URLs of the reward http: servers that answer as OpenRLHF's --remote_rm_url "
      "(docs/rewards.md).");
    v.group("judge", judge);
    v.group("overlong_buffer", overlong_buffer);
    v(timeout_seconds, "timeout_seconds", Affects::kResults,
      "Time limit of one sample's reward, which then scores 0; of the reward code in CPU time, of "
      "which one test may take four tenths (docs/rewards.md).");
    v(threads, "threads", Affects::kSpeed, "Threads that score responses.");
  }

  // Throws InputError for an unknown function or method, or a number out of range.
  void check() const;
};

// A larger score, or reward of a turn, of a user's program is an error of the program: it would
// spoil the advantages.
inline constexpr double kMaxScore = 1e9;

// What a multi-turn environment says about an episode (environment/environment_pool.h).
struct EpisodeOutcome {
  double reward = 0;                     // sum over its turns
  std::map<std::string, double> extras;  // further columns of the rollout dump
  std::string fault;                     // why the episode failed; empty: it did not
};

// A response and what is known about its prompt. Borrows everything.
struct RewardInput {
  std::string_view data_source = {};                   // for "auto" in reward.functions
  std::string_view response = {};                      // without special tokens
  std::string_view raw_response = {};                  // with special tokens
  std::string_view ground_truth = {};                  // empty: the row has none
  const nlohmann::ordered_json* extra_info = nullptr;  // an object, or null
  std::string_view prompt = {};                        // as the model reads it
  const nlohmann::ordered_json* messages = nullptr;    // of a conversational prompt; else null
  std::span<const int32_t> response_ids = {};          // the response's tokens; may be unknown
  bool truncated = false;                              // finish reason "length"
  int64_t response_tokens = 0;
  int64_t max_response_tokens = 0;          // 0: unknown
  const EpisodeOutcome* episode = nullptr;  // null: no environment
};

struct RewardResult {
  double score = 0;
  std::map<std::string, double> extras = {};  // further columns of the rollout dump
  std::string answer = {};  // as the reward read it from the response, for maj@k; empty: none
};

// Fields that a reward requires besides the response. Rows may lack all others.
struct RewardNeeds {
  bool data_source = false;
  bool ground_truth = false;
  bool response_tokens = false;

  RewardNeeds operator|(const RewardNeeds& other) const {
    return {.data_source = data_source || other.data_source,
            .ground_truth = ground_truth || other.ground_truth,
            .response_tokens = response_tokens || other.response_tokens};
  }
};

class Reward {
 public:
  virtual ~Reward() = default;

  virtual RewardNeeds needs() const = 0;

  // Starts the processes that score() will use, so that a failure is known before a model is
  // loaded. Throws InputError with the reason.
  virtual void start() const {}

  // The score of a response. An answer that cannot be parsed has a score; errors are thrown for a
  // row that check_row() rejects, and for a limit that the response exceeds.
  virtual RewardResult score(const RewardInput& input) const = 0;

  // Throws InputError if no response to this row could be scored. Reads all fields but the
  // response.
  virtual void check_row(const RewardInput& row) const = 0;

  // How many times options.timeout_seconds a score() on this data source may take in wall time.
  // Above 1 for a reward that limits its own CPU time by it, so that its score does not depend on
  // the load of the machine.
  virtual double wall_factor(std::string_view /*data_source*/) const { return 1; }

  virtual std::string name() const = 0;
};

// An error that names the part of a combined reward that threw it.
class RewardError : public Error {
 public:
  RewardError(std::string reward, const std::string& message)
      : Error(message), reward_(std::move(reward)) {}

  const std::string& reward() const { return reward_; }

 private:
  std::string reward_;
};

// The weighted sum of options.functions; a single function of weight 1 is that reward itself.
std::unique_ptr<const Reward> make_reward(const RewardOptions& options);

}  // namespace tlt::reward
