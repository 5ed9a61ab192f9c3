// The tokenizer of the embedded task: 117 tokens, of which 10..99 are merges of two digits.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>

namespace tlt::data {

inline constexpr int64_t kCountdownTokens = 117;
inline constexpr int64_t kCountdownPaddedVocabulary = 120;  // rows of the model's embedding

// Writes tokenizer.json and tokenizer_config.json into the folder and creates it if needed.
void write_countdown_tokenizer(const std::filesystem::path& folder);

}  // namespace tlt::data
