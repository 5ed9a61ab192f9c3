// SPDX-License-Identifier: Apache-2.0
#include "reward/remote/judge.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/checksum.h"
#include "base/files.h"
#include "base/json_limits.h"
#include "base/text.h"
#include "reward/reward.h"

namespace tlt::reward {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kKeyVariable = "TLT_JUDGE_API_KEY";
// "Score: 7", "**Rating:** [[7]]", "the score is -0.5".
constexpr const char* kLabelledNumber =
    R"((?is).*\b(?:score|rating)\b["'*]*\s*(?::|=|is)?[\s"'*]*\[{0,2}\s*([-+]?\d+(?:\.\d+)?))";

std::optional<double> score_of_number(std::string_view text) {
  text = trimmed(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  return is_number ? std::optional(number) : std::nullopt;
}

// The "score" of the last object that has one and no object in it.
std::optional<double> score_of_json(std::string_view text) {
  std::optional<double> score;
  for (size_t end = text.find('}'); end != text.npos; end = text.find('}')) {
    const std::string_view before = text.substr(0, end + 1);
    const std::string_view braces = before.substr(std::min(before.rfind('{'), end));
    const Json object = parse_limited_json(braces);
    if (object.is_object() && object.contains("score") && object["score"].is_number())
      score = object["score"].get<double>();
    text.remove_prefix(end + 1);
  }
  return score;
}

// The text of the first choice; nullopt: there is none.
std::optional<std::string> content_of(const Json& answer) {
  const Json::json_pointer content("/choices/0/message/content");
  if (!answer.is_object() || !answer.contains(content) || !answer.at(content).is_string())
    return std::nullopt;
  return answer.at(content).get<std::string>();
}

}  // namespace

JudgeReward::JudgeReward(const JudgeOptions& options, double timeout_seconds)
    : options_(options),
      answer_seconds_(0.9 * timeout_seconds),
      key_(api_key(kKeyVariable)),
      labelled_number_("the judge's score", kLabelledNumber) {
  const std::pair<const char*, const std::string&> needed[] = {
      {"base_url", options.base_url}, {"model", options.model}, {"prompt", options.prompt}};
  for (const auto& [name, value] : needed)
    TLT_CHECK_INPUT(!value.empty(), "reward.functions names \"judge\", but reward.judge.", name,
                    " is empty; set it");
  url_ = parse_http_url("reward.judge.base_url", options.base_url);
  while (url_.path.ends_with('/')) url_.path.pop_back();
  template_ = read_file(options.prompt, kMaxJudgePromptBytes);
  TLT_CHECK_INPUT(template_.find("{response}") != template_.npos,
                  "reward.judge.prompt: ", options.prompt,
                  " does not contain {response}; write it where the response "
                  "to be judged belongs");
  wants_truth_ = template_.find("{ground_truth}") != template_.npos;
}

void JudgeReward::start() const {
  const HttpUrl models{.origin = url_.origin, .path = url_.path + "/models"};
  const int status = check_reachable("reward.judge.base_url", models, {.bearer_token = key_},
                                     http_deadline(answer_seconds_));
  TLT_CHECK_INPUT(status != 401 && status != 403, "reward.judge.base_url: ", url_.origin,
                  " wants a key (status ", status, "); set the environment variable ",
                  kKeyVariable);
}

void JudgeReward::check_row(const RewardInput& row) const {
  TLT_CHECK_INPUT(!wants_truth_ || !trimmed(row.ground_truth).empty(),
                  "a row has no ground truth, but the judge's prompt ", options_.prompt,
                  " has {ground_truth}; give each row one, or leave it out there");
}

// In one pass, so that a response with {ground_truth} in it does not learn it.
std::string JudgeReward::filled_prompt(const RewardInput& input) const {
  const std::pair<std::string_view, std::string_view> fields[] = {
      {"{prompt}", input.prompt},
      {"{response}", input.response},
      {"{ground_truth}", input.ground_truth}};
  const std::string_view text = template_;
  std::string filled;
  for (size_t at = 0; at < text.size();) {
    size_t taken = 1;
    std::string_view value = text.substr(at, 1);
    for (const auto& [name, field] : fields) {
      if (!text.substr(at).starts_with(name)) continue;
      taken = name.size();
      value = field;
    }
    filled += value;
    at += taken;
  }
  return filled;
}

std::optional<double> JudgeReward::find_score(const std::string& text) const {
  if (const auto score = score_of_json(text)) return score;
  if (const auto found = labelled_number_.try_find(text); found && found->group)
    return score_of_number(*found->group);
  return score_of_number(text);
}

double JudgeReward::score_of(const std::string& body) const {
  const auto content = content_of(parse_limited_json(body));
  if (!content)
    throw Error("the judge answered " + quoted_answer(body) + ", which is no chat completion");
  const std::optional<double> score = find_score(*content);
  if (!score)
    throw Error("the judge wrote " + quoted_answer(*content) +
                ", in which there is no score such as {\"score\": 1}");
  if (!(std::abs(*score) <= kMaxScore))
    throw Error("the judge's score is not within 1e9: " + quoted_answer(*content));
  return *score;
}

RewardResult JudgeReward::score(const RewardInput& input) const {
  const std::string prompt = filled_prompt(input);
  const std::string hash = sha256(prompt);
  {
    const std::lock_guard lock(mutex_);
    if (const auto kept = scores_.find(hash); kept != scores_.end()) return {.score = kept->second};
  }
  const Json request = {{"model", options_.model},
                        {"messages", Json::array({{{"role", "user"}, {"content", prompt}}})},
                        {"temperature", 0}};
  const HttpUrl url{.origin = url_.origin, .path = url_.path + "/chat/completions"};
  // A response that was cut within a character is not valid UTF-8.
  const double score = score_of(post_json(
      {&url, 1},
      {.body = request.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace),
       .bearer_token = key_},
      http_deadline(answer_seconds_)));
  const std::lock_guard lock(mutex_);
  if (scores_.size() >= kMaxKeptScores) scores_.clear();
  scores_.emplace(hash, score);
  return {.score = score};
}

}  // namespace tlt::reward
