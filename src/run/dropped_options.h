// Options that earlier versions had: what each is now. A new one to drop needs a line in
// dropped_options.cpp and in the CHANGELOG.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tlt::run {

struct DroppedOption {
  std::string_view name;
  std::string_view value;    // the constant, or the default, as to_text() writes it
  std::string_view instead;  // what to set for another effect; empty: there is nothing
  bool is_merged = false;    // another option has its effect: `instead` begins with that one's name
};

std::span<const DroppedOption> dropped_options();

// What replaced a dropped option, as the end of a sentence: "it is always 1 now" or "replaced by
// speculative.memory_bytes". Empty: the name is not one of a dropped option.
std::string dropped_option(std::string_view name);

// Whether `value`, as to_text() writes it, is that of the constant that replaced the option.
bool is_dropped_value(std::string_view name, std::string_view value);

// The lines "name = value" of an earlier version's options_digest() without those of dropped
// options that had the value of the constant: the run is the same without them.
std::string without_dropped_options(std::string_view digest);

}  // namespace tlt::run
