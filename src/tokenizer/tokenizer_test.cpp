// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/check.h"
#include "base/files.h"
#include "base/json_lines.h"
#include "base/random.h"
#include "tests/support/test_folder.h"

namespace tlt::tokenizer {
namespace {

using SortedJson = nlohmann::json;
using Tokens = std::vector<int32_t>;

const std::string kGolden = std::string(TLT_SOURCE_DIR) + "/tests/golden/tokenizers/";

std::string streamed(const Tokenizer& tokenizer, const Tokens& tokens, bool skip_special) {
  StreamingDecoder decoder(tokenizer, skip_special);
  std::string text;
  for (const int32_t token : tokens) text += decoder.push(token);
  return text + decoder.finish();
}

// Rows made by the Hugging Face library (tests/tools/make_tokenizer_goldens.py).
void expect_golden(const Tokenizer& tokenizer, const std::string& name) {
  JsonLinesReader reader(kGolden + name + ".jsonl");
  SortedJson row;
  int64_t rows = 0;
  while (reader.try_next(row)) {
    const auto tokens = row.at("tokens").get<Tokens>();
    if (row.contains("text")) {
      EXPECT_EQ(tokenizer.encode(row.at("text").get<std::string>()), tokens) << reader.place();
    }
    EXPECT_EQ(tokenizer.decode(tokens), row.at("decoded").get<std::string>()) << reader.place();
    EXPECT_EQ(tokenizer.decode(tokens, /*skip_special=*/true), row.at("plain").get<std::string>())
        << reader.place();
    EXPECT_EQ(streamed(tokenizer, tokens, false), row.at("decoded").get<std::string>())
        << reader.place();
    EXPECT_EQ(streamed(tokenizer, tokens, true), row.at("plain").get<std::string>())
        << reader.place();
    ++rows;
  }
  EXPECT_GT(rows, 300);
}

std::string shared_file(const std::string& name) {
  return std::string(TLT_SHARED_DATA) + "/tokenizers/" + name;
}

bool has_shared_data() {
  return *TLT_SHARED_DATA != '\0' && std::filesystem::exists(shared_file("qwen3"));
}

TEST(TokenizerTest, Gpt2StyleMatchesHuggingFace) {
  expect_golden(Tokenizer::load(kGolden + "gpt2_style"), "gpt2_style");
}

TEST(TokenizerTest, Llama3StyleMatchesHuggingFace) {
  expect_golden(Tokenizer::load(kGolden + "llama3_style"), "llama3_style");
}

TEST(TokenizerTest, EveryFlagMatchesHuggingFace) {
  expect_golden(Tokenizer::load(kGolden + "every_flag"), "every_flag");
}

TEST(TokenizerTest, Llama2StyleMatchesHuggingFace) {
  expect_golden(Tokenizer::load(kGolden + "llama2_style"), "llama2_style");
}

TEST(TokenizerTest, MistralStyleMatchesHuggingFace) {
  expect_golden(Tokenizer::load(kGolden + "mistral_style"), "mistral_style");
}

TEST(TokenizerTest, UnusualPiecesMatchHuggingFace) {
  expect_golden(Tokenizer::load(kGolden + "odd_pieces"), "odd_pieces");
}

TEST(TokenizerTest, DemoMatchesHuggingFace) {
  expect_golden(Tokenizer::load(kGolden + "demo"), "demo");
}

TEST(TokenizerTest, Qwen3MatchesHuggingFace) {
  if (!has_shared_data()) GTEST_SKIP() << "no TLT_SHARED_DATA/tokenizers/qwen3";
  const Tokenizer tokenizer = Tokenizer::load(shared_file("qwen3"));
  EXPECT_EQ(tokenizer.vocab_size(), 151669);
  EXPECT_EQ(tokenizer.roles().eos, Tokens{tokenizer.id_of("<|im_end|>")});
  expect_golden(tokenizer, "qwen3");
}

TEST(TokenizerTest, MinimindMatchesHuggingFace) {
  if (!has_shared_data()) GTEST_SKIP() << "no TLT_SHARED_DATA/tokenizers/minimind.tokenizer.json";
  const std::string file = shared_file("minimind.tokenizer.json");
  expect_golden(Tokenizer::parse(read_file(file, 1 << 20), file), "minimind");
}

// Whether the pieces between added tokens begin with an added space depends on the file.
TEST(TokenizerTest, TextAfterAnAddedTokenMayGetASpace) {
  const auto pieces = [](const char* name) {
    const Tokenizer tokenizer = Tokenizer::load(kGolden + name);
    std::string text;
    for (const int32_t token : tokenizer.encode("a</s>a")) {
      text += tokenizer.token_bytes(token);
      text += "|";
    }
    return text;
  };
  EXPECT_EQ(pieces("llama2_style"), " a|</s>| a|");
  EXPECT_EQ(pieces("mistral_style"), " a|</s>|a|");
  EXPECT_EQ(pieces("odd_pieces"), "a|</s>|a|");
}

TEST(TokenizerTest, TokensHaveNamesAndRoles) {
  const Tokenizer tokenizer = Tokenizer::load(kGolden + "demo");
  EXPECT_EQ(tokenizer.vocab_size(), 117);
  EXPECT_EQ(tokenizer.id_of("</think>"), 3);
  EXPECT_EQ(tokenizer.try_id_of("nothing"), std::nullopt);
  EXPECT_THROW((void)tokenizer.id_of("nothing"), InputError);
  EXPECT_EQ(tokenizer.token_bytes(116), "99");
  EXPECT_EQ(tokenizer.token_bytes(117), "");
  EXPECT_EQ(tokenizer.token_bytes(-1), "");
  EXPECT_TRUE(tokenizer.is_special(0));
  EXPECT_FALSE(tokenizer.is_special(116));
  EXPECT_EQ(tokenizer.roles().eos, Tokens{1});
  EXPECT_EQ(tokenizer.roles().pad, 0);
  EXPECT_EQ(tokenizer.roles().bos, std::nullopt);
  EXPECT_EQ(tokenizer.decode(Tokens{27, 118, -1, 1000000}), "10");
}

TEST(TokenizerTest, StreamingHoldsBackIncompleteCharacters) {
  const Tokenizer tokenizer = Tokenizer::load(kGolden + "gpt2_style");
  StreamingDecoder decoder(tokenizer);
  const Tokens tokens = tokenizer.encode("日");  // three bytes, three tokens
  ASSERT_EQ(tokens.size(), 3U);
  EXPECT_EQ(decoder.push(tokens[0]), "");
  EXPECT_EQ(decoder.push(tokens[1]), "");
  EXPECT_EQ(decoder.push(tokens[2]), "日");
  EXPECT_EQ(decoder.push(tokens[0]), "");
  EXPECT_EQ(decoder.push(tokenizer.id_of("a")), "\uFFFDa");
  EXPECT_EQ(decoder.push(tokens[0]), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
  EXPECT_EQ(decoder.finish(), "");
}

TEST(TokenizerTest, StreamingRandomTokensEqualsDecoding) {
  const Tokenizer tokenizer = Tokenizer::load(kGolden + "llama3_style");
  RandomStream random(5, {});
  for (int round = 0; round < 2000; ++round) {
    Tokens tokens;
    for (uint64_t count = random.below(12); count > 0; --count) {
      tokens.push_back(
          static_cast<int32_t>(random.below(random.below(2) ? 256 : tokenizer.vocab_size() + 2)));
    }
    const bool skip_special = random.below(2) == 1;
    ASSERT_EQ(streamed(tokenizer, tokens, skip_special), tokenizer.decode(tokens, skip_special));
  }
}

TEST(TokenizerTest, TextThatIsNotUtf8IsAnError) {
  EXPECT_THROW((void)Tokenizer::load(kGolden + "gpt2_style").encode("a\xFF"), InputError);
}

TEST(TokenizerTest, ThreadsShareOneTokenizer) {
  const Tokenizer tokenizer = Tokenizer::load(kGolden + "gpt2_style");
  const std::string text = "Natalia sold 48/2 clips, and then she sold half as many in May.";
  const Tokens want = tokenizer.encode(text);
  std::vector<Tokens> got(4);
  {
    std::vector<std::jthread> threads;
    for (auto& tokens : got) {
      threads.emplace_back([&] {
        for (int i = 0; i < 200; ++i) tokens = tokenizer.encode(text);
      });
    }
  }
  for (const auto& tokens : got) EXPECT_EQ(tokens, want);
}

// A small valid tokenizer.json, changed at one JSON pointer.
std::string changed(const char* pointer, const char* value) {
  SortedJson json = SortedJson::parse(R"({
    "added_tokens": [{"id": 3, "content": "<s>", "special": true}], "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "decoder": {"type": "ByteLevel"},
    "post_processor": null,
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})");
  if (*pointer) json[SortedJson::json_pointer(pointer)] = SortedJson::parse(value);
  return json.dump();
}

TEST(TokenizerTest, SmallExampleLoads) {
  const Tokenizer tokenizer = Tokenizer::parse(changed("", ""), "small");
  EXPECT_EQ(tokenizer.encode("ab<s>ba"), (Tokens{2, 3, 1, 0}));
}

TEST(TokenizerTest, UnsupportedComponentsAreNamed) {
  const std::vector<std::array<const char*, 3>> cases = {
      {"/model/type", "\"Unigram\"", "Unigram"},
      {"/model/dropout", "0.1", "dropout"},
      {"/model/unk_token", "\"<unk>\"", "unk_token"},  // bytes are missing
      {"/model/byte_fallback", "true", "byte_fallback"},
      {"/model/end_of_word_suffix", "\"</w>\"", "end_of_word_suffix"},
      {"/model/continuing_subword_prefix", "\"##\"", "continuing_subword_prefix"},
      {"/model/merges/0", "\"a c\"", "\"c\" is not in the vocabulary"},
      {"/model/merges/0", "\"ab\"", "not two tokens"},
      {"/model/merges/0", "\"a b c\"", "not two tokens"},
      {"/model/merges/0", "[\"a\"]", "not two tokens"},
      {"/model/merges/0", "7", "not two tokens"},
      {"/model/vocab/a", "-1", "token id"},
      {"/model/vocab/a", "99999999", "token id"},
      {"/model/vocab/a", "1.5", "token id"},
      {"/model/vocab/a", "6553631", "token id 6553631 is far beyond those of"},
      {"/model/vocab/a", "1", "same id"},
      {"/added_tokens/0/id", "0", "same id"},
      {"/added_tokens/0/content", "\"a\"", "added token"},
      {"/normalizer", "{\"type\": \"Lowercase\"}", "Lowercase"},
      {"/normalizer", "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFKC\"}]}", "NFKC"},
      {"/pre_tokenizer", "{\"type\": \"Whitespace\"}", "Whitespace"},
      {"/decoder", "{\"type\": \"WordPiece\"}", "WordPiece"},
      {"/decoder", "null", "decoder"},
      {"/post_processor", "{\"type\": \"RobertaProcessing\"}", "RobertaProcessing"},
      {"/model", "null", "small.json"},
      {"/model/vocab", "[]", "model.vocab"},
      {"/added_tokens/0", "{}", "small.json"},
  };
  for (const auto& [pointer, value, want] : cases) {
    try {
      Tokenizer::parse(changed(pointer, value), "small.json");
      ADD_FAILURE() << pointer << " = " << value << " was read";
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(want), std::string::npos) << error.what();
      EXPECT_TRUE(std::string(error.what()).starts_with("small.json: ")) << error.what();
    }
  }
  EXPECT_TRUE(thrown_message<InputError>([] {
                Tokenizer::parse("{", "x");
              }).starts_with("x: line 1, column 2: syntax error"));
  // Found by the fuzzer: the message quoted the list, which overflowed the stack.
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  EXPECT_THROW(Tokenizer::parse(R"({"model":{"vocab":{"a":)" + deep + R"(},"merges":[]}})", "x"),
               InputError);
  EXPECT_THROW(Tokenizer::parse("[]", "x"), InputError);
  EXPECT_THROW(Tokenizer::load("/nowhere"), InputError);
}

// Issue 23: what a file can make of a text is bounded, and the message names the part of the file.
TEST(TokenizerTest, TextsThatTakeTooMuchAreRefused) {
  const auto message = [](const char* pointer, const std::string& value, const std::string& text) {
    const Tokenizer tokenizer = Tokenizer::parse(changed(pointer, value.c_str()), "small.json");
    try {
      (void)tokenizer.encode(text);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("encoded");
  };
  const std::string split =
      R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "behavior": "Isolated",
          "pattern": {"Regex": "[a]*b|a"}}, {"type": "ByteLevel", "use_regex": false}]})";
  EXPECT_TRUE(message("/pre_tokenizer", split, std::string(200'000, 'a'))
                  .starts_with("a pattern of tokenizer.json takes more than 256 steps"));
  const std::string grow = R"({"type": "Replace", "pattern": {"String": "a"}, "content": ")" +
                           std::string(1'000'000, 'b') + "\"}";
  EXPECT_TRUE(message("/normalizer", grow, std::string(10'000, 'a'))
                  .starts_with("the normalizer of tokenizer.json makes more than 80064 bytes"));
  EXPECT_TRUE(message("/added_tokens/0/content", "\"" + std::string(5000, 'a') + "b\"",
                      std::string(200'000, 'a'))
                  .starts_with("the added tokens of tokenizer.json take more than 32 steps"));
}

TEST(TokenizerTest, LongListOfEosTokensIsRefused) {
  const TestFolder folder;
  write_file_atomic(folder / "tokenizer.json", changed("", ""));
  SortedJson config = SortedJson::object();
  for (int i = 0; i < 1000; ++i) config["eos_token_id"].push_back((i + 1) % 3);
  const std::string accepted = config.dump();
  config["eos_token_id"].push_back(0);
  write_file_atomic(folder / "generation_config.json", config.dump());
  EXPECT_THROW(Tokenizer::load(folder.path()), InputError);
  write_file_atomic(folder / "generation_config.json", accepted);
  EXPECT_EQ(Tokenizer::load(folder.path()).roles().eos, (Tokens{1, 2, 0}));
}

TEST(TokenizerTest, UnknownTokenMustExist) {
  SortedJson json = SortedJson::parse(changed("/pre_tokenizer", "null"));
  json["decoder"]["type"] = "Fuse";
  json["model"]["unk_token"] = "<unk>";
  EXPECT_THROW(Tokenizer::parse(json.dump(), "x"), InputError);
  json["model"]["unk_token"] = "a";
  EXPECT_EQ(Tokenizer::parse(json.dump(), "x").encode("b?"), (Tokens{1, 0}));
}

// A small tokenizer like SentencePiece's.
constexpr auto kPieces = R"({"added_tokens": [{"id": 5, "content": "<s>", "normalized": true}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false},
    "decoder": {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
        {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "unk_token": "a", "fuse_unk": true, "byte_fallback": true,
        "vocab": {"a": 0, "<0xC3>": 1, "▁": 2, "▁a": 3, "a▁": 4}, "merges": [["▁", "a"], "a ▁"]}})";

// As in the Hugging Face library.
TEST(TokenizerTest, NormalizedTokenIsFoundInTheNormalizedText) {
  const Tokenizer tokenizer = Tokenizer::parse(kPieces, "pieces");
  EXPECT_EQ(tokenizer.encode("a a<s>"), (Tokens{3, 3, 0}));  // "▁<s>" is searched for
  EXPECT_EQ(tokenizer.encode("<s>a"), (Tokens{5, 0}));       // "a" is not at the beginning
}

// A truncated or overwritten file is read or rejected.
TEST(TokenizerTest, DamagedFilesAreReadOrRejected) {
  const std::string bytes = changed("", "");
  RandomStream random(6, {});
  for (int round = 0; round < 6000; ++round) {
    const std::string whole = round % 2 ? bytes : kPieces;
    std::string text = whole.substr(0, round % 3 ? whole.size() : random.below(whole.size()));
    for (uint64_t count = random.below(4); count > 0 && !text.empty(); --count) {
      text[random.below(text.size())] = "{}[]\",:019aTn\\"[random.below(14)];
    }
    try {
      const Tokenizer tokenizer = Tokenizer::parse(text, "damaged");
      const Tokens tokens = tokenizer.encode("ab<s> \u00e9a \u65e5");
      EXPECT_EQ(streamed(tokenizer, tokens, false), tokenizer.decode(tokens));
    } catch (const InputError&) {
    }
  }
}

}  // namespace
}  // namespace tlt::tokenizer
