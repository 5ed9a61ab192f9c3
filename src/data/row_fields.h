// The fields of a data row: its answer, its data source and what else its reward may read; for `tlt
// sft` its response or its conversation.
//
//   verl      prompt, reward_model.ground_truth, data_source, extra_info
//   slime     prompt, label, metadata (with source_name)
//   TRL       prompt, and columns that rewards know by name: solution, ground_truth …; completion
//   ShareGPT  conversations: [{from, value}]
//
// A format is recognised if the option that names the field (data.answer_key, reward_fn_key,
// response_key) has its default; keys that are set are used literally.
//
// Not here   the prompt (prompt_renderer.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "data/data_options.h"

namespace tlt::data {

// InputError: the prompt is neither a text nor a list (a missing prompt is no error here).
void check_prompt_type(const nlohmann::ordered_json& row, const DataOptions& options,
                       const std::string& place);

// The prompt of a row. InputError: none; for a row in another known format, how to read it.
const nlohmann::ordered_json& require_prompt(const nlohmann::ordered_json& row,
                                             const DataOptions& options, const std::string& place);

// Field with the response or the conversation to imitate; empty: none.
std::string response_field(const nlohmann::ordered_json& row, const DataOptions& options);
std::string conversation_field(const nlohmann::ordered_json& row);

// The messages of conversation_field() or, if both are lists, those of the prompt and the response;
// null: neither exists. InputError: malformed ShareGPT messages.
nlohmann::ordered_json conversation_of(const nlohmann::ordered_json& row,
                                       const DataOptions& options, const std::string& place);

// ShareGPT's messages, {from, value}, as {role, content}; others are unchanged. InputError: neither.
nlohmann::ordered_json as_messages(const nlohmann::ordered_json& list, const std::string& place);

// Fields with the row's answer and its data source; empty: none.
std::string answer_field(const nlohmann::ordered_json& row, const DataOptions& options);
std::string source_field(const nlohmann::ordered_json& row, const DataOptions& options);

// Fields that a row must have besides its prompt, because a reward reads them. A field whose option
// is set is required too.
struct RequiredFields {
  bool ground_truth = false;
  bool data_source = false;
};

// The answer, or its part after data.answer_after; empty: the row has none. InputError: it is
// required.
std::string ground_truth_of(const nlohmann::ordered_json& row, const DataOptions& options,
                            const std::string& place, bool is_required);

// Empty: the row has none. InputError: it is required.
std::string data_source_of(const nlohmann::ordered_json& row, const DataOptions& options,
                           const std::string& place, bool is_required);

// The messages of a conversational prompt; null: the prompt is a text.
nlohmann::ordered_json prompt_messages(const nlohmann::ordered_json& row,
                                       const DataOptions& options);

// extra_info, or slime's metadata, or all columns except the prompt: TRL's rewards read them by
// name.
nlohmann::ordered_json extra_info_of(const nlohmann::ordered_json& row, const DataOptions& options);

}  // namespace tlt::data
