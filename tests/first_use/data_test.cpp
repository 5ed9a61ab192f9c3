// `tlt data inspect` and `tlt sft` on common row formats: messages, prompt and completion,
// ShareGPT, Alpaca.
//
// SPDX-License-Identifier: Apache-2.0
#include <fstream>

#include "tests/first_use/support.h"

namespace tlt::first_use {
namespace {

constexpr const char* kMessages =
    R"({"messages": [{"role": "user", "content": "7,6,3:60"}, {"role": "assistant", "content": "10*6"}]})";
constexpr const char* kShareGpt =
    R"({"conversations": [{"from": "human", "value": "7,6,3:60"}, {"from": "gpt", "value": "10*6"}]})";
constexpr const char* kCompletion = R"({"prompt": "7,6,3:60<think>", "completion": "10*6"})";
constexpr const char* kChatCompletion =
    R"({"prompt": [{"role": "user", "content": "7,6,3:60"}], "completion": [{"role": "assistant", "content": "10*6"}]})";
constexpr const char* kAlpaca = R"({"instruction": "7,6,3:60", "input": "", "output": "10*6"})";

// The demo's model with a chat template.
std::string chat_model() {
  const std::string folder = scratch_folder() + "/chat_model";
  std::filesystem::copy(
      demo_model(), folder,
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  std::ofstream(folder + "/chat_template.jinja")
      << "{% for m in messages %}{% if m.role == 'user' %}{{ m.content + '<think>' }}{% else %}"
         "{{ m.content + '<eos>' }}{% endif %}{% endfor %}";
  return folder;
}

Ended inspect(const std::string& rows, std::vector<std::string> words = {}) {
  words.insert(words.begin(), {"data", "inspect", scratch_file("rows.jsonl", rows)});
  return run_program(words);
}

TEST(DataTest, InspectShowsRowsOfSft) {
  const std::string model = chat_model();
  for (const char* row : {kMessages, kShareGpt}) {
    const Ended ended = inspect(row, {"--model", model});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_THAT(ended.out, AllOf(HasSubstr("tlt sft reads\n  conversation     "),
                                 HasSubstr("7,6,3:60<think>10*6"),
                                 HasSubstr("conversations in tokens: shortest "),
                                 HasSubstr("longer than data.max_prompt_length + "
                                           "data.max_response_length=1024: 0")));
  }
  const Ended pair = inspect(kCompletion, {"--model", model});
  EXPECT_EQ(pair.exit_code, 0) << pair.err;
  EXPECT_THAT(pair.out,
              AllOf(HasSubstr("tlt sft reads\n  prompt           prompt\n  response        "
                              " completion\n"),
                    HasSubstr("\n7,6,3:60<think>\n-- response: "),
                    HasSubstr("responses in tokens: shortest ")));
  EXPECT_THAT(inspect(kMessages).out, HasSubstr("conversations in bytes: "));
}

TEST(DataTest, InspectShowsPairsOfDpo) {
  const std::string model = chat_model();
  const char* implicit =
      R"({"chosen": [{"role": "user", "content": "7,6,3:60"}, {"role": "assistant", "content": "10*6"}], "rejected": [{"role": "user", "content": "7,6,3:60"}, {"role": "assistant", "content": "7*6"}]})";
  const Ended ended = inspect(implicit, {"--model", model});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("tlt dpo reads\n  prompt           what chosen and "
                                         "rejected begin with\n  chosen           chosen\n"),
                               HasSubstr("\n7,6,3:60<think>\n-- chosen: 4 tokens\n10*6<eos>\n"
                                         "-- rejected: 4 tokens\n7*6<eos>\n"),
                               HasSubstr("responses in tokens: shortest 4, ")));
  const Ended bytes = inspect(R"({"prompt": "7,6,3:60", "chosen": "10*6", "rejected": "7*6"})");
  EXPECT_THAT(bytes.out, AllOf(HasSubstr("-- rejected: 3 bytes\n7*6\n"),
                               HasSubstr("  prompt           prompt\n")));
  const Ended equal =
      inspect(R"({"prompt": "1", "chosen": "2", "rejected": "2"})", {"--model", demo_model()});
  EXPECT_THAT(equal.out, HasSubstr("equal to rejected: tlt dpo leaves the pair out"));
}

TEST(DataTest, AlpacaRowNamesTheOptionsToSet) {
  const Ended ended = inspect(kAlpaca);
  expect_refusal(ended, HasSubstr("rows.jsonl:1: an Alpaca row; set data.prompt_template=\""
                                  "{instruction}\\n{input}\" and data.response_key=output"));
  const Ended read = inspect(
      kAlpaca, {"data.prompt_template=\"{instruction}\\n{input}\"", "data.response_key=output"});
  EXPECT_EQ(read.exit_code, 0) << read.err;
  EXPECT_THAT(read.out, HasSubstr("\n7,6,3:60\n\n-- response: 4 bytes\n10*6\n"));
}

TEST(DataTest, PlainTextForAChatModelIsWarnedAbout) {
  const std::string row = R"({"prompt": "7,6,3:60"})", model = chat_model();
  const auto warns = HasSubstr("set data.chat_template=model");
  EXPECT_THAT(inspect(row, {"--model", model}).out, warns);
  EXPECT_THAT(inspect(row, {"--model", model, "data.chat_template=model"}).out, Not(warns));
  EXPECT_THAT(inspect(row, {"--model", model, "data.chat_template=none"}).out, Not(warns));
  EXPECT_THAT(inspect(row, {"--model", demo_model()}).out, Not(warns));
  const std::vector<std::string> train = {"train",
                                          "model.path=" + model,
                                          "data.train_files=" + scratch_file("rows.jsonl", row),
                                          "data.train_batch_size=1",
                                          "data.max_response_length=16",
                                          "rollout.n=2",
                                          "reward.functions=format",
                                          "trainer.total_training_steps=1",
                                          "trainer.threads=1",
                                          "trainer.val_before_train=false",
                                          "trainer.default_local_dir=" + scratch_folder() + "/run"};
  const Ended ended = run_program(train);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("the chat template of " + model + " is not applied"), warns));
}

TEST(DataTest, SftReadsEachForm) {
  const std::string model = chat_model();
  for (const char* row : {kMessages, kShareGpt, kCompletion, kChatCompletion}) {
    const std::string run = scratch_folder() + "/sft";
    std::filesystem::remove_all(run);
    const Ended ended = run_program(
        {"sft", "model.path=" + model, "data.train_files=" + scratch_file("rows.jsonl", row),
         "data.train_batch_size=1", "actor.ppo_mini_batch_size=1", "trainer.total_training_steps=1",
         "trainer.threads=1", "trainer.default_local_dir=" + run});
    EXPECT_EQ(ended.exit_code, 0) << row << "\n" << ended.err;
  }
}

TEST(DataTest, TrainNamesARowForSft) {
  expect_refusal(run_program({"train", "model.path=" + demo_model(),
                              "data.train_files=" + scratch_file("rows.jsonl", kMessages),
                              "reward.functions=format",
                              "trainer.default_local_dir=" + scratch_folder() + "/run"}),
                 HasSubstr("rows.jsonl:1: a conversation under \"messages\", as tlt sft and tlt "
                           "draft read it, and no prompt"));
}

}  // namespace
}  // namespace tlt::first_use
