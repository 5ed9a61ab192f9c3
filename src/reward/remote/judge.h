// JudgeReward: the score that a language model gives, through the API of OpenAI (vLLM, SGLang,
// llama.cpp, `tlt serve`, hosted models).
//
// The prompt is a file of the user in which {prompt}, {response} and {ground_truth} are replaced;
// other braces stay. It is one user message of a chat completion at temperature 0. The score is read
// from the answer: the number "score" of the last JSON object that has one, else the last number
// after the word score or rating, else the answer itself if it is a number. An equal prompt is not
// asked twice. A judge that is down, slow or gives no score fails one sample.
//
// The key of the API is read from the environment variable TLT_JUDGE_API_KEY, and is in no option,
// file or message.
//
// Owns       the scores of prompts that were answered.
// Threading  score() from any thread; a mutex protects the scores.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "reward/match.h"
#include "reward/remote/http_client.h"
#include "reward/reward.h"

namespace tlt::reward {

inline constexpr int64_t kMaxJudgePromptBytes = 1 << 20;
// Scores that are kept; a hash and a number each.
inline constexpr size_t kMaxKeptScores = 1 << 18;

class JudgeReward : public Reward {
 public:
  // Reads the prompt's file. An answer has 90 % of `timeout_seconds`, retries included.
  JudgeReward(const JudgeOptions& options, double timeout_seconds);

  RewardResult score(const RewardInput& input) const override;
  // InputError: the server does not answer, or refuses the key.
  void start() const override;
  // InputError: the prompt wants a ground truth that the row lacks.
  void check_row(const RewardInput& row) const override;
  RewardNeeds needs() const override { return {.ground_truth = wants_truth_}; }
  std::string name() const override { return "judge"; }

 private:
  std::string filled_prompt(const RewardInput& input) const;
  double score_of(const std::string& body) const;
  std::optional<double> find_score(const std::string& text) const;

  const JudgeOptions options_;
  const double answer_seconds_;
  const std::string key_;  // of the API
  HttpUrl url_;
  std::string template_;
  bool wants_truth_ = false;
  const Pattern labelled_number_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<std::string, double> scores_;  // by SHA-256 of the prompt; guarded
};

}  // namespace tlt::reward
