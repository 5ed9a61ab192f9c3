// What a row's fields are to a run: its answer, its data source and what else its reward may read,
// in the forms of verl, slime and TRL.
//
//   verl    prompt, reward_model.ground_truth, data_source, extra_info
//   slime   prompt, label, metadata (with source_name)
//   TRL     prompt, and columns that rewards know by name: solution, ground_truth …
//
// A form is recognised where data.answer_key and data.reward_fn_key are what they are by default;
// keys that are set mean what they say.
//
// Not here   the prompt (prompt_renderer.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "data/data_options.h"

namespace tlt::data {

// InputError: the prompt is neither a text nor a list (nothing is said of one that is not there).
void check_prompt_type(const nlohmann::ordered_json& row, const DataOptions& options,
                       const std::string& place);

// Where the row has its answer and its data source; empty: nowhere.
std::string answer_field(const nlohmann::ordered_json& row, const DataOptions& options);
std::string source_field(const nlohmann::ordered_json& row, const DataOptions& options);

// The answer, or what follows data.answer_after in it. InputError: none.
std::string ground_truth_of(const nlohmann::ordered_json& row, const DataOptions& options,
                            const std::string& place);

// InputError: none.
std::string data_source_of(const nlohmann::ordered_json& row, const DataOptions& options,
                           const std::string& place);

// extra_info, or slime's metadata, or the columns that are nothing else (of a prompt made by
// data.prompt_template: none).
nlohmann::ordered_json extra_info_of(const nlohmann::ordered_json& row, const DataOptions& options);

}  // namespace tlt::data
