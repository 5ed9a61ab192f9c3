// SPDX-License-Identifier: Apache-2.0
#include "base/json_count.h"

#include <gtest/gtest.h>

#include <string>

#include "base/json_fault.h"

namespace tlt {
namespace {

using Json = nlohmann::json;

template <class T>
std::string fault_of(const char* text) {
  try {
    return std::to_string(json_count<T>(Json::parse(text), "n"));
  } catch (const Json::exception& error) {
    return json_fault(error);
  }
}

TEST(JsonCountTest, IntegersOfTheTypeAreRead) {
  EXPECT_EQ(fault_of<int64_t>(R"({"n": 0})"), "0");
  EXPECT_EQ(fault_of<int64_t>(R"({"n": 9223372036854775807})"), "9223372036854775807");
  EXPECT_EQ(fault_of<uint64_t>(R"({"n": 18446744073709551615})"), "18446744073709551615");
  EXPECT_EQ(fault_of<uint32_t>(R"({"n": 4294967295})"), "4294967295");
  EXPECT_EQ(json_count(Json{{"n", int64_t{7}}}, "n"), 7);  // signed, as made in C++
  EXPECT_EQ(json_count<int32_t>(Json::array({5, 6}), 1), 6);
}

TEST(JsonCountTest, OtherValuesAreRefused) {
  for (const char* text : {R"({"n": -1})", R"({"n": 2.5})", R"({"n": 1e30})", R"({"n": true})",
                           R"({"n": "3"})", R"({"n": null})", R"({"n": [1]})",
                           R"({"n": 9223372036854775808})", R"({"n": 999999999999999999999999})"})
    EXPECT_EQ(fault_of<int64_t>(text), "n is not a count") << text;
  EXPECT_EQ(fault_of<int32_t>(R"({"n": 2147483648})"), "n is not a count");
  EXPECT_EQ(fault_of<uint32_t>(R"({"n": 4294967296})"), "n is not a count");
  EXPECT_EQ(fault_of<int64_t>("{}"), "key 'n' not found");
  EXPECT_EQ(fault_of<int64_t>("[]"), "array where another type is expected");
}

TEST(JsonCountTest, AMissingOneHasADefault) {
  EXPECT_EQ(json_count(Json::object(), "n", int64_t{4}), 4);
  EXPECT_EQ(json_count(Json{{"n", 3}}, "n", int64_t{4}), 3);
  EXPECT_THROW(json_count(Json{{"n", -3}}, "n", int64_t{4}), Json::exception);
  EXPECT_THROW(json_count(Json::array(), "n", int64_t{4}), Json::exception);
}

}  // namespace
}  // namespace tlt
