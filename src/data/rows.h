// Rows: the JSON objects of a data file, and how to reach into them.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tlt::data {

// Calls visit(row, place) for each row of a .jsonl file (one object a line) or a .json file (a list
// of objects); the place is "file:line" or "file: row 3". InputError: no such file, another kind of
// file, a row that is not a JSON object.
void for_each_row(
    const std::string& path,
    const std::function<void(const nlohmann::json& row, const std::string& place)>& visit);

// The value under a name or, when there is none of that name, along the path that its dots describe
// ("reward_model.ground_truth"); nullptr: there is none, or it is null.
const nlohmann::json* find_field(const nlohmann::json& row, std::string_view name);

// The same; InputError when there is none: what is there, and which option names another.
const nlohmann::json& require_field(const nlohmann::json& row, std::string_view name,
                                    const std::string& place, std::string_view option);

// A text as it is, anything else as JSON.
std::string text_of(const nlohmann::json& value);

}  // namespace tlt::data
