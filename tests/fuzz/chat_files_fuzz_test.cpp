// The files in which a model folder has its chat template: tokenizer_config.json and
// chat_template.json. The templates themselves: jinja_fuzz_test.cpp.
//
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include "base/files.h"
#include "base/local_time.h"
#include "chat_template/chat_template.h"
#include "tests/support/fuzz.h"
#include "tests/support/test_folder.h"

namespace tlt::tests {
namespace {

void fuzz_file(const std::string& name) {
  FuzzPlan plan{
      .name = "chat_" + name.substr(0, name.find('.')),
      .corpus = {R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false},
                     "chat_template": "{{ bos_token }}{{ messages[0].content }}"})",
                 R"({"chat_template": [{"name": "default", "template": "{{ 1 }}"},
                                       {"name": "tool_use", "template": "{{ tools }}"}]})",
                 R"({"chat_template": "{% for m in messages %}{{ m.role }}{% endfor %}",
                     "additional_special_tokens": ["<a>"], "added_tokens_decoder": {"0": {}}})"},
      .dictionary = {"chat_template", "template", "name", "default", "tool_use", "bos_token",
                     "eos_token", "content", "{{", "}}", "{%", "%}", "\\u0000", "\\ud800"},
      .inputs = 4000,
      .mutate = [](Mutator& mutator, const std::string& text, const std::string& other) {
        return mutator.one_in(3) ? mutator.bytes(text, other) : mutator.json(text, other);
      }};
  const TestFolder folder;
  FileHandle file(folder / name, O_RDWR | O_CREAT);
  const chat_template::Chat chat{.messages = {{{"role", "user"}, {"content", "1+1"}}},
                                 .add_generation_prompt = true};
  const std::tm now = local_time(1699963200);
  fuzz(plan, [&](const std::string& text) {
    file.write_at(0, text);
    file.truncate(std::ssize(text));
    const auto found = chat_template::ChatTemplate::find(folder.path());
    if (!found) return std::string("none");
    const auto made = found->render(chat, "row 1", {.steps = 100'000, .now = now});
    return "text " + std::string(std::min<size_t>(made.text.size(), 60), '.');
  });
}

TEST(ChatFilesFuzzTest, TokenizerConfigsHaveATemplateOrAreRejected) {
  fuzz_file("tokenizer_config.json");
}

TEST(ChatFilesFuzzTest, TemplateFilesHaveATemplateOrAreRejected) {
  fuzz_file("chat_template.json");
}

}  // namespace
}  // namespace tlt::tests
