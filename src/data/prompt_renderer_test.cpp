// SPDX-License-Identifier: Apache-2.0
#include "data/prompt_renderer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/files.h"
#include "tests/support/test_folder.h"

namespace tlt::data {
namespace {

using Json = nlohmann::ordered_json;

const std::string kRendererData = std::string(TLT_SOURCE_DIR) + "/tests/";

class PromptRendererTest : public ::testing::Test {
 protected:
  PromptRendererTest() {
    std::filesystem::copy_file(kRendererData + "golden/tokenizers/llama3_style/tokenizer.json",
                               folder_ / "tokenizer.json");
    write_file_atomic(folder_ / "tokenizer_config.json",
                      R"({"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"})");
  }

  void give_template(const std::string& text) {
    write_file_atomic(folder_ / "chat_template.jinja", text);
  }

  PromptRenderer renderer() const { return {options_, tokenizer::Tokenizer::load(folder_.path())}; }

  std::string text(const char* row) const { return renderer().text(Json::parse(row), "f:1"); }

  std::string complaint(const char* row) const {
    try {
      return text(row);
    } catch (const InputError& error) {
      return error.what();
    }
  }

  const TestFolder folder_;
  DataOptions options_;
};

constexpr const char* kMessages = R"({"prompt": [{"role": "user", "content": "hi"}]})";

TEST_F(PromptRendererTest, TimeOfTheTemplateIsThatOfTheOptions) {
  give_template("{{ strftime_now('%d %b %Y %H:%M:%S') }}");
  options_.template_time = "2024-02-29T23:05:01";
  EXPECT_EQ(text(kMessages), "29 Feb 2024 23:05:01");
}

TEST_F(PromptRendererTest, MessagesUseTheModelsTemplate) {
  give_template(
      "{{ bos_token }}{{ messages[0].content }}{% if add_generation_prompt %}>{% endif %}");
  EXPECT_EQ(text(kMessages), "<|begin_of_text|>hi>");
  EXPECT_EQ(text(R"({"prompt": "hi"})"), "hi");
  options_.chat_template = "model";
  EXPECT_EQ(text(R"({"prompt": "ho"})"), "<|begin_of_text|>ho>");
  options_.prompt_template = "Q: {prompt}";
  EXPECT_EQ(text(R"({"prompt": "ho"})"), "<|begin_of_text|>Q: ho>");
}

TEST_F(PromptRendererTest, TemplateWritesTheOnlyBeginOfSequence) {
  give_template("{{ bos_token }}{{ messages[0].content }}");
  const auto tokens = *renderer().try_tokens(text(kMessages), "f:1");
  const int32_t bos = tokenizer::Tokenizer::load(folder_.path()).id_of("<|begin_of_text|>");
  EXPECT_EQ(tokens.front(), bos);
  EXPECT_EQ(std::ranges::count(tokens, bos), 1);
}

TEST_F(PromptRendererTest, VariablesAndToolsReachTheTemplate) {
  give_template("{{ enable_thinking }} {{ tools | tojson }}");
  options_.apply_chat_template_kwargs = "{enable_thinking = false}";
  EXPECT_EQ(text(kMessages), "False null");
  EXPECT_EQ(text(R"({"prompt": [{"role": "user"}], "tools": "[{\"name\": 1, \"args\": 2}]"})"),
            R"(False [{"name": 1, "args": 2}])");
  EXPECT_EQ(text(R"({"prompt": [{"role": "user"}], "tools": [{"name": 1}]})"),
            R"(False [{"name": 1}])");
  EXPECT_EQ(text(R"({"prompt": [{"role": "user"}], "tools": [{"name": 1, "args": 2}]})"),
            R"(False [{"name": 1, "args": 2}])");
  EXPECT_EQ(complaint(R"({"prompt": [{"role": "user"}], "tools": "x"})"),
            "f:1: \"tools\" is no list of tools; give a list of JSON schemas, or rename the field");
}

// As transformers renders Qwen2.5's template with add_generation_prompt.
TEST_F(PromptRendererTest, ChatMlMatchesQwen) {
  options_.chat_template = "chatml";
  EXPECT_EQ(text(R"({"prompt": "hi"})"),
            "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
            "assistant.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(text(R"({"prompt": [{"role": "system", "content": "Be brief."},
                                {"role": "user", "content": "hi"},
                                {"role": "assistant", "content": "ho"},
                                {"role": "user", "content": "?"}]})"),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
            "<|im_start|>assistant\nho<|im_end|>\n<|im_start|>user\n?<|im_end|>\n"
            "<|im_start|>assistant\n");
}

TEST_F(PromptRendererTest, ErrorsNameTheirCause) {
  EXPECT_EQ(complaint(kMessages), "f:1: the row has a list of messages, and the model folder " +
                                      folder_.path() +
                                      " has no chat template; set data.chat_template=chatml or to "
                                      "a .jinja file");
  give_template("{{ x | reverse }}");
  EXPECT_EQ(text(R"({"prompt": "hi"})"), "hi");  // which needs no template
  EXPECT_EQ(complaint(kMessages), "f:1: the row has a list of messages, and " +
                                      (folder_ / "chat_template.jinja") +
                                      ": line 1: the filter reverse is not supported; write [::-1] "
                                      "(docs/chat_templates.md)");
  options_.chat_template = "model";
  EXPECT_THROW(renderer(), InputError);
  options_.chat_template = "chatml";
  for (const char* row :
       {R"({"prompt": []})", R"({"prompt": [1]})", R"({"prompt": 5})",
        R"({"prompt": [{"role": "user"}]})", R"({"prompt": [{"role": "user", "content": 1}]})",
        R"({"prompt": [{"role": "tool", "content": "x"}]})"})
    EXPECT_THROW(text(row), InputError) << row;
  EXPECT_EQ(complaint(R"({"prompt": [{"role": "tool", "content": "x"}]})"),
            "f:1: data.chat_template=chatml: line 6: the template refuses: role \"tool\" is not "
            "known; give system, user or assistant");
}

}  // namespace
}  // namespace tlt::data
