// TokenizerJson: the content of a tokenizer.json, read and checked, before the tables are built.
// The components that it may name are here and in normalizer.h, pre_tokenizer.h and
// token_decoder.h; all sizes are bounded.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/token_decoder.h"

namespace tlt::tokenizer {

struct TokenizerJson {
  PreTokenizer pre_tokenizer;
  Normalizer normalizer;
  TokenDecoder decoder;
  Bpe::Options bpe;
  std::unordered_map<std::string, int32_t> vocabulary;  // the model's tokens as written
  std::vector<Bpe::Merge> merges;
  std::vector<AddedToken> added_tokens;

  // InputError, beginning with `name`, when something is wrong or not supported.
  static TokenizerJson parse(std::string_view json, const std::string& name);
};

}  // namespace tlt::tokenizer
