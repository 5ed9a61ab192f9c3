// SPDX-License-Identifier: Apache-2.0
#include "cli/installed_files.h"

#include <filesystem>
#include <system_error>

#include "base/log.h"

namespace tlt::cli {

namespace fs = std::filesystem;

std::string find_installed(const std::string& name) {
  std::error_code failed;
  if (name.empty() || fs::path(name).is_absolute() || fs::exists(name, failed)) return name;
  const fs::path program = fs::read_symlink("/proc/self/exe", failed);
  if (failed) return name;
  const fs::path file = program.parent_path().parent_path() / "share" / "tlt" / name;
  if (!fs::exists(file, failed)) return name;
  log_info("{}: not here; the installed {}", name, file.string());
  return file.string();
}

}  // namespace tlt::cli
