// Unicode NFC as in the Hugging Face library: its tables are those of Unicode 9, so newer combining
// marks are not reordered. Models were trained on text normalized so.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace tlt::tokenizer {

// Whether to_nfc() would certainly not change the text; most texts pass this one fast scan.
bool is_surely_nfc(std::string_view text);

// REQUIRES: valid UTF-8.
std::string to_nfc(std::string_view text);

}  // namespace tlt::tokenizer
