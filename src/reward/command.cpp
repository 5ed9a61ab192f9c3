// SPDX-License-Identifier: Apache-2.0
#include "reward/command.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/json_limits.h"

namespace tlt::reward {

namespace {

using Json = nlohmann::ordered_json;

Json or_null(std::string_view text) { return text.empty() ? Json() : Json(text); }
Json ids_or_null(std::span<const int32_t> ids) {
  return ids.empty() ? Json() : Json(std::vector<int32_t>(ids.begin(), ids.end()));
}
Json or_null(const Json* value) { return value != nullptr ? *value : Json(); }

std::string request_of(const RewardInput& input, int64_t id) {
  const Json request = {{"id", id},
                        {"data_source", or_null(input.data_source)},
                        {"prompt", input.prompt},
                        {"messages", or_null(input.messages)},
                        {"response", input.response},
                        {"response_ids", ids_or_null(input.response_ids)},
                        {"ground_truth", or_null(input.ground_truth)},
                        {"extra_info", or_null(input.extra_info)},
                        {"truncated", input.truncated}};
  // A response that was cut within a character is not valid UTF-8.
  return request.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

RewardResult result_of(const Json& answer) {
  if (answer.is_number()) return {.score = answer.get<double>()};
  RewardResult result{.score = answer.at("score").get<double>()};
  for (const auto& [name, value] : answer.items()) {
    if (name != "score" && name != "id" && value.is_number())
      result.extras[name] = value.get<double>();
  }
  // verl's name; other types of it are columns, as above.
  if (const auto pred = answer.find("pred"); pred != answer.end() && pred->is_string())
    result.answer = pred->get<std::string>();
  return result;
}

bool is_score(const Json& value) {
  return value.is_number() && std::abs(value.get<double>()) <= kMaxScore;
}

bool has_score(const Json& answer) {
  return is_score(answer) ||
         (answer.is_object() && answer.contains("score") && is_score(answer["score"]));
}

std::string shortened(const std::string& text) {
  constexpr size_t kLongest = 200;
  return text.size() <= kLongest ? text : text.substr(0, kLongest) + "…";
}

}  // namespace

CommandReward::CommandReward(std::string command, double timeout_seconds)
    : command_(std::move(command)), answer_seconds_(0.9 * timeout_seconds) {}

CommandReward::Answer CommandReward::ask(const RewardInput& input) const {
  using Clock = sandbox::ChildProcess::Clock;
  const auto deadline = Clock::now() + to_duration(answer_seconds_);
  const int64_t id = ++last_id_;
  const std::string request = request_of(input, id);
  Answer answer{.child = take_child(), .outcome = {}, .line = {}, .id = id};
  answer.outcome = answer.child->ask(request, deadline, &answer.line);
  return answer;
}

void CommandReward::start() const {
  Answer answer = ask({});
  sandbox::ChildProcess& child = *answer.child;
  if (answer.outcome == sandbox::ChildProcess::Outcome::kAnswered)
    return put_back(std::move(answer.child));
  if (!child.left_input_unread()) return;  // it runs; samples report its errors
  const std::string what = answer.outcome == sandbox::ChildProcess::Outcome::kLate
                               ? check_internal::concat("read no sample within ", answer_seconds_,
                                                        " seconds; raise reward.timeout_seconds")
                               : child.end() + " before it read a sample";
  throw InputError(fault(child, what));
}

RewardResult CommandReward::score(const RewardInput& input) const {
  auto [child, outcome, line, id] = ask(input);
  if (outcome != sandbox::ChildProcess::Outcome::kAnswered)
    throw Error(fault(*child, what_happened(*child, outcome)));
  const Json answer = parse_limited_json(line);
  if (answer.is_object() && answer.value("id", Json(id)) != Json(id))
    throw Error(fault(*child, "wrote the answer to another response"));
  const bool is_error = answer.is_object() && answer.contains("error");
  if (!is_error && !has_score(answer))
    throw Error(
        fault(*child, "wrote `" + shortened(line) + "`, which is no score such as {\"score\": 1}"));
  put_back(std::move(child));
  if (!is_error) return result_of(answer);
  const Json& why = answer["error"];
  throw Error("the reward's command says: " +
              shortened(why.is_string() ? why.get<std::string>() : why.dump()));
}

// Replaces a program that has exited or writes without a request.
std::unique_ptr<sandbox::ChildProcess> CommandReward::take_child() const {
  while (true) {
    std::unique_ptr<sandbox::ChildProcess> child;
    {
      const std::lock_guard lock(mutex_);
      if (free_.empty()) break;
      child = std::move(free_.back());
      free_.pop_back();
    }
    if (child->is_ready()) return child;
    child->end();
  }
  return std::make_unique<sandbox::ChildProcess>(command_);
}

void CommandReward::put_back(std::unique_ptr<sandbox::ChildProcess> child) const {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(child));
}

std::string CommandReward::what_happened(sandbox::ChildProcess& child,
                                         sandbox::ChildProcess::Outcome outcome) const {
  switch (outcome) {
    case sandbox::ChildProcess::Outcome::kEnded:
      return child.end() + " before it gave a score";
    case sandbox::ChildProcess::Outcome::kLate:
      return check_internal::concat("gave no score within ", answer_seconds_, " seconds");
    case sandbox::ChildProcess::Outcome::kTooLong:
      return check_internal::concat("wrote more than one line, or one of more than ",
                                    sandbox::kMaxLineBytes, " bytes, for one response");
    case sandbox::ChildProcess::Outcome::kAnswered:
    case sandbox::ChildProcess::Outcome::kRefused:  // there is no watch
      break;
  }
  return "answered";
}

std::string CommandReward::fault(sandbox::ChildProcess& child, const std::string& what) const {
  child.end();
  const std::string words = child.last_words();
  return "the reward's command `" + shortened(command_) + "` " + what +
         (words.empty() ? "" : "; its standard error ends in: " + words);
}

}  // namespace tlt::reward
