// SPDX-License-Identifier: Apache-2.0
#include "reward/remote/http_reward.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/json_limits.h"
#include "reward/reward.h"

namespace tlt::reward {

namespace {

using Json = nlohmann::ordered_json;

// The number of a list of one; nullptr: it is no such list, or the number is too large.
const Json* single_number(const Json& list) {
  if (!list.is_array() || list.size() != 1 || !list[0].is_number()) return nullptr;
  return std::abs(list[0].get<double>()) <= kMaxScore ? &list[0] : nullptr;
}

RewardResult result_from(const std::string& body) {
  const Json answer = parse_limited_json(body);
  if (!answer.is_object() || !answer.contains("rewards"))
    throw Error("the reward server answered " + quoted_answer(body) +
                ", which is no {\"rewards\": [1]}");
  const Json& rewards = answer["rewards"];
  if (rewards.is_array() && rewards.size() != 1)
    throw Error(check_internal::concat("the reward server answered ", rewards.size(),
                                       " rewards for 1 response"));
  const Json* const reward = single_number(rewards);
  if (reward == nullptr)
    throw Error("the reward server answered the rewards " + quoted_answer(rewards.dump()) +
                ", which is no list of one number up to 1e9");
  RewardResult result{.score = reward->get<double>()};
  const auto add_column = [&](const std::string& name, const Json& value) {
    if (const Json* const number = single_number(value))
      result.extras[name] = number->get<double>();
  };
  if (answer.contains("scores")) add_column("scores", answer["scores"]);
  if (const auto logs = answer.find("extra_logs"); logs != answer.end() && logs->is_object())
    for (const auto& [name, value] : logs->items()) add_column(name, value);
  return result;
}

}  // namespace

HttpReward::HttpReward(const std::vector<std::string>& urls, double timeout_seconds)
    : answer_seconds_(0.9 * timeout_seconds) {
  for (const std::string& url : urls) urls_.push_back(parse_http_url("reward.http", url));
}

void HttpReward::start() const {
  for (const HttpUrl& url : urls_)
    check_reachable("reward.http", url, {}, http_deadline(answer_seconds_));
}

RewardResult HttpReward::score(const RewardInput& input) const {
  const std::string prompt(input.prompt);
  const Json request = {{"query", Json::array({prompt + std::string(input.response)})},
                        {"prompts", Json::array({prompt})},
                        {"labels", Json::array({input.ground_truth})}};
  std::vector<HttpUrl> urls = urls_;
  std::rotate(urls.begin(), urls.begin() + static_cast<std::ptrdiff_t>(turn_++ % urls.size()),
              urls.end());
  // A response that was cut within a character is not valid UTF-8.
  return result_from(post_json(
      urls, {.body = request.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace)},
      http_deadline(answer_seconds_)));
}

}  // namespace tlt::reward
