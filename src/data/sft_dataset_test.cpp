// SPDX-License-Identifier: Apache-2.0
#include "data/sft_dataset.h"

#include <gtest/gtest.h>

#include <set>

#include "base/check.h"
#include "base/files.h"

namespace tlt::data {
namespace {

const tokenizer::Tokenizer& demo_tokenizer() {
  static const tokenizer::Tokenizer kTokenizer =
      tokenizer::Tokenizer::load(std::string(TLT_SOURCE_DIR) + "/tests/golden/tokenizers/demo");
  return kTokenizer;
}

DataOptions options_for(const std::string& rows) {
  DataOptions options;
  options.train_files = {::testing::TempDir() + "sft.jsonl"};
  write_file_atomic(options.train_files[0], rows);
  return options;
}

SftDataset load_sft(const DataOptions& options) {
  return SftDataset::load(options, demo_tokenizer(), Split::kTrain);
}

TEST(SftDatasetTest, RowIsPromptAndResponseWithAnEnd) {
  DataOptions options = options_for(
      "{\"prompt\":\"1,2:3<think>\",\"response\":\"1+2=3\\n</think>\"}\n"
      "{\"prompt\":\"1\",\"response\":\"2<eos>\"}");
  options.loss_weights = {"\n=3", "</think>=2.5", "==0"};
  const SftDataset dataset = load_sft(options);
  ASSERT_EQ(dataset.size(), 2);
  const SftExample example = dataset.example(0);
  EXPECT_EQ(demo_tokenizer().decode(example.tokens), "1,2:3<think>1+2=3\n</think><eos>");
  EXPECT_EQ(example.response_begin, 6);
  EXPECT_EQ(example.weights, (std::vector<float>{0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 1, 3, 2.5, 1}));
  EXPECT_EQ(demo_tokenizer().decode(dataset.example(1).tokens), "12<eos>");
}

TEST(SftDatasetTest, LoadsMessagesWithAResponse) {
  DataOptions options = options_for(R"({"prompt":[{"role":"user","content":"1"}],"response":"2"})");
  options.chat_template = "chatml";
  const SftExample example = load_sft(options).example(0);
  EXPECT_EQ(example.tokens.size(), static_cast<size_t>(example.response_begin) + 2);
}

TEST(SftDatasetTest, FormatsOfOtherSystemsGiveTheSameExample) {
  const std::string file = ::testing::TempDir() + "sft_forms.jinja";
  write_file_atomic(file,
                    "{% for m in messages %}{{ m.content }}{{ '<eos>' if m.role == "
                    "'assistant' }}{% endfor %}");
  const auto tokens_of = [&](const char* row) {
    DataOptions options = options_for(row);
    options.chat_template = file;
    return load_sft(options).example(0).tokens;
  };
  const std::vector<int32_t> want = tokens_of(
      R"({"messages":[{"role":"user","content":"1"},{"role":"assistant","content":"2"}]})");
  EXPECT_EQ(
      tokens_of(R"({"conversations":[{"from":"human","value":"1"},{"from":"gpt","value":"2"}]})"),
      want);
  EXPECT_EQ(tokens_of(R"({"prompt":[{"role":"user","content":"1"}],)"
                      R"("completion":[{"role":"assistant","content":"2"}]})"),
            want);
  EXPECT_EQ(tokens_of(R"({"prompt":"1","completion":"2"})").size(), want.size());
  for (const char* wrong : {R"({"conversations":[{"from":"robot","value":"1"}]})",
                            R"({"conversations":[{"from":"human"}]})", R"({"conversations":["1"]})",
                            R"({"conversations":"1"})"})
    EXPECT_THROW(tokens_of(wrong), InputError) << wrong;
}

TEST(SftDatasetTest, ConversationTrainsTheAssistantsMessages) {
  DataOptions options = options_for(
      R"({"messages":[{"role":"user","content":"1"},{"role":"assistant","content":"2"},
                      {"role":"user","content":"3"},{"role":"assistant","content":"4"}]})");
  std::string row = read_file(options.train_files[0], 1 << 20);
  std::erase(row, '\n');
  write_file_atomic(options.train_files[0], row);
  const std::string file = ::testing::TempDir() + "sft.jinja";
  write_file_atomic(file,
                    "{% for m in messages %}{{ m.content }}{{ '<eos>' if m.role == 'assistant' "
                    "else '<think>' }}{% endfor %}");
  options.chat_template = file;
  options.loss_weights = {"4=3"};
  const SftExample example = load_sft(options).example(0);
  EXPECT_EQ(demo_tokenizer().decode(example.tokens), "1<think>2<eos>3<think>4<eos>");
  EXPECT_EQ(example.response_begin, 2);
  EXPECT_EQ(example.weights, (std::vector<float>{0, 0, 1, 1, 0, 0, 3, 1}));
  EXPECT_EQ(example.spans, (std::vector<std::pair<int64_t, int64_t>>{{2, 4}, {6, 8}}));
  options.max_prompt_length = options.max_response_length = 3;
  EXPECT_THROW(load_sft(options), InputError);
}

TEST(SftDatasetTest, RewrittenConversationIsSeveralExamples) {
  DataOptions options = options_for(
      "{\"prompt\":\"1\",\"response\":\"2\"}\n"
      R"({"messages":[{"role":"user","content":"1"},{"role":"assistant","content":"2=2"},)"
      R"({"role":"user","content":"3"},{"role":"assistant","content":"4=4"}]})"
      "\n{\"prompt\":\"1\",\"response\":\"3\"}");
  // The last message in full, earlier ones without the part before "=".
  const std::string file = ::testing::TempDir() + "sft_later.jinja";
  write_file_atomic(file,
                    "{% for m in messages %}{{ m.content if loop.last else m.content.split('=')[-1]"
                    " }}{{ '<eos>' if m.role == 'assistant' else '<think>' }}{% endfor %}");
  options.chat_template = file;
  const SftDataset dataset = load_sft(options);
  ASSERT_EQ(dataset.size(), 4);
  const auto text = [&](int64_t i) { return demo_tokenizer().decode(dataset.example(i).tokens); };
  EXPECT_EQ(text(1), "1<think>2=2<eos>");
  EXPECT_EQ(text(2), "1<think>2<eos>3<think>4=4<eos>");
  EXPECT_EQ(dataset.example(2).weights, (std::vector<float>{0, 0, 0, 0, 0, 0, 1, 1, 1, 1}));
  for (const auto& [example, row] : {std::pair{0, 0}, {1, 1}, {2, 1}, {3, 2}})
    EXPECT_EQ(dataset.example(example).row, row) << example;
  options.train_max_samples = 2;
  EXPECT_EQ(load_sft(options).size(), 3);
  options.max_prompt_length = options.max_response_length = 4;
  options.filter_overlong_prompts = true;
  EXPECT_EQ(load_sft(options).left_out(), 1);
}

TEST(SftDatasetTest, LongResponsesAreLeftOutOrAnError) {
  DataOptions options =
      options_for("{\"prompt\":\"1\",\"response\":\"2+2\"}\n{\"prompt\":\"1\",\"response\":\"2\"}");
  options.max_response_length = 3;
  EXPECT_THROW(load_sft(options), InputError);
  options.filter_overlong_prompts = true;
  EXPECT_EQ(load_sft(options).size(), 1);
  EXPECT_EQ(load_sft(options).left_out(), 1);
}

TEST(SftDatasetTest, MalformedRowsAreErrors) {
  EXPECT_THROW(load_sft(options_for("")), InputError);
  EXPECT_THROW(load_sft(options_for(R"({"prompt":"1"})")), InputError);
  EXPECT_THROW(load_sft(options_for(R"({"prompt":"1","response":5})")), InputError);
  for (const char* weight : {"x", "=3", "1=", "1=a", "1=-1", "1=nan", "1,2=3"}) {
    DataOptions options = options_for(R"({"prompt":"1","response":"2"})");
    options.loss_weights = {weight};
    EXPECT_THROW(load_sft(options), InputError) << weight;
  }
}

TEST(SftDatasetTest, DemonstrationsAreGenerated) {
  DataOptions options;
  options.train_files = {"countdown:seed=1,size=300,four=0.2,insight=0.4,patience=1.0"};
  options.loss_weights = {"\n=3", "</think>=3"};
  options.max_response_length = 80;
  const SftDataset dataset = load_sft(options);
  EXPECT_EQ(dataset.size(), 300);
  std::set<std::vector<int32_t>> different;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const SftExample example = dataset.example(i);
    ASSERT_EQ(example.tokens, dataset.example(i).tokens);
    different.insert(example.tokens);
    ASSERT_EQ(example.tokens.size(), example.weights.size());
    ASSERT_LE(std::ssize(example.tokens) - example.response_begin, 80);
    ASSERT_EQ(example.tokens[example.response_begin - 1], demo_tokenizer().id_of("<think>"));
    ASSERT_EQ(example.tokens.back(), demo_tokenizer().id_of("<eos>"));
    for (int64_t at = 0; at < std::ssize(example.tokens); ++at) {
      const bool is_heavy = example.tokens[at] == demo_tokenizer().id_of("\n") ||
                            example.tokens[at] == demo_tokenizer().id_of("</think>");
      ASSERT_EQ(example.weights[at], at < example.response_begin ? 0.0F : is_heavy ? 3.0F : 1.0F);
    }
  }
  EXPECT_GT(different.size(), 290U);
}

TEST(SftDatasetTest, DemonstrationsThatNeverFitAreAnError) {
  DataOptions options;
  options.train_files = {"countdown:seed=1,size=3"};
  options.max_response_length = 5;
  EXPECT_THROW(load_sft(options).example(0), InputError);
}

}  // namespace
}  // namespace tlt::data
