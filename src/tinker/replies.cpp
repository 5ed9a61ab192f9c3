// SPDX-License-Identifier: Apache-2.0
#include "tinker/replies.h"

#include "base/check.h"
#include "base/log.h"
#include "serve/api_error.h"

namespace tlt::tinker {

using Json = nlohmann::ordered_json;
using serve::Reply;

Reply json_reply(const Json& json) {
  return {.body = json.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

Reply failed_reply(const std::string& message, Blame blame) {
  return json_reply({{"error", message}, {"category", blame == Blame::kUser ? "user" : "server"}});
}

std::optional<Reply> reply_or_failure(const std::function<std::optional<Reply>()>& work) {
  constexpr int kServerErrors = 500;
  try {
    return work();
  } catch (const InputError& error) {
    return failed_reply(error.what(), Blame::kUser);
  } catch (const serve::ApiError& error) {
    return failed_reply(error.what(), error.status < kServerErrors ? Blame::kUser : Blame::kServer);
  } catch (const std::exception& error) {
    log_warning("Tinker API: {}", error.what());
    return failed_reply(error.what(), Blame::kServer);
  }
}

void check_base_model(const std::string& base, const std::string& served) {
  if (base != served)
    throw serve::bad_request(
        "base_model is '" + base.substr(0, kMaxNameBytes) + "'; this server has " + served,
        "base_model");
}

}  // namespace tlt::tinker
