// SPDX-License-Identifier: Apache-2.0
#include "cli/rows.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/random.h"

namespace tlt::cli {
namespace {

TEST(NumbersTest, AreShortAndReadBackEqual) {
  RandomStream random(/*seed=*/3, {});
  std::vector<float> values = {0.1f, -0.6931472f, 1e-38f, 1e-42f, -0.0f, 0.0f, 3e38f};
  while (values.size() < 2000) values.push_back(static_cast<float>(-std::exp(8 * random.normal())));
  const std::string text = numbers(values).dump();
  EXPECT_EQ(numbers(std::vector<float>{0.1f, -0.6931472f}).dump(), "[0.1,-0.6931472]");
  const auto read = nlohmann::json::parse(text).get<std::vector<float>>();
  ASSERT_EQ(read.size(), values.size());
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(std::bit_cast<uint32_t>(read[i]), std::bit_cast<uint32_t>(values[i])) << values[i];
}

TEST(LineTest, InvalidUtf8IsReplaced) {
  EXPECT_EQ(to_line({{"text", "a\xC3"}}), "{\"text\":\"a\uFFFD\"}\n");
}

}  // namespace
}  // namespace tlt::cli
