// What tests need of their environment: variables for a time, and whether Python is there.
//
//   const Variable variable("HF_HUB_CACHE", folder);   // until the end of the scope
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string>
#include <utility>

namespace tlt::tests {

// An environment variable while this object lives; the previous value comes back.
class Variable {
 public:
  Variable(std::string name, const std::string& value) : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str())) before_ = before;
    setenv(name_.c_str(), value.c_str(), 1);
  }
  ~Variable() {
    before_.empty() ? unsetenv(name_.c_str()) : setenv(name_.c_str(), before_.c_str(), 1);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  std::string name_, before_;
};

inline bool has_python() { return std::system("python3 -c '' >/dev/null 2>&1") == 0; }

}  // namespace tlt::tests
