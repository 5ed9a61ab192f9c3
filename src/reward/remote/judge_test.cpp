// SPDX-License-Identifier: Apache-2.0
#include "reward/remote/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "base/check.h"
#include "base/files.h"
#include "reward/reward_pool.h"
#include "tests/support/http_stub.h"
#include "tests/support/test_folder.h"

namespace tlt::reward {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using tests::HttpStub;
using Json = nlohmann::json;

constexpr double kLimit = 60;

class JudgeRewardTest : public ::testing::Test {
 protected:
  JudgeRewardTest()
      : stub_([this](const httplib::Request& request, httplib::Response& response) {
          key_ = request.get_header_value("Authorization");
          path_ = request.path;
          if (request.method == "GET") {
            response.status = models_status_;
            return;
          }
          seen_ = Json::parse(request.body);
          const Json message = {{"role", "assistant"}, {"content", reply_}};
          response.set_content(
              raw_.empty() ? Json{{"choices", Json::array({{{"message", message}}})}}.dump() : raw_,
              "application/json");
        }) {
    write_prompt("Q: {prompt} A: {response} T: {ground_truth} Write {\"score\": 0 to 1}.");
  }
  ~JudgeRewardTest() override { unsetenv("TLT_JUDGE_API_KEY"); }

  void write_prompt(const std::string& text) { write_file_atomic(folder_ / "judge.txt", text); }
  JudgeOptions options() const {
    return {.base_url = stub_.url("/v1/"), .model = "m", .prompt = folder_ / "judge.txt"};
  }
  JudgeReward judge() const { return JudgeReward(options(), kLimit); }

  const TestFolder folder_;
  std::string reply_ = "{\"score\": 0.5}", raw_, key_, path_;
  int models_status_ = 200;
  Json seen_;
  HttpStub stub_;
};

TEST_F(JudgeRewardTest, AsksForAChatCompletion) {
  EXPECT_EQ(
      judge().score({.response = "r {ground_truth}", .ground_truth = "t", .prompt = "p"}).score,
      0.5);
  EXPECT_EQ(path_, "/v1/chat/completions");
  EXPECT_EQ(key_, "");
  EXPECT_EQ(seen_["model"], "m");
  EXPECT_EQ(seen_["temperature"], 0);
  EXPECT_EQ(
      seen_["messages"],
      Json::array({{{"role", "user"},
                    {"content", "Q: p A: r {ground_truth} T: t Write {\"score\": 0 to 1}."}}}));
}

TEST_F(JudgeRewardTest, ScoreIsReadFromTheText) {
  const std::pair<const char*, double> kCases[] = {
      {"{\"score\": 1}", 1},
      {"Fine.\n```json\n{\"reason\": \"score: 3\", \"score\": -0.25}\n```", -0.25},
      {"{\"score\": 1} no: {\"score\": 2}", 2},
      {"{\"reason\": \"{x}\", \"score\": 4}", 4},
      {"Score: 7", 7},
      {"score: 1. On reflection, **Score:** 2.5 of 5", 2.5},
      {"Rating: [[8]]", 8},
      {"The score is 3/10.", 3},
      {"<think>score 9</think> Score = +4", 4},
      {" 0.75\n", 0.75},
  };
  int row = 0;  // each a prompt of its own
  const JudgeReward reward = judge();
  for (const auto& one : kCases) {
    reply_ = one.first;
    const std::string prompt = std::to_string(row++);
    EXPECT_EQ(reward.score({.prompt = prompt}).score, one.second) << one.first;
  }
}

TEST_F(JudgeRewardTest, NonsenseFailsTheSample) {
  const JudgeReward reward = judge();
  const auto message = [&] { return thrown_message<Error>([&] { reward.score({}); }); };
  for (const char* text : {"", "I like it.", "score: high", "}{", "1 or 2"}) {
    reply_ = text;
    EXPECT_THAT(message(), HasSubstr("in which there is no score such as {\"score\": 1}")) << text;
  }
  reply_ = "{\"score\": 1e12}";
  EXPECT_THAT(message(), HasSubstr("not within 1e9"));
  for (const char* body :
       {"{}", "[]", "x", "{\"choices\": []}", "{\"choices\": [{\"message\": {}}]}",
        "{\"choices\": [{\"message\": {\"content\": null}}]}"}) {
    raw_ = body;
    EXPECT_THAT(message(), HasSubstr("which is no chat completion")) << body;
  }
  raw_ = "";
  reply_ = "score: 1";
  EXPECT_EQ(reward.score({}).score, 1) << "a failure is not kept";
}

TEST_F(JudgeRewardTest, HostileTextTakesLinearTime) {
  const JudgeReward reward = judge();
  for (const char* unit : {"{", "}", "{}", "{\"a\":", "score ", "1", "score: 1 "}) {
    reply_ = "";
    while (reply_.size() < 1'000'000) reply_ += unit;
    thrown_message<Error>([&] { reward.score({}); });  // within the test's time limit
  }
}

TEST_F(JudgeRewardTest, EqualPromptIsAskedOnce) {
  const JudgeReward reward = judge();
  for (const char* response : {"a", "b", "a", "a"}) reward.score({.response = response});
  EXPECT_EQ(stub_.requests(), 2);
}

TEST_F(JudgeRewardTest, KeyComesFromTheEnvironmentOnly) {
  setenv("TLT_JUDGE_API_KEY", "sk-secret", 1);
  const JudgeReward reward = judge();
  reward.score({});
  EXPECT_EQ(key_, "Bearer sk-secret");
  reply_ = "nonsense";
  EXPECT_THAT(thrown_message<Error>([&] { reward.score({.prompt = "x"}); }),
              Not(HasSubstr("secret")));
  setenv("TLT_JUDGE_API_KEY", "sk-secret\r\nX: y", 1);
  const std::string message = thrown_message<InputError>([&] { judge(); });
  EXPECT_THAT(message, HasSubstr("TLT_JUDGE_API_KEY has a character that no key has"));
  EXPECT_THAT(message, Not(HasSubstr("secret")));
}

TEST_F(JudgeRewardTest, ServerIsAskedAtTheStart) {
  judge().start();
  EXPECT_EQ(path_, "/v1/models");
  models_status_ = 401;
  EXPECT_THAT(
      thrown_message<InputError>([&] { judge().start(); }),
      HasSubstr("wants a key (status 401); set the environment variable TLT_JUDGE_API_KEY"));
  models_status_ = 404;  // a server without that path
  judge().start();
  stub_.stop();
  EXPECT_THAT(thrown_message<InputError>([&] { judge().start(); }),
              HasSubstr("reward.judge.base_url: http://127.0.0.1"));
}

TEST_F(JudgeRewardTest, OptionsAreChecked) {
  RewardOptions reward;
  reward.judge = options();
  const auto message = [&] { return thrown_message<InputError>([&] { reward.check(); }); };
  EXPECT_THAT(message(), HasSubstr("reward.judge is set, but \"judge\" is not in"));
  reward.functions = {"judge"};
  reward.check();
  reward.judge.model = "";
  EXPECT_THAT(message(), HasSubstr("reward.judge.model is empty"));
  reward.judge = options();
  reward.judge.prompt += ".none";
  EXPECT_THAT(message(), HasSubstr("judge.txt.none"));
  reward.judge = options();
  write_prompt("no place for it");
  EXPECT_THAT(message(), HasSubstr("does not contain {response}"));
}

TEST_F(JudgeRewardTest, GroundTruthIsNeededWhereThePromptHasIt) {
  EXPECT_TRUE(judge().needs().ground_truth);
  EXPECT_THAT(thrown_message<InputError>([&] { judge().check_row({}); }),
              HasSubstr("has {ground_truth}; give each row one"));
  write_prompt("{response}");
  EXPECT_FALSE(judge().needs().ground_truth);
  judge().check_row({});
}

}  // namespace
}  // namespace tlt::reward
