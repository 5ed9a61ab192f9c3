// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include "base/utf8.h"
#include "model/safetensors.h"
#include "tests/support/run_program.h"
#include "tests/support/terminal.h"

namespace tlt::apps {
namespace {

// A golden model that generates random byte-level tokens, most of them parts of characters.
std::string byte_level_model() {
  constexpr int64_t kVocabulary = 900;
  const std::string folder = scratch_folder() + "/model", golden = golden_model("qwen2_tied");
  make_folder(folder);
  model::SafetensorsFolder weights(golden);
  std::vector<model::TensorSource> sources;
  for (const std::string& name : weights.names()) {
    at::Tensor tensor = weights.read(name);
    if (name == "model.embed_tokens.weight")
      tensor = tensor.repeat({3, 1}).narrow(0, 0, kVocabulary).contiguous();
    sources.push_back(model::TensorSource::of(name, tensor));
  }
  model::write_safetensors_folder(folder, sources);
  nlohmann::json config = nlohmann::json::parse(read_file(golden + "/config.json", 1 << 20));
  config["vocab_size"] = kVocabulary;
  write_file_atomic(folder + "/config.json", config.dump());
  std::filesystem::copy(golden_tokenizer("gpt2_style") + "/tokenizer.json",
                        folder + "/tokenizer.json");
  return folder;
}

TEST(ChatTest, MultiTokenCharactersAreShownWhole) {
  const std::string model = byte_level_model();
  const std::vector<std::string> more = {"--temperature", "3",         "--max-new-tokens",
                                         "300",           "--threads", "1"};
  std::vector<std::string> chat = {"chat", "--model", model},
                           generate = {"generate", "--model",  model, "--prompt",
                                       "a",        "--output", "-"};
  for (auto* words : {&chat, &generate}) words->insert(words->end(), more.begin(), more.end());
  const auto rows = json_lines(run_program(generate).out);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(run_program(chat, "a\n").out, rows[0]["text"].get<std::string>() + "\n");

  tests::Terminal terminal(chat);
  ASSERT_TRUE(terminal.shows("> ")) << terminal.text();
  terminal.type("a\n");
  ASSERT_TRUE(terminal.shows("stopped after 300 tokens")) << terminal.text();
  terminal.type("/exit\n");
  EXPECT_EQ(terminal.wait(), 0);
  for (const std::string& piece : terminal.pieces()) EXPECT_TRUE(is_valid_utf8(piece)) << piece;
}

}  // namespace
}  // namespace tlt::apps
