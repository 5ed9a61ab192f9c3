// SPDX-License-Identifier: Apache-2.0
#include "rl/remote_teacher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <set>

#include "base/check.h"
#include "cluster/launch.h"
#include "tests/support/http_stub.h"
#include "tests/support/test_folder.h"
#include "tests/support/thread_comm.h"

namespace tlt::rl {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using tests::HttpStub;

constexpr double kAmple = 60;

tokenizer::Tokenizer demo_tokenizer() {
  return tokenizer::Tokenizer::load(std::string(TLT_SOURCE_DIR) + "/models/demo");
}

// What a token has at a position, in this server's opinion.
float logprob_of(size_t position, int32_t token) {
  return -0.125F * static_cast<float>(position) - 0.01F * static_cast<float>(token);
}

// A server with the demo's vocabulary. `change` edits the answer's list of a request.
class TeacherStub {
 public:
  using Change = std::function<void(const json& request, json& list)>;

  explicit TeacherStub(Change change = {})
      : change_(std::move(change)),
        stub_([this](const httplib::Request& request, httplib::Response& response) {
          answer(request, response);
        }) {}

  HttpStub& stub() { return stub_; }
  std::string url() const { return stub_.url("/v1"); }
  int64_t scored() const { return scored_; }
  std::string key() {
    const std::lock_guard lock(mutex_);
    return key_;
  }
  std::atomic<int> failures = 0;  // of the next requests, with status 503

 private:
  void answer(const httplib::Request& request, httplib::Response& response) {
    {
      const std::lock_guard lock(mutex_);
      key_ = request.get_header_value("Authorization");
    }
    if (request.path == "/v1/models") {
      response.set_content(R"({"data": [{"id": "big"}, {"id": "other"}]})", "application/json");
      return;
    }
    if (failures > 0) {
      --failures;
      response.status = 503;
      return;
    }
    const json body = json::parse(request.body);
    EXPECT_EQ(request.path, "/v1/completions");
    EXPECT_EQ(body["model"], "big");
    EXPECT_EQ(body["max_tokens"], 1);
    EXPECT_EQ(body["prompt_logprobs"], 0);
    ++scored_;
    json list = json::array({nullptr});
    for (size_t i = 1; i < body["prompt"].size(); ++i) {
      const auto token = body["prompt"][i].get<int32_t>();
      list.push_back({{std::to_string(token),
                       {{"logprob", logprob_of(i, token)},
                        {"rank", 3},
                        {"decoded_token", tokenizer_.token_bytes(token)}}}});
    }
    if (change_) change_(body, list);
    response.set_content(json{{"choices", {{{"text", "x"}, {"prompt_logprobs", list}}}}}.dump(),
                         "application/json");
  }

  const tokenizer::Tokenizer tokenizer_ = demo_tokenizer();
  const Change change_;
  std::mutex mutex_;
  std::string key_;
  std::atomic<int64_t> scored_ = 0;
  HttpStub stub_;  // last: it answers with the rest
};

std::vector<train::TrainSample> some_samples() {
  std::vector<train::TrainSample> samples(11);
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i].response_begin = static_cast<int32_t>(1 + i % 3);
    const size_t size = static_cast<size_t>(samples[i].response_begin) + i % 5;  // some have none
    for (size_t t = 0; t < size; ++t)
      samples[i].tokens.push_back(static_cast<int32_t>(5 + (i * 7 + t) % 20));
  }
  return samples;
}

void expect_scores(const std::vector<train::TrainSample>& samples, const TeacherScores& scores) {
  EXPECT_EQ(scores.fault, "");
  ASSERT_EQ(scores.logprobs.size(), samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    std::vector<float> want;
    for (auto t = static_cast<size_t>(samples[i].response_begin); t < samples[i].tokens.size(); ++t)
      want.push_back(logprob_of(t, samples[i].tokens[t]));
    EXPECT_EQ(scores.logprobs[i], want) << i;
  }
}

TeacherScores score_alone(const RemoteTeacher& teacher,
                          const std::vector<train::TrainSample>& samples,
                          const std::function<bool()>& should_stop = {}) {
  const auto alone = cluster::make_comm(cluster::Launch{}, {});
  return teacher.score(samples, *alone, should_stop);
}

TEST(RemoteTeacherTest, LogprobsOfTheResponsesAreSharedByTheWorkers) {
  TeacherStub server;
  const std::vector<train::TrainSample> samples = some_samples();
  setenv("TLT_TEACHER_API_KEY", "secret-key", 1);
  RemoteTeacher teacher(server.url() + "/", kAmple);
  unsetenv("TLT_TEACHER_API_KEY");
  teacher.start(demo_tokenizer());
  const int64_t at_start = server.scored();
  for (const int workers : {1, 3})
    train::run_workers(workers, [&](cluster::Comm& comm) {
      expect_scores(samples, teacher.score(samples, comm, {}));
    });
  EXPECT_EQ(server.scored() - at_start, 2 * 8) << "each once, and those without a response never";
  EXPECT_EQ(server.key(), "Bearer secret-key");
}

TEST(RemoteTeacherTest, ServerThatIsRestartedIsAskedAgain) {
  TeacherStub server;
  RemoteTeacher teacher(server.url(), kAmple);
  teacher.start(demo_tokenizer());
  server.failures = reward::kMaxTries;  // a reward would give up
  const std::vector<train::TrainSample> one = {some_samples()[4]};
  ASSERT_GT(one[0].response_size(), 0);
  const TeacherScores scores = score_alone(teacher, one);
  EXPECT_EQ(scores.fault, "");
  EXPECT_EQ(std::ssize(scores.logprobs[0]), one[0].response_size());
  EXPECT_EQ(server.failures, 0);
}

TEST(RemoteTeacherTest, NonsenseIsOneSentenceOnEveryWorker) {
  const std::pair<TeacherStub::Change, const char*> kCases[] = {
      {[](const json&, json& list) { list.erase(0); }, "logprobs for "},
      {[](const json&, json& list) { list = "none"; }, "which has no prompt_logprobs"},
      {[](const json&, json& list) { list.back() = nullptr; }, "answered no logprob for token "},
      {[](const json&, json& list) {
         list.back() = {{"7777", {{"logprob", -1}}}};
       },
       "answered no logprob for token "},
      {[](const json&, json& list) { list.back().front() = -1; }, "answered no logprob for token "},
      {[](const json&, json& list) { list.back().front()["logprob"] = 0.5; }, "the logprob `0.5`"},
      {[](const json&, json& list) { list.back().front()["logprob"] = "x"; },
       "the logprob `\"x\"`"},
      {[](const json&, json& list) { list.back().front().erase("logprob"); }, "the logprob `null`"},
      {[](const json&, json& list) { list.back().front()["logprob"] = -1e300; },
       "the logprob `-1e"},
  };
  for (const auto& one : kCases) {
    std::atomic<bool> is_broken = false;
    TeacherStub server([&](const json& request, json& list) {
      if (is_broken) one.first(request, list);
    });
    RemoteTeacher teacher(server.url(), kAmple);
    teacher.start(demo_tokenizer());
    is_broken = true;
    std::mutex mutex;
    std::set<std::string> faults;
    train::run_workers(2, [&](cluster::Comm& comm) {
      const TeacherScores scores = teacher.score(some_samples(), comm, {});
      const std::lock_guard lock(mutex);
      faults.insert(scores.fault);
    });
    EXPECT_EQ(faults.size(), 1U) << "all workers end alike";
    EXPECT_THAT(*faults.begin(), HasSubstr(one.second));
    EXPECT_EQ(faults.begin()->find('\n'), std::string::npos);
  }
}

TEST(RemoteTeacherTest, AnswerIsLimited) {
  std::atomic<bool> is_long = false;
  TeacherStub server([&](const json&, json& list) {
    if (is_long) list = std::string(2 << 20, 'x');
  });
  RemoteTeacher teacher(server.url(), kAmple);
  teacher.start(demo_tokenizer());
  const int64_t before = server.scored();
  is_long = true;
  train::TrainSample sample;
  sample.tokens = {5, 6, 7};
  sample.response_begin = 1;
  EXPECT_THAT(score_alone(teacher, {sample}).fault, HasSubstr("answered more than "));
  EXPECT_EQ(server.scored() - before, 1) << "it is not tried again";
}

TEST(RemoteTeacherTest, ServerThatDiesEndsAtTheDeadline) {
  TeacherStub server;
  RemoteTeacher teacher(server.url(), /*answer_seconds=*/1);
  teacher.start(demo_tokenizer());
  server.stub().stop();
  const TeacherScores scores = score_alone(teacher, some_samples());
  EXPECT_THAT(scores.fault, StartsWith(server.stub().url("/v1/completions") + " "));
}

TEST(RemoteTeacherTest, InterruptEndsTheWait) {
  TeacherStub server;
  RemoteTeacher teacher(server.url(), kAmple);
  teacher.start(demo_tokenizer());
  server.failures = 1 << 30;
  std::atomic<int> looks = 0;
  const TeacherScores scores = score_alone(teacher, some_samples(), [&] { return ++looks > 3; });
  EXPECT_EQ(scores.fault, "");
  EXPECT_EQ(scores.logprobs.size(), some_samples().size());
}

std::string start_refusal(const std::string& url) {
  return thrown_message<InputError>([&] { RemoteTeacher(url, kAmple).start(demo_tokenizer()); });
}

TEST(RemoteTeacherTest, ServersThatCannotTeachAreRefusedAtTheStart) {
  TeacherStub other_tokens(
      [](const json&, json& list) { list[9].front()["decoded_token"] = "another"; });
  EXPECT_THAT(start_refusal(other_tokens.url()),
              HasSubstr("is `another` in the teacher's vocabulary"));
  TeacherStub without_texts([](const json&, json& list) {
    for (size_t i = 1; i < list.size(); ++i) list[i].front().erase("decoded_token");
  });
  RemoteTeacher(without_texts.url(), kAmple).start(demo_tokenizer());
  HttpStub plain([](const httplib::Request& request, httplib::Response& response) {
    if (request.path == "/v1/models")
      response.set_content(R"({"data": [{"id": "big"}]})", "application/json");
    else
      response.set_content(R"({"choices": [{"text": ""}]})", "application/json");
  });
  EXPECT_THAT(start_refusal(plain.url("/v1")), HasSubstr("which has no prompt_logprobs"));
  EXPECT_THAT(start_refusal(plain.url("/")), HasSubstr("which is no list of models"));
  HttpStub locked(
      [](const httplib::Request&, httplib::Response& response) { response.status = 401; });
  EXPECT_THAT(start_refusal(locked.url("/v1")),
              HasSubstr("set the environment variable TLT_TEACHER_API_KEY"));
  EXPECT_THAT(start_refusal("http://127.0.0.1:" + std::to_string(tests::closed_port()) + "/v1"),
              HasSubstr("start the server there"));
  EXPECT_THAT(start_refusal("http://user:word@host/v1"), HasSubstr("user or password"));
}

}  // namespace
}  // namespace tlt::rl
