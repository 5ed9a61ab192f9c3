// SPDX-License-Identifier: Apache-2.0
#include "data/countdown_tokenizer.h"

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/files.h"

namespace tlt::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 6> kSpecial = {"<pad>",    "<eos>",    "<think>",
                                                      "</think>", "<answer>", "</answer>"};
constexpr std::string_view kCharacters = "+-*/=,:>()\n";

Json make_model() {
  Json vocabulary = Json::object(), merges = Json::array();
  const auto add = [&](std::string_view token) {
    vocabulary[std::string(token)] = vocabulary.size();
  };
  for (const auto token : kSpecial) add(token);
  for (const char character : kCharacters) add({&character, 1});
  for (int number = 0; number < 100; ++number) {
    const std::string digits = std::to_string(number);
    add(digits);
    if (number >= 10) merges.push_back({digits.substr(0, 1), digits.substr(1)});
  }
  TLT_CHECK(vocabulary.size() == kCountdownTokens, vocabulary.size());
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", false},
          {"vocab", std::move(vocabulary)},
          {"merges", std::move(merges)}};
}

Json make_added_tokens() {
  Json tokens = Json::array();
  for (const auto token : kSpecial) {
    tokens.push_back({{"id", tokens.size()},
                      {"content", token},
                      {"single_word", false},
                      {"lstrip", false},
                      {"rstrip", false},
                      {"normalized", false},
                      {"special", true}});
  }
  return tokens;
}

void write(const std::filesystem::path& path, const Json& json) {
  write_file_atomic(path.string(), json.dump(2) + "\n");
}

}  // namespace

void write_countdown_tokenizer(const std::filesystem::path& folder) {
  make_folder(folder.string());
  write(folder / "tokenizer.json", {{"version", "1.0"},
                                    {"truncation", nullptr},
                                    {"padding", nullptr},
                                    {"added_tokens", make_added_tokens()},
                                    {"normalizer", nullptr},
                                    {"pre_tokenizer", nullptr},
                                    {"post_processor", nullptr},
                                    {"decoder", {{"type", "Fuse"}}},
                                    {"model", make_model()}});
  write(folder / "tokenizer_config.json", {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                           {"eos_token", "<eos>"},
                                           {"pad_token", "<pad>"},
                                           {"model_max_length", 2048}});
}

}  // namespace tlt::data
