// Messages of a chat request in the form that chat templates expect.
//
// Threading  any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

namespace tlt::serve {

// Text parts of a content become one string, arguments of tool calls become objects. ApiError: not
// a list of messages, a part that is not text, arguments that are not JSON.
nlohmann::ordered_json template_messages(const nlohmann::ordered_json& messages);

// ApiError: not a list of {"type": "function", "function": {"name", …}}.
void check_tools(const nlohmann::ordered_json& tools);

}  // namespace tlt::serve
