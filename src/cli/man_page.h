// The manual page tlt.1 in the macros of man(7).
//
// Threading  any.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/options.h"
#include "cli/command_page.h"

namespace tlt::cli {

std::string man_page(std::string_view version, std::span<const CommandPage> pages,
                     std::span<const OptionRef> options);

}  // namespace tlt::cli
