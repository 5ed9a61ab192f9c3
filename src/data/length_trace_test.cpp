// SPDX-License-Identifier: Apache-2.0
#include "data/length_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "base/files.h"
#include "tests/support/test_folder.h"

namespace tlt::data {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

std::map<int64_t, double> parse(const char* text) {
  return LengthTrace::parse_histogram(text, "here");
}

TEST(LengthTraceTest, HistogramIsAPythonDictionary) {
  EXPECT_THAT(parse("{757: 0.25, 9: 5e-1, 11: 0.0}"), ElementsAre(Pair(9, 0.5), Pair(757, 0.25)));
  EXPECT_TRUE(parse("{}").empty());
  for (const char* bad : {"", "{", "757: 1", "{a: 1}", "{7: }", "{7 1}", "{-7: 1}", "{7: -1}",
                          "{7: nan}", "{7: 1; 8: 1}", "{0: 1}"})
    EXPECT_THROW(parse(bad), InputError) << bad;
}

TEST(LengthTraceTest, NonEmptyWindowsHaveEqualWeight) {
  const TestFolder folder;
  write_file_atomic(folder / "a-dataset.json",
                    R"({"0": {"output_tokens": "{10: 2.0}"}, "1": {"output_tokens": "{}"}})");
  write_file_atomic(folder / "b-dataset.json", R"({"0": {"output_tokens": "{20: 0.5, 40: 0.5}"}})");
  const LengthTrace one = LengthTrace::read(folder / "a-dataset.json");
  EXPECT_EQ(one.mean(), 10);
  const LengthTrace all = LengthTrace::read(folder.path());
  EXPECT_EQ(all.mean(), 20);
  EXPECT_EQ(all.longest(), 40);
  EXPECT_EQ(all.quantile(0.4), 10);
  EXPECT_EQ(all.quantile(0.9), 40);
  RandomStream random(1, {});
  std::map<int64_t, int> samples;
  for (int i = 0; i < 4000; ++i) ++samples[all.sample(random)];
  EXPECT_NEAR(samples[10], 2000, 150);
  EXPECT_NEAR(samples[20], 1000, 150);
  EXPECT_EQ(samples[10] + samples[20] + samples[40], 4000);
  write_file_atomic(folder / "b-dataset.json", "[]");
  EXPECT_THROW(LengthTrace::read(folder.path()), InputError);
  EXPECT_THROW(LengthTrace::read(folder / "none"), InputError);
}

}  // namespace
}  // namespace tlt::data
