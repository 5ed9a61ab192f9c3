// SPDX-License-Identifier: Apache-2.0
#include "data/preference_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "base/files.h"
#include "data/countdown.h"
#include "data/countdown_source.h"

namespace tlt::data {
namespace {

using ::testing::HasSubstr;

const tokenizer::Tokenizer& tokenizer_of_demo() {
  static const tokenizer::Tokenizer kTokenizer =
      tokenizer::Tokenizer::load(std::string(TLT_SOURCE_DIR) + "/tests/golden/tokenizers/demo");
  return kTokenizer;
}

// Writes a turn's content and, after an assistant's, the end.
std::string pair_template() {
  std::string file = ::testing::TempDir() + "preference.jinja";
  write_file_atomic(file,
                    "{% for m in messages %}{{ m.content }}{{ '<eos>' if m.role == 'assistant' "
                    "else '<think>' }}{% endfor %}");
  return file;
}

DataOptions options_of_pairs(const std::string& rows) {
  DataOptions options;
  options.train_files = {::testing::TempDir() + "preference.jsonl"};
  write_file_atomic(options.train_files[0], rows);
  options.chat_template = pair_template();
  return options;
}

PreferenceDataset load_pairs(const DataOptions& options) {
  return PreferenceDataset::load(options, tokenizer_of_demo(), Split::kTrain);
}

std::string text_of_pair(const SftExample& example) {
  return tokenizer_of_demo().decode(example.tokens);
}

DataOptions with_template(const std::string& name) {
  DataOptions options;
  options.chat_template = name;
  return options;
}

void expect_no_pair(const std::string& row, const std::string& says, DataOptions options = {}) {
  const std::string chat_template = options.chat_template;
  options.train_files = options_of_pairs(row).train_files;
  options.chat_template = chat_template == "auto" ? pair_template() : chat_template;
  try {
    load_pairs(options);
    ADD_FAILURE() << "not refused: " << row;
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr(says)) << row;
  }
}

TEST(PreferenceDatasetTest, TextsArePromptAndTwoResponses) {
  DataOptions options =
      options_of_pairs(R"({"prompt":"1,2:3<think>","chosen":"1+2=3","rejected":"2-1=1<eos>"})");
  options.chat_template = "auto";
  const PreferenceDataset dataset = load_pairs(options);
  ASSERT_EQ(dataset.size(), 1);
  const PreferencePair pair = dataset.pair(0);
  EXPECT_EQ(text_of_pair(pair.chosen), "1,2:3<think>1+2=3<eos>");
  EXPECT_EQ(text_of_pair(pair.rejected), "1,2:3<think>2-1=1<eos>");
  EXPECT_EQ(pair.chosen.response_begin, 6);
  EXPECT_EQ(pair.chosen.weights, (std::vector<float>{0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1}));
}

TEST(PreferenceDatasetTest, FormsOfMessagesGiveTheSamePair) {
  const char* forms[] = {
      // TRL: an explicit prompt, an implicit one, one as text next to the implicit one
      R"({"prompt":[{"role":"user","content":"1"}],"chosen":[{"role":"assistant","content":"2"}],
          "rejected":[{"role":"assistant","content":"3"}]})",
      R"({"chosen":[{"role":"user","content":"1"},{"role":"assistant","content":"2"}],
          "rejected":[{"role":"user","content":"1"},{"role":"assistant","content":"3"}]})",
      R"({"prompt":"1","chosen":[{"role":"user","content":"1"},{"role":"assistant","content":"2"}],
          "rejected":[{"role":"user","content":"1"},{"role":"assistant","content":"3"}]})",
      R"({"prompt":"1","chosen":[{"role":"assistant","content":"2"}],
          "rejected":[{"role":"assistant","content":"3"}]})",
      // ShareGPT, as LLaMA-Factory has it
      R"({"conversations":[{"from":"human","value":"1"}],"chosen":{"from":"gpt","value":"2"},
          "rejected":{"from":"gpt","value":"3"}})"};
  for (std::string form : forms) {
    std::erase(form, '\n');
    const PreferencePair pair = load_pairs(options_of_pairs(form)).pair(0);
    EXPECT_EQ(text_of_pair(pair.chosen), "1<think>2<eos>") << form;
    EXPECT_EQ(text_of_pair(pair.rejected), "1<think>3<eos>") << form;
    EXPECT_EQ(pair.chosen.response_begin, 2) << form;
    EXPECT_EQ(pair.chosen.weights, (std::vector<float>{0, 0, 1, 1})) << form;
  }
}

TEST(PreferenceDatasetTest, OnlyMessagesAfterTheCommonOnesCount) {
  const PreferencePair pair =
      load_pairs(
          options_of_pairs(
              R"({"chosen":[{"role":"user","content":"1"},{"role":"assistant","content":"2"},)"
              R"({"role":"user","content":"3"},{"role":"assistant","content":"4"},)"
              R"({"role":"user","content":"5"},{"role":"assistant","content":"6"}],)"
              R"("rejected":[{"role":"user","content":"1"},{"role":"assistant","content":"2"},)"
              R"({"role":"user","content":"3"},{"role":"assistant","content":"7"}]})"))
          .pair(0);
  EXPECT_EQ(text_of_pair(pair.chosen), "1<think>2<eos>3<think>4<eos>5<think>6<eos>");
  EXPECT_EQ(pair.chosen.weights, (std::vector<float>{0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1}));
  EXPECT_EQ(pair.chosen.response_begin, 6);
  EXPECT_EQ(text_of_pair(pair.rejected), "1<think>2<eos>3<think>7<eos>");
  EXPECT_EQ(pair.rejected.weights, (std::vector<float>{0, 0, 0, 0, 0, 0, 1, 1}));
}

TEST(PreferenceDatasetTest, EqualPairsAreLeftOutAndCounted) {
  DataOptions options = options_of_pairs(
      R"({"prompt":"1","chosen":"2","rejected":"2"})"
      "\n"
      R"({"prompt":"1","chosen":"2","rejected":"2<eos>"})"
      "\n"
      R"({"prompt":"1","chosen":"2","rejected":"3"})"
      "\n"
      R"({"chosen":[{"role":"user","content":"1"}],"rejected":[{"role":"user","content":"1"}]})");
  const PreferenceDataset dataset = load_pairs(options);
  EXPECT_EQ(dataset.size(), 1);
  EXPECT_EQ(dataset.equal_pairs(), 3);
  EXPECT_EQ(dataset.left_out(), 0);
  EXPECT_EQ(dataset.pair(0).chosen.row, 2);
  expect_no_pair(R"({"prompt":"1","chosen":"2","rejected":"2"})",
                 "0 were too long, and in 1 chosen and rejected are equal");
}

TEST(PreferenceDatasetTest, LongPairsAreLeftOutOrRefused) {
  const std::string rows =
      R"({"prompt":"1","chosen":"2","rejected":"2+2+2"})"
      "\n"
      R"({"prompt":"1","chosen":"2","rejected":"3"})"
      "\n"
      R"({"chosen":[{"role":"user","content":"1"},{"role":"assistant","content":"1+2+3+4+5"}],)"
      R"("rejected":[{"role":"user","content":"1"},{"role":"assistant","content":"3"}]})"
      "\n"
      R"({"prompt":"1+1+1+1+1","chosen":"2","rejected":"3"})";
  DataOptions options = options_of_pairs(rows);
  options.max_response_length = 4;
  options.max_prompt_length = 4;
  expect_no_pair(rows, "preference.jsonl:1: the rejected response has 6 tokens", options);
  options.filter_overlong_prompts = true;
  EXPECT_EQ(load_pairs(options).size(), 1);
  EXPECT_EQ(load_pairs(options).left_out(), 3);
  options.train_max_samples = 2;
  EXPECT_EQ(load_pairs(options).left_out(), 1);
}

TEST(PreferenceDatasetTest, MalformedRowsAreNamed) {
  const std::string place = "preference.jsonl:1: ";
  expect_no_pair(R"({"prompt":"1","rejected":"2"})",
                 place + "no \"chosen\"; a row of tlt dpo has prompt, chosen and rejected");
  expect_no_pair(R"({"prompt":"1","chosen":"2"})", place + "no \"rejected\"");
  expect_no_pair(R"({"prompt":"1","chosen":"2","rejected":null})", place + "no \"rejected\"");
  expect_no_pair(R"({"prompt":"1","chosen":"2","rejected":5})",
                 place + "\"rejected\" must be a text or a list of messages");
  expect_no_pair(R"({"chosen":"2","rejected":"3"})", place + "no field \"prompt\"");
  expect_no_pair(R"({"prompt":"1","chosen":"2","rejected":[]})", "give both in one form");
  expect_no_pair(
      R"({"chosen":[{"role":"assistant","content":"2"}],"rejected":[{"role":"assistant","content":"3"}]})",
      "have no first message in common, and the row has no prompt");
  expect_no_pair(
      R"({"chosen":[{"role":"user","content":"2"},{"role":"assistant","content":"2"}],"rejected":[{"role":"user","content":"2"}]})",
      "must both continue with a message of the assistant");
  expect_no_pair(
      R"({"prompt":[{"role":"user","content":"9"}],"chosen":[{"role":"user","content":"2"},{"role":"assistant","content":"2"}],"rejected":[{"role":"user","content":"2"},{"role":"assistant","content":"3"}]})",
      "are not those of the prompt");
  expect_no_pair(R"({"chosen":[1,2],"rejected":[1,3]})", place);
  expect_no_pair(
      R"({"prompt":[{"role":"user","content":"1"}],"chosen":[{"role":"assistant","content":"2"}],"rejected":[{"role":"assistant","content":"3"}]})",
      "data.chat_template is none", with_template("none"));
}

TEST(PreferenceDatasetTest, TemplateThatRewritesTheAnswerIsRefused) {
  const std::string file = ::testing::TempDir() + "rewriting.jinja";
  write_file_atomic(file,
                    "{% for m in messages %}{{ m.content if m.role == 'user' or loop.last else '-' "
                    "}}{{ '<eos>' if m.role == 'assistant' else '<think>' }}{% endfor %}");
  const std::string turns = R"({"role":"assistant","content":"2"},{"role":"user","content":"3"},)";
  expect_no_pair(R"({"prompt":[{"role":"user","content":"1"}],"chosen":[)" + turns +
                     R"({"role":"assistant","content":"4"}],"rejected":[)" + turns +
                     R"({"role":"assistant","content":"5"}]})",
                 "chosen: the chat template writes earlier messages", with_template(file));
}

TEST(PreferenceDatasetTest, GeneratedPairsHaveARightAndAWrongTrace) {
  DataOptions options;
  options.train_files = {"countdown:seed=1,size=100,four=0.2"};
  options.max_response_length = 200;
  const PreferenceDataset dataset = load_pairs(options);
  ASSERT_EQ(dataset.size(), 100);
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const PreferencePair pair = dataset.pair(i);
    ASSERT_EQ(pair.chosen.tokens, dataset.pair(i).chosen.tokens);
    const std::string chosen = text_of_pair(pair.chosen), rejected = text_of_pair(pair.rejected);
    const std::string prompt = chosen.substr(0, chosen.find("<think>") + 7);
    ASSERT_TRUE(rejected.starts_with(prompt)) << chosen << "\n" << rejected;
    const std::string target =
        prompt.substr(prompt.find(':') + 1, prompt.find('<') - prompt.find(':') - 1);
    ASSERT_THAT(chosen, HasSubstr("=" + target + "</think>"));
    ASSERT_THAT(rejected, ::testing::Not(HasSubstr("=" + target + "</think>")));
    ASSERT_LE(std::ssize(pair.chosen.tokens) - pair.chosen.response_begin, 200);
  }
  options.train_files = {"countdown:seed=1,size=3,patience=1.0"};
  try {
    load_pairs(options).pair(0);
    ADD_FAILURE() << "a demonstrator with patience=1 never gives up";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("lower patience="));
  }
}

}  // namespace
}  // namespace tlt::data
