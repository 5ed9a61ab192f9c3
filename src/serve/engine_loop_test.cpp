// SPDX-License-Identifier: Apache-2.0
#include "serve/engine_loop.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/check.h"
#include "serve/api_error.h"
#include "tests/support/tiny_model.h"

namespace tlt::serve {
namespace {

// A text that calls `on_token` for every token, which may throw: an error inside an engine step.
class FailingText : public rollout::StopString {
 public:
  std::unique_ptr<rollout::TextStream> open() const override {
    return std::make_unique<Stream>(*this);
  }
  std::function<void()> on_token;

 private:
  class Stream : public rollout::TextStream {
   public:
    explicit Stream(const FailingText& text) : text_(text) {}
    std::string_view push(int32_t /*token*/) override {
      text_.on_token();
      return "x";
    }

   private:
    const FailingText& text_;
  };
};

class EngineLoopTest : public ::testing::Test {
 protected:
  static EngineJob job(int64_t first_sample = 0) {
    rollout::SamplingOptions sampling;
    sampling.max_new_tokens = 20;
    sampling.stop = {"no such text"};
    EngineJob job;
    job.groups.push_back({.tokens = {3, 4, 5},
                          .first_sample = first_sample,
                          .sampling = std::make_shared<const rollout::SamplingOptions>(sampling)});
    return job;
  }

  static EngineLoop::Options options() {
    EngineLoop::Options options;
    options.engine.max_running = 2;
    options.engine.kv_memory_bytes = 1 << 20;
    return options;
  }

  // Whether the request has its failure, without waiting for it.
  static bool has_failed(ResponseChannel& channel) {
    try {
      channel.wait_open(/*seconds=*/0);
      return false;
    } catch (const Error&) {
      return true;
    }
  }

  const std::unique_ptr<model::PolicyModel> model_ =
      tests::make_tiny_model(tests::tiny_config(model::Family::kQwen2), at::kFloat);
  FailingText text_;
  std::unique_ptr<EngineLoop> loop_ =
      std::make_unique<EngineLoop>(*model_, options(), &text_, nullptr);
};

// In the order of arrival: one in the engine, the one whose start fails, one that was to start next.
TEST_F(EngineLoopTest, ErrorReachesRequestsThatAreStarting) {
  const auto running = loop_->submit(job()), starting = loop_->submit(job(/*first_sample=*/-1)),
             next = loop_->submit(job());
  EXPECT_THROW(loop_->run(), Error);
  EXPECT_TRUE(has_failed(*running));
  EXPECT_TRUE(has_failed(*starting));
  EXPECT_TRUE(has_failed(*next));
  EXPECT_THROW(loop_->submit(job()), ApiError) << "closed";
}

TEST_F(EngineLoopTest, ErrorReachesRequestsThatRunOrArriveMeanwhile) {
  std::shared_ptr<ResponseChannel> late;
  text_.on_token = [&] {
    late = loop_->submit(job());
    throw Error("a planted fault");
  };
  const auto running = loop_->submit(job());
  EXPECT_THROW(loop_->run(), Error);
  EXPECT_TRUE(has_failed(*running));
  EXPECT_TRUE(has_failed(*late));
}

TEST_F(EngineLoopTest, ErrorReachesAnUpdateThatWaits) {
  std::atomic<bool> fails = false;
  text_.on_token = [&] {
    while (!fails) std::this_thread::yield();
    throw Error("a planted fault");
  };
  loop_->submit(job());
  std::thread engine([&] { EXPECT_THROW(loop_->run(), Error); });
  EngineLoop* loop = loop_.get();
  std::atomic<bool> is_called = false;
  auto update = std::async(std::launch::async, [&] {
    is_called = true;
    return loop->update_weights("/no/such/folder");
  });
  while (!is_called) std::this_thread::yield();
  // It waits now, or will find the loop closed: it must end either way.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  fails = true;
  engine.join();
  EXPECT_EQ(update.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  loop_.reset();  // breaks the promise, should it wait for ever
  EXPECT_THROW(update.get(), std::exception);
}

TEST_F(EngineLoopTest, UpdatesEndWhenTheLoopIsClosed) {
  std::vector<std::future<int64_t>> updates;
  std::thread engine([&] { loop_->run(); });
  for (int i = 0; i < 8; ++i)
    updates.push_back(
        std::async(std::launch::async, [&] { return loop_->update_weights("/no/such/folder"); }));
  loop_->close();
  engine.join();
  for (auto& update : updates) {
    EXPECT_EQ(update.wait_for(std::chrono::seconds(60)), std::future_status::ready);
    EXPECT_THROW(update.get(), Error) << "no such folder, or closed";
  }
}

TEST_F(EngineLoopTest, RequestBeforeAnUpdateHasTheWeightsBeforeIt) {
  text_.on_token = [] {};
  const auto before = loop_->submit(job());
  std::atomic<bool> is_called = false;
  auto update = std::async(std::launch::async, [&] {
    is_called = true;
    return loop_->run_while_idle([] { return true; });
  });
  while (!is_called) std::this_thread::yield();
  // The update is there when the engine begins, or comes later: the version is the same.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::thread engine([&] { loop_->run(); });
  EXPECT_EQ(before->wait_open(/*seconds=*/60), 0);
  EXPECT_EQ(update.get(), 1);
  EXPECT_EQ(loop_->submit(job())->wait_open(/*seconds=*/60), 1);
  loop_->close();
  engine.join();
}

TEST_F(EngineLoopTest, WhatNoClientWaitsForEndsWhenTheLoopIsClosed) {
  text_.on_token = [] {};
  const auto running = loop_->submit(job());
  loop_->close(/*cancels=*/true);
  loop_->run();
  EXPECT_EQ(running->wait(/*seconds=*/0).back().finish, rollout::FinishReason::kCancelled);
  EXPECT_EQ(loop_->stats().unfinished, 0);
  loop_->check_idle_invariants();
}

// Whether the loop has no room for another response.
bool is_full(EngineLoop& loop, EngineJob job) {
  try {
    loop.submit(std::move(job));
    return false;
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status, 429);
    return true;
  }
}

// Prompts to score and responses have room for three together.
TEST_F(EngineLoopTest, PromptsThatAreScoredTakeRoom) {
  text_.on_token = [] {};
  EngineLoop::Options small = options();
  small.max_waiting = 1;
  loop_ = std::make_unique<EngineLoop>(*model_, small, &text_, nullptr);
  EXPECT_THROW(loop_->score({{3, 4}, {3, 4}, {3, 4}, {3, 4}}), ApiError);
  auto scored = std::async(std::launch::async, [&] { return loop_->score({{3, 4, 5}, {3, 4}}); });
  while (loop_->stats().unfinished < 2) std::this_thread::yield();
  const auto running = loop_->submit(job());
  EXPECT_TRUE(is_full(*loop_, job()));
  EXPECT_THROW(loop_->score({{3, 4}}), ApiError);
  std::thread engine([&] { loop_->run(); });
  while (loop_->stats().engine.tokens == 0) std::this_thread::yield();  // while it decodes
  EXPECT_EQ(scored.get().logprobs.front().size(), 2u);
  EXPECT_EQ(running->wait_open(/*seconds=*/60), 0);
  loop_->close();
  engine.join();
  EXPECT_EQ(loop_->stats().unfinished, 0);
  EXPECT_THROW(loop_->score({{3, 4}}), ApiError) << "closed";
}

// A refusal is the request's own: the others continue.
TEST_F(EngineLoopTest, RefusedRequestFailsAlone) {
  text_.on_token = [] {};
  EngineJob wrong = job();
  wrong.groups.push_back(wrong.groups.front());
  wrong.groups.back().tokens = {};
  const auto good = loop_->submit(job()), refused = loop_->submit(std::move(wrong));
  loop_->close();
  loop_->run();
  EXPECT_TRUE(has_failed(*refused));
  EXPECT_FALSE(has_failed(*good));
  EXPECT_EQ(loop_->stats().unfinished, 0);
  loop_->check_idle_invariants();
}

}  // namespace
}  // namespace tlt::serve
