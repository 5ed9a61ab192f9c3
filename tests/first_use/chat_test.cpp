// tlt chat, through a pipe and in a terminal.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/first_use/support.h"
#include "tests/support/terminal.h"

namespace tlt::first_use {
namespace {

namespace fs = std::filesystem;
using tests::Terminal;

std::vector<std::string> chat(const std::string& model, const std::vector<std::string>& more = {}) {
  std::vector<std::string> words = {"chat", "--model", model, "--threads", "1"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// The demo's model with a chat template that renders a user message like a prompt of the demo.
std::string model_with_template() {
  const std::string folder = scratch_folder() + "/model";
  fs::copy(demo_model(), folder);
  write_file_atomic(folder + "/chat_template.jinja",
                    "{%- for m in messages -%}{%- if m.role == 'assistant' -%}{{ m.content }}<eos>"
                    "{%- else -%}{{ m.content }}{%- if m.role == 'user' -%}<think>{%- endif -%}"
                    "{%- endif -%}{%- endfor -%}");
  return folder;
}

// The concatenated responses of tlt generate to the prompts.
std::string generated(const std::string& model, const std::vector<std::string>& prompts,
                      const std::vector<std::string>& more = {}) {
  std::string rows, text;
  for (const std::string& prompt : prompts)
    rows += nlohmann::json{{"prompt", prompt}}.dump() + "\n";
  std::vector<std::string> words = {"generate", "--model", model,       "--prompts", "-",
                                    "--output", "-",       "--threads", "1"};
  words.insert(words.end(), more.begin(), more.end());
  const Ended ended = run_program(words, rows);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  for (const nlohmann::json& row : apps::json_lines(ended.out)) {
    std::string response = row["text"];
    if (response.ends_with("<eos>")) response.resize(response.size() - 5);
    text += response + "\n";
  }
  return text;
}

TEST(ChatTest, WithoutATemplateEqualsGenerate) {
  const std::string a = "7,6,3:60<think>", b = "9,8,2:34<think>";
  const Ended ended = run_program(chat(demo_model(), {"--seed", "4"}), a + "\n" + b + "\n");
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.out, generated(demo_model(), {a, b}, {"--seed", "4"}));
  EXPECT_THAT(ended.err, HasSubstr("has no chat template: each line is completed as written"));
}

TEST(ChatTest, TheConversationIsKeptUntilItIsCleared) {
  const std::string model = model_with_template();
  const std::vector<std::string> greedy = {"--temperature", "0", "--max-new-tokens", "60"};
  const std::string a = "7,6,3:60", b = "9,8,2:34";
  const std::string first = generated(model, {a + "<think>"}, greedy);
  const std::string history = a + "<think>" + first.substr(0, first.size() - 1) + "<eos>";
  const std::string second = generated(model, {history + b + "<think>"}, greedy);
  const Ended ended =
      run_program(chat(model, greedy), a + "\n" + b + "\n/clear\n" + a + "\n/exit\n" + a + "\n");
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.out, first + second + first);
  std::vector<std::string> words = chat(model, greedy);
  words.insert(words.end(), {"--system", "1,2:"});
  EXPECT_EQ(run_program(words, b).out, generated(model, {"1,2:" + b + "<think>"}, greedy));
}

TEST(ChatTest, MistakesAreNamed) {
  expect_refusal(run_program(chat(demo_model(), {"--system", "1"}), ""),
                 HasSubstr("--system cannot be used"));
  expect_refusal(run_program(chat(demo_model()), "/claer\n"),
                 HasSubstr("unknown command /claer; use /clear or /exit"));
  std::string longer;
  for (int i = 0; i < 2100; ++i) longer += "1,";
  expect_refusal(run_program(chat(demo_model()), longer + "\n"),
                 HasSubstr("the conversation has 4200 tokens and the model 2048 positions"));
}

TEST(ChatTest, ResponseIsStreamedToATerminal) {
  Terminal terminal(chat(demo_model(), {"--ignore-eos", "--max-new-tokens", "2000"}));
  ASSERT_TRUE(terminal.shows("> ")) << terminal.text();
  terminal.type("7,6,3:60<think>\n");
  ASSERT_TRUE(terminal.shows("7,6,3:60>")) << terminal.text();
  const size_t before = terminal.pieces().size();
  ASSERT_TRUE(terminal.shows("> ")) << terminal.text();
  EXPECT_GT(terminal.pieces().size(), before + 20) << "the response came in few pieces";
  terminal.type("\x04");
  EXPECT_EQ(terminal.wait(), 0) << terminal.text();
}

TEST(ChatTest, CtrlCStopsOnlyTheResponse) {
  Terminal terminal(chat(demo_model(), {"--ignore-eos", "--max-new-tokens", "2000"}));
  ASSERT_TRUE(terminal.shows("> ")) << terminal.text();
  terminal.type("7,6,3:60<think>\n");
  ASSERT_TRUE(terminal.shows("7,6,3:60>")) << terminal.text();
  const size_t begin = terminal.text().size();
  terminal.type("\x03");
  ASSERT_TRUE(terminal.shows("\n> ")) << terminal.text();
  EXPECT_LT(terminal.text().size() - begin, 4000u) << "2000 tokens have more bytes";
  terminal.type("\x03");  // nothing to stop
  ASSERT_TRUE(terminal.shows("\n> ")) << terminal.text();
  terminal.type("9,8,2:34<think>\n");
  ASSERT_TRUE(terminal.shows("9,8,2:34>")) << terminal.text();
  terminal.type("\x03");
  ASSERT_TRUE(terminal.shows("\n> ")) << terminal.text();
  terminal.type("/exit\n");
  EXPECT_EQ(terminal.wait(), 0) << terminal.text();
}

TEST(ChatTest, SigtermEndsTheProgram) {
  Terminal terminal(chat(demo_model()));
  ASSERT_TRUE(terminal.shows("> ")) << terminal.text();
  terminal.send(SIGTERM);
  EXPECT_EQ(terminal.wait(), 143) << terminal.text();
}

}  // namespace
}  // namespace tlt::first_use
