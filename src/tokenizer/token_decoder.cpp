// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/token_decoder.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/json_count.h"
#include "base/utf8.h"
#include "tokenizer/metaspace.h"

namespace tlt::tokenizer {
namespace {

constexpr size_t kMaxDecoders = 16;
constexpr std::string_view kUnknownCharacter = "\uFFFD";

// The byte of a token like "<0xE6>".
std::optional<char> byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  uint8_t byte = 0;
  const auto [end, error] = std::from_chars(&token[3], &token[5], byte, 16);
  if (error != std::errc() || end != &token[5]) return std::nullopt;
  return static_cast<char>(byte);
}

// Removes a character from the beginning, at most `most` times.
int64_t strip_begin(std::string_view& text, std::string_view character, int64_t most) {
  int64_t count = 0;
  for (; count < most && text.starts_with(character); ++count) text.remove_prefix(character.size());
  return count;
}

void strip_end(std::string_view& text, std::string_view character, int64_t most) {
  for (; most > 0 && text.ends_with(character); --most) text.remove_suffix(character.size());
}

}  // namespace

TokenDecoder::TokenDecoder(const nlohmann::json& description) {
  TLT_CHECK_INPUT(!description.is_null(),
                  "decoder of type null is not supported; known: ByteLevel, Fuse, Metaspace, "
                  "Sequence");
  Stage stage = Stage::kTokens;
  add_steps(description, stage);
}

void TokenDecoder::add_steps(const nlohmann::json& description, Stage& stage) {
  const auto type = description.at("type").get<std::string>();
  const auto require = [&](bool is_in_order) {
    TLT_CHECK_INPUT(is_in_order, "decoder: ", type, " is not supported in this place");
  };
  TLT_CHECK_INPUT(steps_.size() < kMaxDecoders, "decoder: more than ", kMaxDecoders, " steps");
  if (type == "Sequence") {
    for (const auto& part : description.at("decoders")) add_steps(part, stage);
  } else if (type == "ByteLevel") {
    require(steps_.empty() && stage == Stage::kTokens);
    is_byte_level_ = true;
    stage = Stage::kDone;
  } else if (type == "Replace") {
    require(stage == Stage::kTokens);
    steps_.push_back({.replacement = Replacement(description)});
  } else if (type == "Metaspace") {
    require(stage == Stage::kTokens);
    const Metaspace metaspace(description);
    steps_.push_back({.replacement = Replacement(metaspace.mark, " ")});
    if (metaspace.scheme == Metaspace::Scheme::kNever) return;
    steps_.back().first_replacement.emplace(metaspace.mark, "");
    first_differs_ = true;
  } else if (type == "ByteFallback") {
    require(stage == Stage::kTokens);
    falls_back_ = true;
    stage = Stage::kBytes;
  } else if (type == "Fuse") {
    require(stage == Stage::kTokens || stage == Stage::kBytes);
    stage = Stage::kFused;
  } else if (type == "Strip") {
    require(stage == Stage::kTokens || stage == Stage::kFused);
    add_strip(description, stage);
  } else {
    throw InputError("decoder of type " + type +
                     " is not supported; known: ByteLevel, ByteFallback, Fuse, Metaspace, Replace, "
                     "Sequence, Strip");
  }
}

void TokenDecoder::add_strip(const nlohmann::json& description, Stage& stage) {
  const auto character = description.at("content").get<std::string>();
  const auto at_begin = json_count<uint32_t>(description, "start"),
             at_end = json_count<uint32_t>(description, "stop");
  TLT_CHECK_INPUT(!character.empty() && next_utf8(character).bytes == character.size(),
                  "decoder: Strip of \"", character, "\", which is not one character");
  if (stage == Stage::kTokens) {
    steps_.push_back({.stripped = character, .at_begin = at_begin, .at_end = at_end});
    return;
  }
  TLT_CHECK_INPUT(at_end == 0, "decoder: Strip with stop = ", at_end, " is not supported");
  stripped_ = character;
  strips_ = at_begin;
  stage = Stage::kDone;
}

std::string TokenDecoder::bytes_of(std::string_view token, bool is_first) {
  std::string now(token), next;
  RegexBudget budget(token);
  const RewriteLimits limits("decoder", token, budget);
  for (Step& step : steps_) {
    auto& replacement =
        is_first && step.first_replacement ? step.first_replacement : step.replacement;
    if (replacement) {
      if (replacement->try_apply(now, limits, next)) now.swap(next);
      continue;
    }
    std::string_view rest = now;
    strip_begin(rest, step.stripped, step.at_begin);
    strip_end(rest, step.stripped, step.at_end);
    now = std::string(rest);
  }
  return now;
}

TokenPiece TokenDecoder::piece(std::string_view token) {
  if (is_byte_level_) {
    auto bytes = byte_level_bytes(token);
    return {.bytes = bytes ? std::move(*bytes) : std::string(token)};
  }
  TokenPiece made{.bytes = bytes_of(token, /*is_first=*/false)};
  if (first_differs_) made.first_bytes = bytes_of(token, /*is_first=*/true);
  if (const auto byte = falls_back_ ? byte_of(made.bytes) : std::nullopt) {
    made.bytes.assign(1, *byte);
    made.is_byte = true;
  }
  return made;
}

void DecodeStream::restart() {
  is_first_ = true;
  strips_left_ = decoder_->strips_;
  held_.clear();
}

void DecodeStream::emit(std::string_view part, std::string& text) {
  if (strips_left_ > 0) {
    strips_left_ -= strip_begin(part, decoder_->stripped_, strips_left_);
    if (!part.empty()) strips_left_ = 0;
  }
  text += part;
}

void DecodeStream::end_run(std::string& text) {
  if (held_.empty()) return;
  if (is_valid_utf8(held_)) {
    emit(held_, text);
  } else {
    for (size_t i = 0; i < held_.size(); ++i) emit(kUnknownCharacter, text);
  }
  held_.clear();
}

void DecodeStream::push(const TokenPiece& piece, std::string& text) {
  const bool is_first = std::exchange(is_first_, false) && decoder_->first_differs_;
  if (decoder_->is_byte_level_) {
    held_ += piece.bytes;
    held_.erase(0, append_lossy(text, held_, /*is_last=*/false));
  } else if (piece.is_byte) {
    held_ += piece.bytes;
  } else {
    end_run(text);
    emit(is_first ? piece.first_bytes : piece.bytes, text);
  }
}

void DecodeStream::finish(std::string& text) {
  if (decoder_->is_byte_level_) {
    append_lossy(text, held_, /*is_last=*/true);
  } else {
    end_run(text);
  }
  restart();
}

}  // namespace tlt::tokenizer
