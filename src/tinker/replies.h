// The answers of the Tinker API, and the fields that several of its requests have.
//
// Threading  any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "serve/route.h"

namespace tlt::tinker {

// Bytes of a client's text that a message repeats, and of a name.
constexpr size_t kMaxNameBytes = 128;

serve::Reply json_reply(const nlohmann::ordered_json& json);

// Who is to blame for a failed request: the client's RequestErrorCategory.
enum class Blame { kUser, kServer };

// The answer for a request that failed after it was accepted.
serve::Reply failed_reply(const std::string& message, Blame blame);

// What `work` returns; or, if it throws, an answer that blames the user for an InputError or an
// ApiError below 500, and the server for others.
std::optional<serve::Reply> reply_or_failure(
    const std::function<std::optional<serve::Reply>()>& work);

// ApiError (400) unless the base_model of a request is the server's.
void check_base_model(const std::string& base, const std::string& served);

}  // namespace tlt::tinker
