// Unicode NFC as the Hugging Face library does it: its tables are those of Unicode 9, so a
// combining mark that is newer stays where it is. Models saw their training text so.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace tlt::data {

// True for a text that to_nfc() would not change; most texts are found out in one fast pass.
bool is_surely_nfc(std::string_view text);

// REQUIRES: valid UTF-8.
std::string to_nfc(std::string_view text);

}  // namespace tlt::data
