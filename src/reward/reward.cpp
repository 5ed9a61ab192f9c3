// SPDX-License-Identifier: Apache-2.0
#include "reward/reward.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "reward/code.h"
#include "reward/combine.h"
#include "reward/command.h"
#include "reward/countdown.h"
#include "reward/gsm8k.h"
#include "reward/match.h"
#include "reward/math.h"
#include "reward/remote/http_reward.h"
#include "reward/remote/judge.h"
#include "reward/shaping.h"

namespace tlt::reward {

namespace {

constexpr int64_t kRepeatedWords = 3;  // of the n-grams of the reward repetition

// nullptr: no such function.
std::unique_ptr<const Reward> make_function(const std::string& name, const RewardOptions& options) {
  if (name == "auto") return std::make_unique<SourceReward>(options);
  if (name == "gsm8k") return std::make_unique<Gsm8kReward>(Gsm8kMethod::kStrict);
  if (name == "gsm8k_flexible") return std::make_unique<Gsm8kReward>(Gsm8kMethod::kFlexible);
  if (name == "math") return std::make_unique<MathReward>(MathMethod::kFlexible);
  if (name == "math_strict") return std::make_unique<MathReward>(MathMethod::kStrict);
  if (name == "countdown") return std::make_unique<CountdownReward>();
  if (name == "countdown_trace") return std::make_unique<CountdownTraceReward>();
  if (name == "exact") return std::make_unique<ExactReward>();
  if (name == "length") return std::make_unique<LengthReward>(options.overlong_buffer.len);
  if (name == "repetition") return std::make_unique<RepetitionReward>(kRepeatedWords);
  if (name == "code" || name == "code_partial") {
    CodeOptions code = options.code;
    code.partial = name == "code_partial";
    return std::make_unique<CodeReward>(code, options.timeout_seconds);
  }
  if (name == "command") {
    return std::make_unique<CommandReward>(options.command, options.timeout_seconds);
  }
  if (name == "http") return std::make_unique<HttpReward>(options.http, options.timeout_seconds);
  if (name == "judge") return std::make_unique<JudgeReward>(options.judge, options.timeout_seconds);
  if (name == "regex") return std::make_unique<RegexReward>(options.regex);
  if (name == "format") return std::make_unique<FormatReward>(options.format);
  return nullptr;
}

// An option of the reward of the same name must be set if and only if the reward is.
void check_used(const RewardOptions& options, const std::string& name, bool is_set) {
  const bool is_named = std::ranges::count(options.functions, name) > 0;
  TLT_CHECK_INPUT(is_named || !is_set, "reward.", name, " is set, but \"", name,
                  "\" is not in reward.functions; add reward.functions=[\"", name, "\"]");
  TLT_CHECK_INPUT(!is_named || is_set, "reward.functions names \"", name, "\", but reward.", name,
                  " is empty; set it");
}

}  // namespace

void RewardOptions::check() const {
  TLT_CHECK_INPUT(!functions.empty(),
                  "reward.functions is empty; give [\"auto\"] or a reward's name");
  TLT_CHECK_INPUT(std::set(functions.begin(), functions.end()).size() == functions.size(),
                  "reward.functions names a reward twice; name it once and raise its weight");
  for (const std::string& name : functions) {
    TLT_CHECK_INPUT(
        make_function(name, *this), "unknown reward `", name,
        "` in reward.functions; use gsm8k, gsm8k_flexible, math, math_strict, code, code_partial, "
        "countdown, countdown_trace, exact, regex, command, http, judge, format, length, "
        "repetition "
        "or auto");
  }
  TLT_CHECK_INPUT(weights.empty() || weights.size() == functions.size(), "reward.weights has ",
                  weights.size(), " numbers for ", functions.size(),
                  " reward.functions; give one for each, or none");
  TLT_CHECK_INPUT(std::ranges::all_of(weights, [](double weight) { return std::isfinite(weight); }),
                  "reward.weights has a number that is not finite; give finite numbers");
  check_used(*this, "regex", !regex.empty());
  check_used(*this, "command", !command.empty());
  check_used(*this, "http", !http.empty());
  check_used(*this, "judge",
             !(judge.base_url.empty() && judge.model.empty() && judge.prompt.empty()));
  TLT_CHECK_INPUT(overlong_buffer.len >= 1, "reward.overlong_buffer.len is ", overlong_buffer.len,
                  "; use at least 1");
  TLT_CHECK_INPUT(timeout_seconds > 0 && timeout_seconds <= kMaxTimeoutSeconds,
                  "reward.timeout_seconds is ", timeout_seconds,
                  "; use a number above 0 and up to ", kMaxTimeoutSeconds);
  TLT_CHECK_INPUT(threads >= 1 && threads <= kMaxThreads, "reward.threads is ", threads,
                  "; use 1 to ", kMaxThreads);
}

std::unique_ptr<const Reward> make_reward(const RewardOptions& options) {
  options.check();
  std::vector<WeightedPart> parts;
  for (size_t i = 0; i < options.functions.size(); ++i) {
    parts.push_back({make_function(options.functions[i], options),
                     options.weights.empty() ? 1.0 : options.weights[i]});
  }
  if (parts.size() == 1 && parts[0].weight == 1) return std::move(parts[0].reward);
  return std::make_unique<WeightedReward>(std::move(parts));
}

}  // namespace tlt::reward
