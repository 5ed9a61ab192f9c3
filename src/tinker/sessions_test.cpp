// SPDX-License-Identifier: Apache-2.0
#include "tinker/sessions.h"

#include <gtest/gtest.h>

#include "serve/api_error.h"

namespace tlt::tinker {
namespace {

TEST(SessionsTest, EndOnceAndAreUnknownAfterwards) {
  std::vector<std::string> ended;
  Sessions sessions({}, [&](const std::string& id) { ended.push_back(id); });
  const std::string first = sessions.create(), second = sessions.create();
  EXPECT_NE(first, second);
  EXPECT_FALSE(sessions.is_silent(first));
  sessions.end(first);
  EXPECT_EQ(ended, std::vector{first});
  EXPECT_TRUE(sessions.is_silent(first));
  EXPECT_THROW(sessions.touch(first), serve::ApiError);
  EXPECT_THROW(sessions.end(first), serve::ApiError);
  sessions.touch(second);
  EXPECT_EQ(ended.size(), 1U);
}

TEST(SessionsTest, SilentOnesEndWhenAnotherBegins) {
  FakeClock clock;
  std::vector<std::string> ended;
  Sessions sessions({.clock = &clock}, [&](const std::string& id) { ended.push_back(id); });
  const std::string first = sessions.create(), second = sessions.create();
  clock.advance(3000);
  EXPECT_TRUE(sessions.is_silent(first));
  sessions.touch(second);
  EXPECT_FALSE(sessions.is_silent(second));
  sessions.create();
  EXPECT_TRUE(ended.empty());
  clock.advance(601);
  sessions.create();
  EXPECT_EQ(ended, std::vector{first});
}

TEST(SessionsTest, OnlyWithoutRoomDoesAMinuteOfSilenceEndThem) {
  FakeClock clock;
  size_t ended = 0;
  Sessions sessions({.clock = &clock}, [&](const std::string&) { ++ended; });
  for (size_t i = 0; i < Sessions::kMaxSessions; ++i) sessions.create();
  clock.advance(59);
  EXPECT_THROW(sessions.create(), serve::ApiError);
  clock.advance(2);
  sessions.create();
  EXPECT_EQ(ended, Sessions::kMaxSessions);
}

}  // namespace
}  // namespace tlt::tinker
