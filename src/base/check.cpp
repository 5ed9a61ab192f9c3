// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"

namespace tlt::check_internal {

void fail(const char* file, int line, const char* condition, const std::string& text) {
  throw Error(
      concat(file, ":", line, ": check failed: ", condition, text.empty() ? "" : ": ", text));
}

}  // namespace tlt::check_internal
