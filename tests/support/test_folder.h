// TestFolder: an empty folder for one test, deleted with the object.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "base/check.h"

namespace tlt {

class TestFolder {
 public:
  TestFolder() : path_((std::filesystem::temp_directory_path() / "tlt-test-XXXXXX").string()) {
    TLT_CHECK(::mkdtemp(path_.data()) != nullptr, path_);
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

  // Number of files and folders in it.
  int64_t entries() const {
    return std::distance(std::filesystem::directory_iterator(path_),
                         std::filesystem::directory_iterator());
  }

 private:
  std::string path_;
};

// The message that the call throws, or "" when it throws nothing.
template <class Exception = Error, class Call>
std::string thrown_message(const Call& call) {
  try {
    call();
  } catch (const Exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace tlt
