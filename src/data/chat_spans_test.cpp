// SPDX-License-Identifier: Apache-2.0
#include "data/chat_spans.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/files.h"
#include "base/test_folder.h"

namespace tlt::data {
namespace {

using Json = nlohmann::ordered_json;

const std::string kTests = std::string(TLT_SOURCE_DIR) + "/tests/";

// A Llama 3 tokenizer whose end of sequence is <|eot_id|>.
const Tokenizer& tokenizer() {
  static const Tokenizer kTokenizer = [] {
    const TestFolder folder;
    std::filesystem::copy_file(kTests + "golden/tokenizers/llama3_style/tokenizer.json",
                               folder / "tokenizer.json");
    write_file_atomic(folder / "tokenizer_config.json", R"({"eos_token": "<|eot_id|>"})");
    return Tokenizer::load(folder.path());
  }();
  return kTokenizer;
}

ChatTemplate template_of(const std::string& name) {
  return ChatTemplate::read(kTests + "data/chat_templates/" + name + ".jinja", "");
}

const Json kTurns = Json::parse(
    R"([{"role": "system", "content": "Add."}, {"role": "user", "content": "1+1"},
        {"role": "assistant", "content": "assistant: 2"}, {"role": "user", "content": "2+2"},
        {"role": "assistant", "content": "assistant: 2"}])");

// What the spans say, each between | |.
std::string spoken(const ChatTemplate& chat_template, const Json& messages) {
  const ChatTokens chat =
      chat_tokens(chat_template, tokenizer(), {.messages = messages}, "data.jsonl:1");
  std::string text;
  for (const auto& [begin, end] : chat.spans)
    text += "|" + tokenizer().decode(
                      std::span(chat.tokens)
                          .subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
  return text + "|";
}

std::string complaint(const ChatTemplate& chat_template, const Json& messages) {
  try {
    return spoken(chat_template, messages);
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(ChatSpansTest, AreTheAssistantsTokens) {
  EXPECT_EQ(spoken(template_of("llama3.2"), kTurns),
            "|assistant: 2<|eot_id|>|assistant: 2<|eot_id|>|");
  // No end-of-sequence token of this tokenizer: all that the template writes.
  EXPECT_EQ(spoken(template_of("chatml"), kTurns),
            "|assistant: 2<|im_end|>\n|assistant: 2<|im_end|>\n|");
}

TEST(ChatSpansTest, AreWhatTheTemplateMarks) {
  EXPECT_EQ(spoken(template_of("chatml_generation"), kTurns),
            "|assistant: 2<|im_end|>|assistant: 2<|im_end|>|");
  const auto touching = ChatTemplate::parse(
      "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
      "touching", Json::object());
  EXPECT_EQ(spoken(touching, Json::parse(R"([{"role": "assistant", "content": "1+1 2+2"},
                                             {"role": "assistant", "content": ""}])"))
                .back(),
            '|');
}

// The tokens of SentencePiece's kind begin with a space that is not in the text.
TEST(ChatSpansTest, MarksAreFoundBehindAnAddedSpace) {
  const auto touching = ChatTemplate::parse(
      "<s>{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}</s> {% endfor "
      "%}",
      "touching", Json::object());
  for (const char* name : {"llama2_style", "mistral_style"}) {
    const Tokenizer pieces = Tokenizer::load(kTests + "golden/tokenizers/" + name);
    const Json messages = Json::parse(R"([{"role": "assistant", "content": "a é日 b"},
                                          {"role": "assistant", "content": "2"}])");
    const ChatTokens chat = chat_tokens(touching, pieces, {.messages = messages}, "data.jsonl:1");
    std::string text;
    for (const auto& [begin, end] : chat.spans)
      text += "|" + pieces.decode(
                        std::span(chat.tokens)
                            .subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
    EXPECT_EQ(text, "|a é日 b|2") << name;
  }
}

TEST(ChatSpansTest, TheEndOfSequenceEndsThem) {
  const auto after = ChatTemplate::parse(
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.role == 'assistant' %}<|eot_id|>"
      "{% endif %}{{ '\\n' }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}",
      "after", Json::object());
  EXPECT_EQ(spoken(after, kTurns), "|assistant: 2<|eot_id|>|assistant: 2<|eot_id|>|");
}

TEST(ChatSpansTest, ATemplateThatRewritesWhatIsBeforeIsRefused) {
  // It shows the reasoning of the last message only.
  const Json thought = Json::parse(
      R"([{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"},
          {"role": "user", "content": "3"}, {"role": "assistant", "content": "4"}])");
  EXPECT_EQ(complaint(template_of("qwen3"), thought),
            "data.jsonl:1: message 2: the chat template writes a conversation otherwise once more "
            "follows, so the assistant's tokens are not known; give a template with {% generation "
            "%} blocks, or rows of prompt and response");
  EXPECT_EQ(spoken(template_of("qwen3"), Json(thought.begin(), thought.begin() + 2)),
            "|<think>\n\n</think>\n\n2<|im_end|>\n|");
}

TEST(ChatSpansTest, NothingToLearnFromIsRefused) {
  EXPECT_EQ(complaint(template_of("chatml"), Json(kTurns.begin(), kTurns.begin() + 2)),
            "data.jsonl:1: the conversation has no message of the assistant to learn from");
  EXPECT_EQ(
      complaint(template_of("chatml"), Json(kTurns.begin() + 2, kTurns.begin() + 3)),
      "data.jsonl:1: message 1: a conversation to learn from cannot begin with the assistant");
}

}  // namespace
}  // namespace tlt::data
