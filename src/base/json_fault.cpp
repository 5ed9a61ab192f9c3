// SPDX-License-Identifier: Apache-2.0
#include "base/json_fault.h"

#include <string_view>

namespace tlt {

std::string json_fault(const std::exception& error) {
  constexpr std::string_view kName = "[json.exception.", kParse = "parse error at ",
                             kOtherType = "cannot use ";
  std::string text = error.what();
  if (!text.starts_with(kName)) return text;
  text.erase(0, text.find(' ') + 1);  // "[json.exception.type_error.302] type must be …"
  if (text.starts_with(kParse)) text.erase(0, kParse.size());
  if (!text.starts_with(kOtherType)) return text;
  const std::string type = text.substr(text.rfind(' ') + 1);  // "cannot use at() with array"
  return type == "discarded" ? "not JSON" : type + " where another type is expected";
}

}  // namespace tlt
