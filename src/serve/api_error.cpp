// SPDX-License-Identifier: Apache-2.0
#include "serve/api_error.h"

#include <nlohmann/json.hpp>

#include "base/sentence.h"

namespace tlt::serve {
namespace {

constexpr const char* kInvalidRequest = "invalid_request_error";

nlohmann::ordered_json or_null(const std::string& text) {
  return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
}

}  // namespace

ApiError::ApiError(int status, std::string type, const std::string& message, std::string param,
                   std::string code)
    : Error(one_sentence(message)),
      status(status),
      type(std::move(type)),
      param(std::move(param)),
      code(std::move(code)) {}

std::string ApiError::body() const {
  nlohmann::ordered_json error = {
      {"message", what()}, {"type", type}, {"param", or_null(param)}, {"code", or_null(code)}};
  return nlohmann::ordered_json{{"error", std::move(error)}}.dump(
      -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

ApiError bad_request(const std::string& message, const std::string& param) {
  return {400, kInvalidRequest, message, param};
}

ApiError unauthorized(const std::string& message) {
  return {401, "authentication_error", message, "", "invalid_api_key"};
}

ApiError not_found(const std::string& message, const std::string& code) {
  return {404, kInvalidRequest, message, "", code};
}

ApiError too_many_requests(const std::string& message) {
  return {429, "rate_limit_error", message, "", "rate_limit_exceeded"};
}

ApiError server_error(const std::string& message) { return {500, "server_error", message}; }

ApiError unavailable(const std::string& message) { return {503, "server_error", message}; }

ApiError wrong_content_type(const std::string& wanted) {
  return {415, kInvalidRequest,
          "send the body uncompressed, with the header Content-Type: " + wanted};
}

ApiError error_of_status(int status, const std::string& path) {
  switch (status) {
    case 404:
      return not_found(
          "there is no " + path + " for this method; docs/serving.md has the addresses",
          "not_found");
    case 413:
      return {413, kInvalidRequest,
              "the body is larger than this server accepts; send less, or start it with a larger "
              "--max-body"};
    default:
      return {status, status >= 500 ? "server_error" : kInvalidRequest,
              "this is not a request of HTTP/1.1 that the server can read"};
  }
}

}  // namespace tlt::serve
