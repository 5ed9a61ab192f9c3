// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"

#include "base/sentence.h"

namespace tlt {

InputError::InputError(const std::string& text) : Error(one_sentence(text)) {}

namespace check_internal {

void fail(const char* file, int line, const char* condition, const std::string& text) {
  throw Error(
      concat(file, ":", line, ": check failed: ", condition, text.empty() ? "" : ": ", text));
}

}  // namespace check_internal
}  // namespace tlt
