// SPDX-License-Identifier: Apache-2.0
#include "base/json_fault.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace tlt {
namespace {

using Json = nlohmann::json;

std::string fault_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return json_fault(error);
  }
  return "nothing was thrown";
}

// Issue 23: users read "[json.exception.type_error.306] cannot use value() with array".
TEST(JsonFaultTest, NamesOfTheLibraryAreLeftOut) {
  const Json list = Json::array({1}), object = {{"a", 1}};
  EXPECT_EQ(fault_of([&] { (void)object.at("b"); }), "key 'b' not found");
  EXPECT_EQ(fault_of([&] { (void)object.at("a").get<std::string>(); }),
            "type must be string, but is number");
  EXPECT_EQ(fault_of([&] { (void)list.at(3); }), "array index 3 is out of range");
  for (const auto& call : {std::function<void()>([&] { (void)list.at("a"); }),
                           std::function<void()>([&] { (void)list.value("a", 2); })})
    EXPECT_EQ(fault_of(call), "array where another type is expected");
  EXPECT_EQ(fault_of([] { (void)Json::parse("{", nullptr, false).at("a"); }), "not JSON");
  EXPECT_TRUE(
      fault_of([] { const Json cut = Json::parse("{\"a\": "); }).starts_with("line 1, column "));
}

TEST(JsonFaultTest, OtherTextsAreKept) {
  EXPECT_EQ(fault_of([] { throw std::runtime_error("cannot use a disk"); }), "cannot use a disk");
}

}  // namespace
}  // namespace tlt
