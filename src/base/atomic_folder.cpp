// SPDX-License-Identifier: Apache-2.0
#include "base/atomic_folder.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "base/files.h"

namespace tlt {

namespace fs = std::filesystem;

AtomicFolder::AtomicFolder(const std::string& path)
    : final_(path), unfinished_(path + kUnfinished) {
  fs::remove_all(unfinished_);
  make_folder(unfinished_);
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  fs::remove_all(unfinished_, ignored);
}

void AtomicFolder::commit() {
  sync_folder(unfinished_);
  fs::remove_all(final_);
  if (::rename(unfinished_.c_str(), final_.c_str()) != 0)
    throw_file_error(final_, "replace", errno);
  sync_folder(fs::absolute(final_).parent_path().string());
}

void remove_unfinished(const std::string& folder) {
  std::vector<fs::path> found;
  if (fs::is_directory(folder))
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().extension() == kUnfinished) found.push_back(entry.path());
  for (const fs::path& path : found) fs::remove_all(path);
}

}  // namespace tlt
