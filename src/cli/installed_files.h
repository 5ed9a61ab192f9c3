// Files that `make install` and the wheel put next to the program: recipes and small models.
//
// Threading  any.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tlt::cli {

// The file or folder `name`, relative to the working directory; if there is none, that of the
// installation, ../share/tlt/NAME from the program, which a log line names. `name` itself if neither
// exists.
std::string find_installed(const std::string& name);

}  // namespace tlt::cli
