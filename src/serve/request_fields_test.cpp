// SPDX-License-Identifier: Apache-2.0
#include "serve/request_fields.h"

#include <gtest/gtest.h>

#include <functional>

#include "serve/api_error.h"

namespace tlt::serve {
namespace {

// "400 param: message" of the ApiError that the call throws; "" when it throws none.
std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const ApiError& error) {
    return std::to_string(error.status) + " " + error.param + ": " + error.what();
  }
  return "";
}

TEST(RequestFieldsTest, ValuesHaveTypeAndRange) {
  RequestFields fields(R"({"n": 3, "t": 0.5, "f": true, "s": "x", "l": ["a", "b"], "i": [1, 2],
                           "huge": 18446744073709551615, "none": null})");
  EXPECT_EQ(fields.integer("n", {.otherwise = 1, .least = 1, .most = 3}), 3);
  EXPECT_EQ(fields.number("t", 1), 0.5);
  EXPECT_EQ(fields.number("n", 1), 3);
  EXPECT_TRUE(fields.flag("f", false));
  EXPECT_EQ(fields.text("s"), "x");
  EXPECT_EQ(fields.texts("s"), std::vector<std::string>{"x"});
  EXPECT_EQ(fields.texts("l"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(fields.integers("i"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(fields.integer("none", {.otherwise = 7}), 7) << "null is absent";
  EXPECT_EQ(fields.number("absent", 2), 2);
  EXPECT_EQ(refusal([&] { fields.integer("n", {.least = 4, .most = 5}); }),
            "400 n: n is 3; give an integer from 4 to 5");
  EXPECT_EQ(refusal([&] { fields.integer("t", {.least = 0, .most = 5}); }),
            "400 t: t is 0.5; give an integer from 0 to 5");
  EXPECT_NE(refusal([&] { fields.integer("huge", {}); }), "");
  EXPECT_EQ(refusal([&] { fields.flag("n", false); }), "400 n: n is 3; give true or false");
  EXPECT_NE(refusal([&] { fields.number("s", 1); }), "");
  EXPECT_NE(refusal([&] { fields.text("n"); }), "");
  EXPECT_NE(refusal([&] { fields.texts("i"); }), "");
  EXPECT_NE(refusal([&] { fields.integers("l"); }), "");
}

TEST(RequestFieldsTest, ObjectsHaveFieldsOfTheirOwn) {
  RequestFields fields(R"({"o": {"n": 3}, "n": 1})");
  EXPECT_EQ(fields.object("o").integer("n", {}), 3);
  EXPECT_EQ(fields.object("absent").integer("n", {.otherwise = 5}), 5);
  EXPECT_EQ(refusal([&] { fields.object("o").refuse_others(); }),
            "400 n: unknown field n; docs/serving.md has those of a request");
  EXPECT_EQ(refusal([&] { fields.object("n"); }), "400 n: n is 1; give an object");
}

TEST(RequestFieldsTest, UnreadAndUnsupportedFieldsAreRefused) {
  RequestFields fields(R"({"a": 1, "user": "me", "penalty": 0.0, "bias": {"1": 2}, "none": null})");
  fields.ignore({"user"});
  fields.accept_only("penalty", 0);
  EXPECT_EQ(refusal([&] { fields.accept_only("bias", nlohmann::ordered_json::object()); }),
            "400 bias: bias is not supported; leave it out");
  EXPECT_EQ(refusal([&] { fields.refuse_others(); }),
            "400 a: unknown field a; docs/serving.md has those of a request");
  fields.find("a");
  EXPECT_EQ(refusal([&] { fields.refuse_others(); }), "");
}

TEST(RequestFieldsTest, BodyIsAnObjectWithinLimits) {
  for (const std::string& body :
       {std::string(), std::string("[]"), std::string("{\"a\": }"),
        std::string("{\"a\": \"\xFF\"}"),
        "{\"a\": " + std::string(1000, '[') + std::string(1000, ']') + "}"})
    EXPECT_TRUE(refusal([&] { RequestFields fields(body); }).starts_with("400 ")) << body;
}

TEST(ApiErrorTest, BodyHasOpenAisFields) {
  EXPECT_EQ(
      bad_request("no\nn", "n").body(),
      R"({"error":{"message":"no\\u000an","type":"invalid_request_error","param":"n","code":null}})");
  EXPECT_EQ(nlohmann::ordered_json::parse(unauthorized("\xFF").body())["error"]["code"],
            "invalid_api_key");
}

}  // namespace
}  // namespace tlt::serve
