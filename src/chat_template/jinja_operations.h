// The operators of a template: arithmetic, comparisons, access, slices.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "chat_template/jinja_value.h"

namespace tlt::chat_template {

// a + b and so on: + - * %, ~, comparisons, in, not in. JinjaFault: not possible for these values.
JinjaValue operate(std::string_view sign, const JinjaValue& a, const JinjaValue& b,
                   JinjaMeter& meter);

// value.name, value[key]; undefined if missing. JinjaFault: of an undefined value.
JinjaValue attribute_of(const JinjaValue& value, const std::string& name, JinjaMeter& meter);
JinjaValue item_of(const JinjaValue& value, const JinjaValue& key, JinjaMeter& meter);

// value[begin:end:step]; each may be none. JinjaFault: not a string, list or tuple.
struct JinjaSlice {
  JinjaValue begin = JinjaValue::none(), end = JinjaValue::none(), step = JinjaValue::none();
};
JinjaValue slice_of(const JinjaValue& value, const JinjaSlice& slice, JinjaMeter& meter);

// `part in whole`.
bool contains(const JinjaValue& whole, const JinjaValue& part, JinjaMeter& meter);

// JinjaFault: the value is undefined. All uses check this except printing, tests and loops.
void check_defined(const JinjaValue& value);

}  // namespace tlt::chat_template
