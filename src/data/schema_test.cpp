// SPDX-License-Identifier: Apache-2.0
#include "data/schema.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tlt::data {
namespace {

using Json = nlohmann::ordered_json;

TEST(SchemaTest, TypesHaveReadableNames) {
  EXPECT_EQ(type_of("x"), "text");
  EXPECT_EQ(type_of(3), "integer");
  EXPECT_EQ(type_of(3.5), "number");
  EXPECT_EQ(type_of(Json::array()), "list");
  EXPECT_EQ(
      type_of(Json::parse(R"([{"role":"user","content":"x"},{"role":"user","content":"y"}])")),
      "list of {content: text, role: text}");
  EXPECT_EQ(type_of(Json::parse(R"({"a":null,"b":[1,"x"]})")),
            "{a: null, b: list of integer or text}");
}

TEST(SchemaTest, FieldsCountTheirRows) {
  Schema schema;
  schema.add(Json::parse(R"({"a":1,"b":null})"));
  schema.add(Json::parse(R"({"a":"x"})"));
  EXPECT_EQ(schema.rows(), 2);
  const auto fields = schema.fields();
  ASSERT_EQ(fields.size(), 2U);
  EXPECT_EQ(fields[0].name, "a");
  EXPECT_EQ(fields[0].type, "integer or text");
  EXPECT_EQ(fields[0].rows, 2);
  EXPECT_EQ(fields[1].type, "null");
  EXPECT_EQ(fields[1].rows, 0);
}

TEST(SchemaTest, NumberOfTypesIsBounded) {
  Schema schema;
  for (int i = 0; i < 1000; ++i) schema.add({{"o", {{std::to_string(i), 1}}}});
  EXPECT_TRUE(schema.fields()[0].type.ends_with(" or others")) << schema.fields()[0].type;
  EXPECT_LT(schema.fields()[0].type.size(), 200U);
}

}  // namespace
}  // namespace tlt::data
