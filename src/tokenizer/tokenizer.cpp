// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/check.h"
#include "base/files.h"
#include "base/json_limits.h"
#include "base/utf8.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/token_decoder.h"
#include "tokenizer/tokenizer_json.h"

namespace tlt::tokenizer {
namespace {

constexpr int64_t kMaxTokenizerBytes = int64_t{256} << 20;
constexpr size_t kMaxEos = 1000;

AddedTokens select(std::vector<AddedToken> tokens, bool is_normalized, Normalizer normalizer) {
  std::erase_if(tokens,
                [&](const AddedToken& token) { return token.is_normalized != is_normalized; });
  std::string buffer;
  for (AddedToken& token : tokens) {
    RegexBudget budget(token.text);
    if (is_normalized) token.text = std::string(normalizer.apply(token.text, budget, buffer));
  }
  return AddedTokens(std::move(tokens));
}

Bpe make_bpe(TokenizerJson& json) {
  const bool is_byte_level = json.bpe.is_byte_level;
  std::unordered_map<std::string, int32_t> words;
  words.reserve(json.vocabulary.size());
  for (const auto& [text, id] : json.vocabulary) {
    // A token that is not in the byte-level alphabet cannot come from merges of bytes.
    if (auto bytes = is_byte_level ? byte_level_bytes(text) : std::optional(text))
      words.emplace(std::move(*bytes), id);
  }
  return Bpe(std::move(words), json.merges, json.bpe);
}

}  // namespace

struct Tokenizer::Core {
  // Buffers of one encode() call.
  struct Scratch {
    explicit Scratch(const Core& core)
        : normalizer(core.normalizer), pre_tokenizer(core.pre_tokenizer) {}
    Normalizer normalizer;
    PreTokenizer pre_tokenizer;
    std::string normalized;
    WordCache cache;
    std::vector<AddedTokens::Piece> pieces, normalized_pieces;
    std::vector<std::string_view> words;
  };
  struct Token {
    std::string text;
    TokenPiece piece;
    bool is_special = false;
  };

  explicit Core(TokenizerJson json);

  void name_token(const std::string& text, int32_t id);
  std::unique_ptr<Scratch> take_scratch() const;
  void encode(std::string_view text, Scratch& scratch, std::vector<int32_t>& tokens) const;
  void encode_plain(std::string_view text, bool begins_text, RegexBudget& budget, Scratch& scratch,
                    std::vector<int32_t>& tokens) const;
  void encode_part(std::string_view part, WordCache& cache, std::vector<int32_t>& tokens) const;

  AddedTokens raw_added, normalized_added;
  Bpe bpe;
  std::vector<Token> tokens;                          // by id
  std::unordered_map<std::string_view, int32_t> ids;  // keys point into `tokens`
  TokenDecoder decoder;
  Normalizer normalizer;  // copied into each scratch, as is the next:
  PreTokenizer pre_tokenizer;

  mutable std::mutex mutex;
  mutable std::vector<std::unique_ptr<Scratch>> free_scratch;  // protected by mutex
};

// Ids may have gaps; a damaged one must not allocate memory for millions of tokens.
constexpr int64_t kIdsBeyondTokens = 1 << 17, kIdsOfAToken = 4;

Tokenizer::Core::Core(TokenizerJson json)
    : raw_added(select(json.added_tokens, /*is_normalized=*/false, json.normalizer)),
      normalized_added(select(json.added_tokens, /*is_normalized=*/true, json.normalizer)),
      bpe(make_bpe(json)),
      decoder(std::move(json.decoder)),
      normalizer(std::move(json.normalizer)),
      pre_tokenizer(std::move(json.pre_tokenizer)) {
  int32_t largest = -1;
  for (const auto& [text, id] : json.vocabulary) largest = std::max(largest, id);
  for (const AddedToken& added : json.added_tokens) largest = std::max(largest, added.id);
  const auto named = static_cast<int64_t>(json.vocabulary.size() + json.added_tokens.size());
  TLT_CHECK_INPUT(largest < kIdsBeyondTokens + kIdsOfAToken * named, "token id ", largest,
                  " is far beyond those of ", named, " tokens; the file is damaged");
  tokens.resize(largest + 1);
  ids.reserve(tokens.size());
  for (const auto& [text, id] : json.vocabulary) name_token(text, id);
  for (const AddedToken& added : json.added_tokens) {
    name_token(added.text, added.id);
    tokens[added.id].is_special |= added.is_special;
  }
  for (Token& token : tokens) token.piece = decoder.piece(token.text);
  std::string buffer;  // the library decodes these tokens unchanged, too
  for (const AddedToken& added : json.added_tokens) {
    RegexBudget budget(added.text);
    if (added.is_normalized)
      tokens[added.id].piece = decoder.piece(normalizer.apply(added.text, budget, buffer));
  }
}

void Tokenizer::Core::name_token(const std::string& text, int32_t id) {
  Token& token = tokens[id];
  if (token.text == text) return;
  TLT_CHECK_INPUT(token.text.empty(), "tokens \"", token.text, "\" and \"", text,
                  "\" have the same id ", id);
  token.text = text;
  const auto [known, is_new] = ids.emplace(token.text, id);
  TLT_CHECK_INPUT(is_new, "token \"", text, "\" has two ids, ", known->second, " and ", id);
}

std::unique_ptr<Tokenizer::Core::Scratch> Tokenizer::Core::take_scratch() const {
  const std::lock_guard lock(mutex);
  if (free_scratch.empty()) return std::make_unique<Scratch>(*this);
  auto scratch = std::move(free_scratch.back());
  free_scratch.pop_back();
  return scratch;
}

void Tokenizer::Core::encode(std::string_view text, Scratch& scratch,
                             std::vector<int32_t>& out) const {
  RegexBudget budget(text);
  raw_added.split(text, scratch.pieces);
  for (const auto& piece : scratch.pieces) {
    if (piece.id != AddedTokens::kText) {
      out.push_back(piece.id);
      continue;
    }
    const bool begins_text = piece.text.data() == text.data();
    const std::string_view plain = scratch.normalizer.apply(piece.text, budget, scratch.normalized);
    if (normalized_added.is_empty()) {
      encode_plain(plain, begins_text, budget, scratch, out);
      continue;
    }
    normalized_added.split(plain, scratch.normalized_pieces);
    for (const auto& part : scratch.normalized_pieces) {
      if (part.id != AddedTokens::kText) {
        out.push_back(part.id);
      } else {
        encode_plain(part.text, begins_text && part.text.data() == plain.data(), budget, scratch,
                     out);
      }
    }
  }
}

void Tokenizer::Core::encode_plain(std::string_view text, bool begins_text, RegexBudget& budget,
                                   Scratch& scratch, std::vector<int32_t>& out) const {
  scratch.pre_tokenizer.split(text, begins_text, budget, scratch.words);
  for (std::string_view word : scratch.words) {
    while (!word.empty()) {
      const size_t bytes = bpe.first_part(word);
      encode_part(word.substr(0, bytes), scratch.cache, out);
      word.remove_prefix(bytes);
    }
  }
}

void Tokenizer::Core::encode_part(std::string_view part, WordCache& cache,
                                  std::vector<int32_t>& out) const {
  if (cache.try_append(part, out)) return;
  const size_t begin = out.size();
  bpe.append(part, out);
  cache.put(part, std::span(out).subspan(begin));
}

Tokenizer Tokenizer::parse(std::string_view json, const std::string& name) {
  TokenizerJson read = TokenizerJson::parse(json, name);
  try {
    return Tokenizer(std::make_shared<Core>(std::move(read)));
  } catch (const InputError& error) {
    throw InputError(name + ": " + error.what());
  }
}

namespace {

using SortedJson = nlohmann::json;

SortedJson read_json(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return SortedJson::object();
  const std::string text = read_file(path.string(), kMaxTokenizerBytes);
  check_json_depth(text, path.string());
  SortedJson json = SortedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  TLT_CHECK_INPUT(json.is_object(), path.string(), ": not a JSON object");
  return json;
}

// "<eos>" or {"content": "<eos>", …} or null.
std::optional<int32_t> role(const Tokenizer& tokenizer, const SortedJson& config, const char* key,
                            const std::string& file) {
  if (!config.contains(key) || config.at(key).is_null()) return std::nullopt;
  const SortedJson& value = config.at(key);
  const SortedJson& text =
      value.is_object() && value.contains("content") ? value.at("content") : value;
  TLT_CHECK_INPUT(text.is_string(), file, ": ", key, " is neither a token nor null");
  const auto id = tokenizer.try_id_of(text.get<std::string>());
  TLT_CHECK_INPUT(id, file, ": ", key, " is ", text.dump(), ", which tokenizer.json does not have");
  return id;
}

TokenRoles read_roles(const Tokenizer& tokenizer, const std::filesystem::path& folder) {
  const auto file = folder / "tokenizer_config.json";
  const SortedJson config = read_json(file);
  TokenRoles roles{.bos = role(tokenizer, config, "bos_token", file.string()),
                   .pad = role(tokenizer, config, "pad_token", file.string()),
                   .eos = {}};
  if (const auto eos = role(tokenizer, config, "eos_token", file.string()))
    roles.eos.push_back(*eos);

  const auto generation_file = folder / "generation_config.json";
  const SortedJson generation = read_json(generation_file);
  if (!generation.contains("eos_token_id") || generation.at("eos_token_id").is_null()) return roles;
  const SortedJson& eos = generation.at("eos_token_id");
  TLT_CHECK_INPUT(eos.size() <= kMaxEos, generation_file.string(), ": eos_token_id lists ",
                  eos.size(), " tokens; the limit is ", kMaxEos);
  for (const SortedJson& id : eos.is_array() ? eos : SortedJson::array({eos})) {
    TLT_CHECK_INPUT(id.is_number_integer() && id >= 0 && id < tokenizer.vocab_size(),
                    generation_file.string(), ": eos_token_id ", id.dump(), " is not a token");
    if (std::ranges::find(roles.eos, id.get<int32_t>()) == roles.eos.end())
      roles.eos.push_back(id.get<int32_t>());
  }
  return roles;
}

}  // namespace

Tokenizer Tokenizer::load(const std::filesystem::path& folder) {
  const auto file = folder / "tokenizer.json";
  const std::string text = read_file(file.string(), kMaxTokenizerBytes);
  check_no_lfs_pointer(text, file.string());
  Tokenizer tokenizer = parse(text, file.string());
  tokenizer.roles_ = read_roles(tokenizer, folder);
  tokenizer.folder_ = folder.string();
  return tokenizer;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  TLT_CHECK_INPUT(is_valid_utf8(text),
                  "a text to encode is not valid UTF-8: ", byte_level_text(text.substr(0, 64)));
  std::vector<int32_t> tokens;
  tokens.reserve(text.size() / 3 + 4);
  auto scratch = core_->take_scratch();
  core_->encode(text, *scratch, tokens);
  const std::lock_guard lock(core_->mutex);
  core_->free_scratch.push_back(std::move(scratch));
  return tokens;
}

std::string Tokenizer::decode(std::span<const int32_t> tokens, bool skip_special) const {
  DecodeStream stream(core_->decoder);
  std::string text;
  for (const int32_t id : tokens) push(id, skip_special, stream, text);
  stream.finish(text);
  return text;
}

void Tokenizer::push(int32_t id, bool skip_special, DecodeStream& stream, std::string& text) const {
  const bool has_token = id >= 0 && id < vocab_size() && !core_->tokens[id].text.empty();
  if (has_token && !(skip_special && is_special(id))) stream.push(core_->tokens[id].piece, text);
}

int64_t Tokenizer::vocab_size() const { return static_cast<int64_t>(core_->tokens.size()); }

std::optional<int32_t> Tokenizer::try_id_of(std::string_view token) const {
  const auto found = core_->ids.find(token);
  return found == core_->ids.end() ? std::nullopt : std::optional(found->second);
}

int32_t Tokenizer::id_of(std::string_view token) const {
  const auto id = try_id_of(token);
  TLT_CHECK_INPUT(id, "the tokenizer has no token \"", token, "\"");
  return *id;
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  return id >= 0 && id < vocab_size() ? std::string_view(core_->tokens[id].piece.bytes)
                                      : std::string_view();
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < vocab_size() && core_->tokens[id].is_special;
}

StreamingDecoder::StreamingDecoder(Tokenizer tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)),
      skips_special_(skip_special),
      stream_(tokenizer_.core_->decoder) {}

std::string StreamingDecoder::push(int32_t token) {
  std::string text;
  tokenizer_.push(token, skips_special_, stream_, text);
  return text;
}

std::string StreamingDecoder::finish() {
  std::string text;
  stream_.finish(text);
  return text;
}

}  // namespace tlt::tokenizer
