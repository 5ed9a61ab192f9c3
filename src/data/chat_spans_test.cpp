// SPDX-License-Identifier: Apache-2.0
#include "data/chat_spans.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/checksum.h"
#include "base/files.h"
#include "tests/support/test_folder.h"

namespace tlt::data {
namespace {

using Json = nlohmann::ordered_json;

const std::string kTests = std::string(TLT_SOURCE_DIR) + "/tests/";

// A Llama 3 tokenizer whose end-of-sequence token is <|eot_id|>.
const tokenizer::Tokenizer& tokenizer() {
  static const tokenizer::Tokenizer kTokenizer = [] {
    const TestFolder folder;
    std::filesystem::copy_file(kTests + "golden/tokenizers/llama3_style/tokenizer.json",
                               folder / "tokenizer.json");
    write_file_atomic(folder / "tokenizer_config.json", R"({"eos_token": "<|eot_id|>"})");
    return tokenizer::Tokenizer::load(folder.path());
  }();
  return kTokenizer;
}

chat_template::ChatTemplate template_of(const std::string& name) {
  return chat_template::ChatTemplate::read(kTests + "data/chat_templates/" + name + ".jinja", "");
}

const Json kTurns = Json::parse(
    R"([{"role": "system", "content": "Add."}, {"role": "user", "content": "1+1"},
        {"role": "assistant", "content": "assistant: 2"}, {"role": "user", "content": "2+2"},
        {"role": "assistant", "content": "assistant: 2"}])");

std::string said_in(const tokenizer::Tokenizer& decoder, const ChatTokens& row,
                    std::pair<int64_t, int64_t> span) {
  return decoder.decode(
      std::span(row.tokens)
          .subspan(static_cast<size_t>(span.first), static_cast<size_t>(span.second - span.first)));
}

// The text of the spans, each between | |, row by row.
std::string spoken(const chat_template::ChatTemplate& chat_template, const Json& messages) {
  std::string text;
  for (const ChatTokens& row :
       chat_tokens(chat_template, tokenizer(), {.messages = messages}, "data.jsonl:1")) {
    for (const auto& span : row.spans) text += "|" + said_in(tokenizer(), row, span);
    text += "|";
  }
  return text;
}

std::string complaint(const chat_template::ChatTemplate& chat_template, const Json& messages) {
  try {
    return spoken(chat_template, messages);
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(ChatSpansTest, SpansAreTheAssistantsTokens) {
  EXPECT_EQ(spoken(template_of("llama3.2"), kTurns),
            "|assistant: 2<|eot_id|>|assistant: 2<|eot_id|>|");
  // No end-of-sequence token of this tokenizer: all that the template writes.
  EXPECT_EQ(spoken(template_of("chatml"), kTurns),
            "|assistant: 2<|im_end|>\n|assistant: 2<|im_end|>\n|");
}

TEST(ChatSpansTest, SpansAreWhatTheTemplateMarks) {
  EXPECT_EQ(spoken(template_of("chatml_generation"), kTurns),
            "|assistant: 2<|im_end|>|assistant: 2<|im_end|>|");
  const auto touching = chat_template::ChatTemplate::parse(
      "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
      "touching", Json::object());
  EXPECT_EQ(spoken(touching, Json::parse(R"([{"role": "assistant", "content": "1+1 2+2"},
                                             {"role": "assistant", "content": ""}])"))
                .back(),
            '|');
}

// SentencePiece tokens begin with a space that is not in the text.
TEST(ChatSpansTest, MarksAreFoundAfterAnAddedSpace) {
  const auto touching = chat_template::ChatTemplate::parse(
      "<s>{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}</s> {% endfor "
      "%}",
      "touching", Json::object());
  for (const char* name : {"llama2_style", "mistral_style"}) {
    const tokenizer::Tokenizer pieces =
        tokenizer::Tokenizer::load(kTests + "golden/tokenizers/" + name);
    const Json messages = Json::parse(R"([{"role": "assistant", "content": "a é日 b"},
                                          {"role": "assistant", "content": "2"}])");
    const auto rows = chat_tokens(touching, pieces, {.messages = messages}, "data.jsonl:1");
    ASSERT_EQ(rows.size(), 1U);
    std::string text;
    for (const auto& span : rows[0].spans) text += "|" + said_in(pieces, rows[0], span);
    EXPECT_EQ(text, "|a é日 b|2") << name;
  }
}

TEST(ChatSpansTest, EndOfSequenceEndsASpan) {
  const auto after = chat_template::ChatTemplate::parse(
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.role == 'assistant' %}<|eot_id|>"
      "{% endif %}{{ '\\n' }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}",
      "after", Json::object());
  EXPECT_EQ(spoken(after, kTurns), "|assistant: 2<|eot_id|>|assistant: 2<|eot_id|>|");
}

// Prompts as transformers renders them, and the tokens to learn written by hand
// (tests/tools/make_chat_goldens.py).
class ChatTurnsTest : public ::testing::TestWithParam<const char*> {
 protected:
  // llama3_style with the template's own special tokens.
  static tokenizer::Tokenizer tokenizer_of(const Json& golden) {
    const TestFolder folder;
    Json tokenizer = Json::parse(
        read_file(kTests + "golden/tokenizers/llama3_style/tokenizer.json", int64_t{1} << 26));
    for (const Json& added : golden.at("added"))
      tokenizer["added_tokens"].push_back({{"id", added[1]},
                                           {"content", added[0]},
                                           {"single_word", false},
                                           {"lstrip", false},
                                           {"rstrip", false},
                                           {"normalized", false},
                                           {"special", true}});
    write_file_atomic(folder / "tokenizer.json", tokenizer.dump());
    const tokenizer::Tokenizer plain = tokenizer::Tokenizer::load(folder.path());
    Json eos = Json::array();
    for (const Json& token : golden.at("eos")) eos.push_back(plain.id_of(token.get<std::string>()));
    write_file_atomic(folder / "generation_config.json", Json{{"eos_token_id", eos}}.dump());
    return tokenizer::Tokenizer::load(folder.path());
  }

  // [[prompt, learned], …] as in the goldens.
  static Json turns_of(const std::vector<ChatTokens>& rows, const tokenizer::Tokenizer& decoder) {
    Json turns = Json::array();
    for (const ChatTokens& row : rows) {
      for (const auto& span : row.spans) {
        std::string ids;
        for (int64_t at = 0; at < span.first; ++at)
          ids += (ids.empty() ? "" : ",") + std::to_string(row.tokens[static_cast<size_t>(at)]);
        turns.push_back({sha256(ids).substr(0, 16), said_in(decoder, row, span)});
      }
      EXPECT_EQ(row.spans.back().second, std::ssize(row.tokens));
    }
    return turns;
  }
};

TEST_P(ChatTurnsTest, EachMessageFollowsThePromptItAnswers) {
  const Json goldens = Json::parse(read_file(kTests + "golden/chat/turns.json", 1 << 22));
  const Json& golden = goldens.at("templates").at(GetParam());
  const tokenizer::Tokenizer pieces = tokenizer_of(golden);
  const auto chat_template = chat_template::ChatTemplate::parse(
      read_file(kTests + "data/chat_templates/" + GetParam() + ".jinja", 1 << 20), GetParam(),
      golden.at("special"));
  int64_t learned = 0;
  for (size_t i = 0; i < goldens.at("conversations").size(); ++i) {
    const Json& row = goldens.at("conversations")[i];
    const chat_template::Chat chat{
        .messages = row.at("messages"), .tools = row.at("tools"), .variables = row.at("variables")};
    std::vector<ChatTokens> rows;
    try {
      rows = chat_tokens(chat_template, pieces, chat, "data.jsonl:1");
    } catch (const InputError& error) {
      EXPECT_EQ(golden.at("turns")[i], "!") << i << ": " << error.what();
      EXPECT_EQ(std::string(error.what()).rfind("data.jsonl:1: ", 0), 0U) << error.what();
      continue;
    }
    const Json turns = turns_of(rows, pieces);
    EXPECT_EQ(turns, golden.at("turns")[i]) << i << ": " << row.dump();
    EXPECT_EQ(std::ssize(rows), golden.at("rows")[i].get<int64_t>()) << i;
    learned += std::ssize(turns);
  }
  EXPECT_GE(learned, 5);
}

INSTANTIATE_TEST_SUITE_P(Templates, ChatTurnsTest,
                         ::testing::Values("chatml", "chatml_generation", "deepseek_r1_distill",
                                           "llama3.1", "llama3.2", "mistral_nemo", "phi3.5",
                                           "qwen2.5", "qwen3"));

TEST(ChatSpansTest, RewrittenEarlierMessagesMakeSeveralRows) {
  // Qwen 3 renders the reasoning of the last message only.
  const Json thought = Json::parse(
      R"([{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"},
          {"role": "user", "content": "3"}, {"role": "assistant", "content": "4"}])");
  EXPECT_EQ(spoken(template_of("qwen3"), thought),
            "|<think>\n\n</think>\n\n2<|im_end|>\n||<think>\n\n</think>\n\n4<|im_end|>\n|");
  EXPECT_EQ(spoken(template_of("chatml"), thought), "|2<|im_end|>\n|4<|im_end|>\n|");
}

TEST(ChatSpansTest, UnknownAssistantTokensAreAnError) {
  const Json thought =
      Json::parse(R"([{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}])");
  const auto asks = chat_template::ChatTemplate::parse(
      "{% for m in messages %}<{{ m.role }}>{{ m.content.split('!')[-1] }}<|eot_id|>{% endfor %}"
      "{% if add_generation_prompt %}<assistant>hm!{% endif %}",
      "asks", Json::object());
  EXPECT_EQ(complaint(asks, thought),
            "data.jsonl:1: message 2: its generation prompt is \"<assistant>hm!\", but the chat "
            "template writes the message without it; begin the message's content as an answer to "
            "it, or give a template with {% generation %} blocks, or rows of prompt and "
            "response");
  Json begun = thought;
  begun[1]["content"] = "hm!so: 2";
  EXPECT_EQ(complaint(asks, begun), "|so: 2<|eot_id|>|");
  const auto counts = chat_template::ChatTemplate::parse(
      "{{ messages | length }}{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}"
      "<|eot_id|>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}",
      "counts", Json::object());
  EXPECT_EQ(
      complaint(counts, thought),
      "data.jsonl:1: message 2: the chat template changes the earlier messages once "
      "this one follows, and appends more than its content, so the assistant's tokens cannot be "
      "determined; give a template with {% generation %} blocks, or rows of prompt and response");
}

TEST(ChatSpansTest, NoAssistantMessageIsAnError) {
  EXPECT_EQ(complaint(template_of("chatml"), Json(kTurns.begin(), kTurns.begin() + 2)),
            "data.jsonl:1: the conversation has no assistant message to learn from");
  EXPECT_EQ(
      complaint(template_of("chatml"), Json(kTurns.begin() + 2, kTurns.begin() + 3)),
      "data.jsonl:1: message 1: a conversation to learn from cannot begin with the assistant");
}

}  // namespace
}  // namespace tlt::data
