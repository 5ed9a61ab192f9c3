// SPDX-License-Identifier: Apache-2.0
#include "reward/remote/http_reward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "reward/reward_pool.h"
#include "tests/support/http_stub.h"
#include "tests/support/test_folder.h"

namespace tlt::reward {
namespace {

using ::testing::HasSubstr;
using tests::closed_port;
using tests::HttpStub;

constexpr double kMinute = 60;

// A server that always answers this.
HttpStub::Handler says(const std::string& body) {
  return [body](const httplib::Request&, httplib::Response& response) {
    response.set_content(body, "application/json");
  };
}

TEST(HttpRewardTest, RequestAndAnswerAreThoseOfOpenRlhf) {
  nlohmann::json seen;
  HttpStub stub([&](const httplib::Request& request, httplib::Response& response) {
    seen = nlohmann::json::parse(request.body);
    response.set_content(
        R"({"rewards": [0.5], "scores": [0.25], "extra_logs": {"hits": [3], "bad": "x", "two": [1, 2]}})",
        "application/json");
  });
  const HttpReward reward({stub.url("/get_reward")}, kMinute);
  const RewardResult result =
      reward.score({.response = "4\xc3", .ground_truth = "4", .prompt = "2+2="});
  EXPECT_EQ(seen, (nlohmann::json{{"query", {"2+2=4\xef\xbf\xbd"}},
                                  {"prompts", nlohmann::json::array({"2+2="})},
                                  {"labels", nlohmann::json::array({"4"})}}));
  EXPECT_EQ(result.score, 0.5);
  EXPECT_EQ(result.extras, (std::map<std::string, double>{{"scores", 0.25}, {"hits", 3}}));
}

TEST(HttpRewardTest, NonsenseFailsTheSample) {
  const std::pair<const char*, const char*> kCases[] = {
      {"", "answered ``, which is no {\"rewards\": [1]}"},
      {"<html>", "answered `<html>`, which is no"},
      {"[1]", "which is no {"},
      {"{\"reward\": [1]}", "which is no {"},
      {"{\"rewards\": []}", "answered 0 rewards for 1 response"},
      {"{\"rewards\": [1, 2]}", "answered 2 rewards for 1 response"},
      {"{\"rewards\": 1}", "which is no list of one number"},
      {"{\"rewards\": [\"1\"]}", "which is no list of one number"},
      {"{\"rewards\": [null]}", "which is no list of one number"},
      {"{\"rewards\": [1e300]}", "which is no list of one number up to 1e9"},
      {"{\"rewards\": [NaN]}", "which is no {"},
  };
  for (const auto& one : kCases) {
    HttpStub stub(says(one.first));
    const HttpReward reward({stub.url("/")}, kMinute);
    EXPECT_THAT(thrown_message<Error>([&] { reward.score({.response = "a"}); }),
                HasSubstr(one.second))
        << one.first;
    EXPECT_EQ(stub.requests(), 1) << "nonsense is not asked again";
  }
}

// To write such a list would overflow the stack, to read such an object would take minutes.
TEST(HttpRewardTest, HostileAnswerFailsTheSample) {
  std::string members;
  for (int i = 0; i < 200'000; ++i) members += "\"" + std::to_string(i) + "\":1,";
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  for (const std::string& body :
       {"{\"rewards\": [" + deep + "]}",
        "{\"extra_logs\": {" + members + "\"a\": 1}, \"rewards\": [1]}"}) {
    HttpStub stub(says(body));
    const HttpReward reward({stub.url("/")}, kMinute);
    EXPECT_THAT(thrown_message<Error>([&] { reward.score({.response = "a"}); }),
                HasSubstr("which is no {"));
  }
}

TEST(HttpRewardTest, ServersTakeTurns) {
  HttpStub first(says("{\"rewards\": [1]}")), second(says("{\"rewards\": [1]}"));
  const HttpReward reward({first.url("/"), second.url("/")}, kMinute);
  for (int i = 0; i < 6; ++i) reward.score({.response = "a"});
  EXPECT_EQ(first.requests(), 3);
  EXPECT_EQ(second.requests(), 3);
}

TEST(HttpRewardTest, ServerMustAnswerAtTheStart) {
  HttpStub stub(says("{}"));
  HttpReward({stub.url("/")}, kMinute).start();
  const std::string closed = "http://127.0.0.1:" + std::to_string(closed_port());
  EXPECT_THAT(thrown_message<InputError>([&] {
                HttpReward({stub.url("/"), closed}, 30).start();
              }),
              HasSubstr("reward.http: " + closed + " refused the connection"));
}

// The server dies in mid-run: its samples fail and are counted, the others keep their scores.
TEST(HttpRewardTest, PoolCountsWhatFails) {
  HttpStub stub(says("{\"rewards\": [2]}"));
  RewardOptions options;
  options.functions = {"http"};
  options.http = {stub.url("/")};
  options.timeout_seconds = kMinute;
  RewardPool pool(make_reward(options), options);
  for (int id = 0; id < 8; ++id) pool.submit(id, {.response = "a"});
  for (const ScoredSample& sample : pool.wait_all()) EXPECT_EQ(sample.result.score, 2);
  stub.stop();
  for (int id = 8; id < 12; ++id) pool.submit(id, {.response = "a"});
  for (const ScoredSample& sample : pool.wait_all()) {
    EXPECT_EQ(sample.status, RewardStatus::kFailed);
    EXPECT_EQ(sample.result.score, 0);
    EXPECT_THAT(sample.error, HasSubstr("refused the connection"));
  }
  EXPECT_EQ(pool.counters().scored, 8);
  EXPECT_EQ(pool.counters().errors.at("http"), 4);
}

// A server that never answers fails its samples before the pool gives their threads up.
TEST(HttpRewardTest, SilentServerCostsItsSamplesOnly) {
  const tests::RawServer silent([](int fd) {
    char byte;
    while (recv(fd, &byte, 1, 0) == 1) continue;
  });
  const HttpReward reward({silent.url("/")}, /*timeout_seconds=*/0.6);
  EXPECT_THAT(thrown_message<Error>([&] { reward.score({.response = "a"}); }),
              HasSubstr("gave no answer in time"));
}

TEST(HttpRewardTest, OptionsAreChecked) {
  RewardOptions options;
  options.http = {"http://a/"};
  EXPECT_THAT(thrown_message<InputError>([&] { options.check(); }),
              HasSubstr("reward.http is set, but \"http\" is not in reward.functions"));
  options.functions = {"http"};
  options.check();
  options.http = {"a:80"};
  EXPECT_THAT(thrown_message<InputError>([&] { options.check(); }),
              HasSubstr("reward.http has `a:80`, which is no URL"));
  options.http = {};
  EXPECT_THAT(thrown_message<InputError>([&] { options.check(); }),
              HasSubstr("reward.http is empty; set it"));
}

}  // namespace
}  // namespace tlt::reward
