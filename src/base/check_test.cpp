// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace tlt {
namespace {

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(CheckTest, ErrorNamesFileLineConditionAndValues) {
  const int line = __LINE__ + 1;
  const std::string message = message_of([] { TLT_CHECK(1 + 1 == 3, "page ", 7, " of ", 2.5); });
  EXPECT_NE(message.find("check_test.cpp:" + std::to_string(line) + ": "), std::string::npos)
      << message;
  EXPECT_NE(message.find("check failed: 1 + 1 == 3: page 7 of 2.5"), std::string::npos) << message;
}

TEST(CheckTest, ErrorWithoutMessageEndsWithTheCondition) {
  EXPECT_TRUE(message_of([] { TLT_CHECK(false); }).ends_with("check failed: false"));
}

TEST(CheckTest, InputErrorHasTheMessageOnly) {
  EXPECT_EQ(message_of([] { TLT_CHECK_INPUT(false, "rollout.n is ", 0, "; give at least 1"); }),
            "rollout.n is 0; give at least 1");
}

TEST(CheckTest, InputErrorIsOneSentenceWhateverItQuotes) {
  const std::string line = message_of([] { TLT_CHECK_INPUT(false, "no option: a\nb"); });
  EXPECT_EQ(line, "no option: a\\u000ab");
  const std::string quoted(5000, 'x');
  const std::string message = message_of([&] { throw InputError(quoted + "; give a short one"); });
  EXPECT_LE(message.size(), 1000u);
  EXPECT_TRUE(message.ends_with("; give a short one")) << message;
}

TEST(CheckTest, InputErrorIsAnErrorButNotViceVersa) {
  EXPECT_THROW(TLT_CHECK_INPUT(false, ""), InputError);
  EXPECT_THROW(TLT_CHECK_INPUT(false, ""), Error);
  try {
    TLT_CHECK(false);
  } catch (const InputError&) {
    FAIL() << "a bug is not the user's mistake";
  } catch (const Error&) {
  }
}

TEST(CheckTest, TrueConditionDoesNotEvaluateTheMessage) {
  int texts = 0;
  TLT_CHECK(true, ++texts);
  TLT_CHECK_INPUT(true, ++texts);
  EXPECT_EQ(texts, 0);
}

TEST(CheckTest, ConditionIsEvaluatedOnce) {
  int evaluations = 0;
  TLT_CHECK(++evaluations > 0);
  TLT_CHECK_INPUT(++evaluations > 0, "");
  EXPECT_EQ(evaluations, 2);
}

TEST(CheckTest, MacroIsOneStatement) {
  const bool never = false;
  if (never)
    TLT_CHECK(false);
  else
    SUCCEED();
}

TEST(CheckTest, DebugCheckIsOffInReleaseBuilds) {
#ifdef NDEBUG
  EXPECT_NO_THROW(TLT_DCHECK(false));
#else
  EXPECT_THROW(TLT_DCHECK(false), Error);
#endif
}

}  // namespace
}  // namespace tlt
