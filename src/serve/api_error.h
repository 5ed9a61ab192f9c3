// ApiError: a request that is refused, with the HTTP status and the fields of OpenAI's error
// object.
//
//   throw bad_request("n is 0; give at least 1", "n");
//   response.status = error.status;  response.body = error.body();
//   // {"error":{"message":"n is 0; …","type":"invalid_request_error","param":"n","code":null}}
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/check.h"

namespace tlt::serve {

struct ApiError : Error {
  ApiError(int status, std::string type, const std::string& message, std::string param = "",
           std::string code = "");

  std::string body() const;

  const int status;
  const std::string type, param, code;  // param, code: empty becomes null
};

ApiError bad_request(const std::string& message, const std::string& param = "");  // 400
ApiError unauthorized(const std::string& message);                                // 401
ApiError not_found(const std::string& message, const std::string& code);          // 404
ApiError too_many_requests(const std::string& message);                           // 429
ApiError server_error(const std::string& message);                                // 500
ApiError unavailable(const std::string& message);                                 // 503

// 415: the body is not of this type.
ApiError wrong_content_type(const std::string& wanted);

// The error that a status of the HTTP library means (404, 413 …).
ApiError error_of_status(int status, const std::string& path);

}  // namespace tlt::serve
