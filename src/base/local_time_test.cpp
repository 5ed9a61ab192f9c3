// SPDX-License-Identifier: Apache-2.0
#include "base/local_time.h"

#include <gtest/gtest.h>

#include <array>

#include "base/check.h"

namespace tlt {
namespace {

std::string shown(const std::tm& time, const char* format) {
  std::array<char, 99> text{};
  return {text.data(), std::strftime(text.data(), text.size(), format, &time)};
}

TEST(LocalTimeTest, TextHasAllThatATemplateCanPrint) {
  const std::tm now = local_time_now(), read = parse_local_time(time_text(now), "run.json");
  constexpr const char* kAll = "%A %d %B %Y %H:%M:%S %j %U %u [%z%Z]";
  EXPECT_EQ(shown(read, kAll), shown(now, kAll));
  EXPECT_EQ(shown(parse_local_time("2024-02-29T23:05:01", ""), kAll),
            "Thursday 29 February 2024 23:05:01 060 08 4 []");
}

TEST(LocalTimeTest, OtherTextsAreRefused) {
  for (const char* text : {"", "2024-02-29", "2024-02-29T23:05:01Z", "yesterday"})
    EXPECT_THROW(parse_local_time(text, "run.json"), InputError) << text;
}

}  // namespace
}  // namespace tlt
