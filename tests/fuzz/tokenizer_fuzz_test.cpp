// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fuzz.h"
#include "tokenizer/tokenizer.h"

namespace tlt::tests {
namespace {

using tokenizer::Tokenizer;

const std::string kTokenizers = std::string(TLT_SOURCE_DIR) + "/tests/golden/tokenizers/";

const std::vector<std::string> kTokenizerWords = {
    "BPE", "ByteFallback", "ByteLevel", "Contiguous", "Digits", "Fuse", "Isolated",
    "MergedWithNext", "MergedWithPrevious", "Metaspace", "NFC", "Prepend", "Regex", "Removed",
    "Replace", "Sequence", "SpecialToken", "Split", "String", "Strip", "TemplateProcessing",
    "add_prefix_space", "added_tokens", "always", "behavior", "byte_fallback", "content", "decoder",
    "decoders", "first", "fuse_unk", "id", "ids", "ignore_merges", "individual_digits", "invert",
    "lstrip", "merges", "model", "never", "normalized", "normalizer", "normalizers", "pattern",
    "post_processor", "pre_tokenizer", "prepend_scheme", "pretokenizers", "processors",
    "replacement", "rstrip", "single", "single_word", "special", "special_tokens", "split", "start",
    "stop", "type", "unk_token", "use_regex", "vocab", "<0x41>", "<unk>", "\xe2\x96\x81",
    "\xc4\xa0", "\xc3\xa9",
    // patterns
    "\\p{L}", "\\s+(?!\\S)", "(?i:'s|'t)", "[^\\r\\n\\p{L}]?", "(a+)+b", "{1,3}", "(?=", "|", "*+",
    "[\\s\\S]*", "\\x{10FFFF}", "(?<=a)", "(?R)", "\\1"};

// Letters of many kinds, white space, strings like the special tokens of the corpus.
const std::string kText =
    "The quick\t brown  fox's 12,345.67 jumps\r\n\n  over\xe2\x96\x81<|im_end|><s> na\xc3\xafve "
    "e\xcc\x81 \xe4\xb8\xad\xe6\x96\x87 \xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9 \xc2\xa0 "
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa {\"k\": [1]} ";

// An accepted tokenizer must work: with a text, with every id and with ids that do not exist.
std::string use(const std::string& json) {
  const Tokenizer tokenizer = Tokenizer::parse(json, "tokenizer.json");
  const std::vector<int32_t> tokens = tokenizer.encode(kText);
  TLT_CHECK(tokens == tokenizer.encode(kText), "the second time other tokens");
  for (const int32_t token : tokens)
    TLT_CHECK(token >= 0 && token < tokenizer.vocab_size(), "token ", token);
  tokenizer::StreamingDecoder decoder(tokenizer);
  std::string streamed;
  for (const int32_t token : tokens) streamed += decoder.push(token);
  TLT_CHECK(streamed + decoder.finish() == tokenizer.decode(tokens), "streamed text differs");
  std::vector<int32_t> ids = {-1, INT32_MIN, INT32_MAX,
                              static_cast<int32_t>(tokenizer.vocab_size())};
  for (int32_t id = 0; id < std::min<int64_t>(tokenizer.vocab_size(), 2000); ++id)
    ids.push_back(id);
  tokenizer.decode(ids, /*skip_special=*/true);
  for (const int32_t id : ids) tokenizer.token_bytes(id), tokenizer.is_special(id);
  return "tokens " + std::string(std::min<size_t>(tokens.size(), 90), '.');
}

TEST(TokenizerFuzzTest, TokenizersWorkOrAreRejected) {
  FuzzPlan plan{.name = "tokenizer", .dictionary = kTokenizerWords, .inputs = 500};
  for (const char* name : {"demo", "every_flag", "gpt2_style", "llama2_style", "llama3_style",
                           "mistral_style", "odd_pieces"})
    plan.corpus.push_back(read_text(kTokenizers + name + "/tokenizer.json"));
  plan.mutate = [](Mutator& mutator, const std::string& text, const std::string& other) {
    return mutator.one_in(4) ? mutator.bytes(text, other) : mutator.json(text, other);
  };
  fuzz(plan, use);
}

}  // namespace
}  // namespace tlt::tests
