// json_count: a count of a JSON object or list. The get() of nlohmann/json converts 2.5, true and
// 1e30 without a check.
//
//   const auto steps = json_count(json, "steps");    // else: "steps is not a count"
//   const auto rows = json_count<int32_t>(list, 2);  // list[2]
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

namespace tlt {

// Throws nlohmann::json::exception if it is missing, or not an integer from 0 to the largest T.
template <std::integral T = int64_t, class Json, class Key>
T json_count(const Json& parent, const Key& key) {
  const Json& value = parent.at(key);
  const bool is_count = value.is_number_unsigned() ||
                        (value.is_number_integer() && value.template get<int64_t>() >= 0);
  if (!is_count || !std::in_range<T>(value.template get<uint64_t>()))
    throw nlohmann::json::type_error::create(302, fmt::format("{} is not a count", key), &value);
  return value.template get<T>();
}

// The same; `otherwise` if the object has no such key.
template <std::integral T, class Json>
T json_count(const Json& parent, const char* key, T otherwise) {
  const bool is_missing = parent.is_object() && !parent.contains(key);
  return is_missing ? otherwise : json_count<T>(parent, key);
}

}  // namespace tlt
