// SPDX-License-Identifier: Apache-2.0
#include "data/dataset.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "base/check.h"
#include "base/files.h"

namespace tlt::data {
namespace {

const std::string kTokenizers = std::string(TLT_SOURCE_DIR) + "/tests/golden/tokenizers/";
const std::string kParquet = std::string(TLT_SOURCE_DIR) + "/tests/golden/parquet/";

const tokenizer::Tokenizer& gpt2_tokenizer() {
  static const tokenizer::Tokenizer kTokenizer =
      tokenizer::Tokenizer::load(kTokenizers + "gpt2_style");
  return kTokenizer;
}

std::string file(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + name;
  write_file_atomic(path, text);
  return path;
}

DataOptions options_for(std::vector<std::string> files) {
  DataOptions options;
  options.train_files = std::move(files);
  return options;
}

// The fields of a reward that reads everything.
constexpr RequiredFields kAll = {.ground_truth = true, .data_source = true};

Dataset load(const DataOptions& options, const RequiredFields& required = kAll) {
  return Dataset::load(options, gpt2_tokenizer(), Split::kTrain, required);
}

// The error message without the folder of its file.
std::string error_of(const DataOptions& options, const std::string& folder = ::testing::TempDir()) {
  try {
    load(options);
  } catch (const InputError& error) {
    const std::string text = error.what();
    const size_t at = text.find(folder);
    return at == std::string::npos ? text : text.substr(0, at) + text.substr(at + folder.size());
  }
  return "no error";
}

constexpr auto kVerlRow =
    R"({"data_source":"openai/gsm8k","prompt":"What is 1+1?","ability":"math","reward_model":{"style":"rule","ground_truth":"2"},"extra_info":{"split":"train","index":0}})";
constexpr auto kGsm8kRow =
    R"({"question":"What is 1+1?","answer":"It is 1+1=<<1+1=2>>2.\n#### 2"})";

TEST(DatasetTest, ReadsVerlsRow) {
  const Dataset dataset =
      load(options_for({file("verl.jsonl", std::string(kVerlRow) + "\n\n" + kVerlRow)}));
  ASSERT_EQ(dataset.size(), 2);
  const Prompt prompt = dataset.prompt(1);
  EXPECT_EQ(prompt.id, 1U);
  EXPECT_EQ(prompt.text, "What is 1+1?");
  EXPECT_EQ(prompt.tokens, gpt2_tokenizer().encode(prompt.text));
  EXPECT_EQ(prompt.data_source, "openai/gsm8k");
  EXPECT_EQ(prompt.ground_truth, "2");
  EXPECT_EQ(prompt.extra_info.at("split"), "train");
}

TEST(DatasetTest, ReadsGsm8ksRowByKeysAndTemplate) {
  DataOptions options = options_for({file("gsm8k.jsonl", kGsm8kRow)});
  options.prompt_template = "{question} Think.";
  options.answer_key = "answer";
  options.answer_after = "####";
  options.data_source = "openai/gsm8k";
  const Prompt prompt = load(options).prompt(0);
  EXPECT_EQ(prompt.text, "What is 1+1? Think.");
  EXPECT_EQ(prompt.ground_truth, "2");
  EXPECT_EQ(prompt.data_source, "openai/gsm8k");
  EXPECT_EQ(prompt.extra_info, nlohmann::ordered_json::parse(kGsm8kRow));
}

TEST(DatasetTest, ReadsAListOfRowsAndAnswersThatAreNoStrings) {
  DataOptions options = options_for(
      {file("list.json", R"([{"prompt": "a", "answer": {"target": 5}, "data_source": "x"}])")});
  options.answer_key = "answer";
  EXPECT_EQ(load(options).prompt(0).ground_truth, R"({"target":5})");
}

TEST(DatasetTest, MessagesNeedAChatTemplate) {
  DataOptions options = options_for({file(
      "messages.jsonl",
      R"({"data_source":"x","prompt":[{"role":"user","content":"hi"}],"reward_model":{"ground_truth":"2"}})")});
  EXPECT_TRUE(error_of(options).starts_with(
      "messages.jsonl:1: the row has a list of messages, and the model folder "));
  options.chat_template = "chatml";
  EXPECT_TRUE(load(options).prompt(0).text.ends_with(
      "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"));
}

TEST(DatasetTest, EveryErrorHasItsPlace) {
  const std::string row = kVerlRow;
  EXPECT_TRUE(error_of(options_for({file("a.jsonl", row + "\n{\"prompt\": ")}))
                  .starts_with("a.jsonl:2: not JSON"));
  EXPECT_TRUE(error_of(options_for({file("b.jsonl", row + "\n[1]")}))
                  .starts_with("b.jsonl:2: a row must be a JSON object"));
  EXPECT_EQ(
      error_of(options_for({file("c.jsonl", row + "\n{\"prompt\":\"x\",\"data_source\":\"y\"}")})),
      "c.jsonl:2: no field \"reward_model.ground_truth\"; set data.answer_key (the row has: "
      "prompt, data_source)");
  EXPECT_TRUE(error_of(options_for({file("d.jsonl", kGsm8kRow)}))
                  .starts_with("d.jsonl:1: no field \"prompt\"; set data.prompt_key"));
  EXPECT_TRUE(
      error_of(options_for({file(
                   "e.jsonl",
                   R"({"prompt":"","data_source":"y","reward_model":{"ground_truth":"2"}})")}))
          .starts_with("e.jsonl:1: the prompt is empty"));
  EXPECT_TRUE(
      error_of(
          options_for({file("f.jsonl", R"({"prompt":"a","reward_model":{"ground_truth":"2"}})")}))
          .starts_with(
              "f.jsonl:1: no field \"data_source\"; set data.reward_fn_key or data.data_source"));
  EXPECT_EQ(error_of(options_for({file("n.jsonl", row + "\n{\"prompt\":null}")})),
            "n.jsonl:2: the field \"prompt\" is null; give it a value, or set data.prompt_key");
  EXPECT_EQ(
      error_of(options_for({file(
          "m.jsonl", R"({"prompt":"a","data_source":"y","reward_model":{"ground_truth":null}})")})),
      "m.jsonl:1: the field \"reward_model.ground_truth\" is null; give it a value, or set "
      "data.answer_key");
  EXPECT_TRUE(error_of(options_for({file("empty.jsonl", "\n\n")}))
                  .starts_with("data.train_files: no prompts in empty.jsonl"));
  EXPECT_TRUE(
      error_of(options_for({file("g.csv", "prompt")})).starts_with("g.csv: not a data file"));
  EXPECT_TRUE(error_of(options_for({file("h.json", row)})).starts_with("h.json: not a JSON list"));
  EXPECT_TRUE(error_of(options_for({"/nowhere.jsonl"})).starts_with("/nowhere.jsonl: "));
  EXPECT_TRUE(error_of(options_for({})).starts_with("data.train_files is empty"));
  DataOptions options = options_for({file("i.jsonl", row)});
  options.answer_after = "####";
  EXPECT_EQ(error_of(options), "i.jsonl:1: no \"####\" in the answer; set data.answer_after");
  options = options_for({});
  options.truncation = "up";
  EXPECT_EQ(error_of(options), "data.truncation is \"up\"; give one of error, left, right, middle");
}

TEST(DatasetTest, RowsThatTheCheckRejectsAreNamed) {
  const auto refuse = [](const char* answer) {
    return [answer](const Prompt& prompt) {
      TLT_CHECK_INPUT(prompt.ground_truth != answer, "no ", answer, " here");
    };
  };
  DataOptions options =
      options_for({file("checked.jsonl", std::string(kVerlRow) + "\n" +
                                             R"({"prompt":"x","data_source":"y",)"
                                             R"("reward_model":{"ground_truth":""}})")});
  const auto load_with = [&](const RowCheck& check) {
    return Dataset::load(options, gpt2_tokenizer(), Split::kTrain, kAll, check);
  };
  EXPECT_NO_THROW(load_with(refuse("5")));
  try {
    load_with(refuse(""));
    FAIL() << "the second row was not refused";
  } catch (const InputError& error) {
    EXPECT_TRUE(std::string(error.what()).ends_with("checked.jsonl:2: no  here")) << error.what();
  }
  options.train_max_samples = 1;
  EXPECT_NO_THROW(load_with(refuse(""))) << "the second row is not used";
  options = options_for({"countdown:seed=3,size=4"});
  const std::string first = load_with({}).prompt(0).ground_truth;
  EXPECT_THROW(load_with(refuse(first.c_str())), InputError);
}

TEST(DatasetTest, LongPromptsAreTruncatedLeftOutOrAnError) {
  DataOptions options = options_for(
      {file("long.jsonl",
            R"({"prompt":"0123456789","data_source":"x","reward_model":{"ground_truth":"2"}})"
            "\n" +
                std::string(kVerlRow) + "\n" +
                R"({"prompt":"!","data_source":"x","reward_model":{"ground_truth":"2"}})")});
  options.train_max_samples = 1;
  const std::vector<int32_t> all = gpt2_tokenizer().encode("0123456789");
  ASSERT_GE(all.size(), 6U);
  options.max_prompt_length = 5;
  EXPECT_TRUE(error_of(options).starts_with("long.jsonl:1: the prompt has ")) << error_of(options);
  const auto tokens = [&](const char* truncation) {
    options.truncation = truncation;
    return load(options).prompt(0).tokens;
  };
  using Tokens = std::vector<int32_t>;
  EXPECT_EQ(tokens("left"), Tokens(all.end() - 5, all.end()));
  EXPECT_EQ(tokens("right"), Tokens(all.begin(), all.begin() + 5));
  EXPECT_EQ(tokens("middle"), (Tokens{all[0], all[1], all[all.size() - 3], all[all.size() - 2],
                                      all[all.size() - 1]}));

  options.filter_overlong_prompts = true;
  options.train_max_samples = -1;
  options.max_prompt_length = 1;
  const Dataset dataset = load(options);
  EXPECT_EQ(dataset.size(), 1);
  EXPECT_EQ(dataset.left_out(), 2);
  EXPECT_EQ(dataset.prompt(0).id, 2U) << "ids count the rows left out";
}

std::string parquet_error_of(const DataOptions& options) { return error_of(options, kParquet); }

TEST(DatasetTest, ParquetAndJsonLinesGiveTheSamePrompts) {
  for (const char* name : {"verl_gsm8k", "trl", "trl_chat"}) {
    const std::string path = kParquet + name;
    DataOptions options = options_for({path + ".parquet"});
    options.chat_template = "chatml";
    if (std::string(name) != "verl_gsm8k") options.data_source = "trl";
    const Dataset dataset = load(options);
    options.train_files = {path + ".jsonl"};
    const Dataset want = load(options);
    ASSERT_EQ(dataset.size(), want.size()) << name;
    ASSERT_GT(want.size(), 0) << name;
    for (int64_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(dataset.prompt(i).id, want.prompt(i).id);
      EXPECT_EQ(dataset.prompt(i).text, want.prompt(i).text);
      EXPECT_EQ(dataset.prompt(i).tokens, want.prompt(i).tokens);
      EXPECT_EQ(dataset.prompt(i).data_source, want.prompt(i).data_source);
      EXPECT_EQ(dataset.prompt(i).ground_truth, want.prompt(i).ground_truth);
      EXPECT_EQ(dataset.prompt(i).extra_info, want.prompt(i).extra_info);
    }
  }
}

TEST(DatasetTest, ReadsVerlsParquetRow) {
  DataOptions options = options_for({kParquet + "verl_gsm8k.parquet"});
  options.chat_template = "chatml";
  const Prompt prompt = load(options).prompt(13);
  EXPECT_EQ(prompt.id, 13U);
  EXPECT_EQ(prompt.data_source, "openai/gsm8k");
  EXPECT_EQ(prompt.ground_truth, "44");  // 5 boxes of 9 and 1 away
  EXPECT_EQ(prompt.extra_info.at("index"), 13);
  EXPECT_TRUE(prompt.text.starts_with("<|im_start|>system\n")) << prompt.text;
  EXPECT_NE(prompt.text.find("Bo has 5 boxes of 9 apples and gives 1 away."), std::string::npos)
      << prompt.text;
}

TEST(DatasetTest, ReadsTrlsRowsWithTheirColumns) {
  DataOptions options = options_for({kParquet + "trl.parquet"});
  EXPECT_EQ(parquet_error_of(options),
            "trl.parquet: row 1: no field \"data_source\"; set data.reward_fn_key or "
            "data.data_source (the row has: prompt, solution, level)");
  options.data_source = "mine";
  const Dataset dataset = load(options);
  EXPECT_EQ(dataset.size(), 600);
  const Prompt prompt = dataset.prompt(5);
  EXPECT_EQ(prompt.ground_truth, "$15$");
  EXPECT_EQ(prompt.extra_info, nlohmann::ordered_json({{"solution", "$15$"}, {"level", 2}}));
  EXPECT_TRUE(prompt.text.starts_with("冯 has 2 boxes")) << prompt.text;
}

TEST(DatasetTest, FieldsThatNoRewardReadsMayBeMissing) {
  DataOptions options = options_for({file("bare.jsonl", R"({"prompt":"a"})")});
  const Prompt prompt = load(options, {}).prompt(0);
  EXPECT_EQ(prompt.ground_truth, "");
  EXPECT_EQ(prompt.data_source, "");
  EXPECT_TRUE(prompt.messages.is_null());
  EXPECT_EQ(prompt.extra_info, nlohmann::ordered_json::object());
  EXPECT_THROW(load(options, {.ground_truth = true}), InputError);
  EXPECT_THROW(load(options, {.data_source = true}), InputError);
  options.answer_key = "answer";
  EXPECT_THROW(load(options, {}), InputError) << "a key that is set is there";
}

TEST(DatasetTest, KeepsTheMessagesOfAPrompt) {
  DataOptions options = options_for({kParquet + "trl_chat.parquet"});
  options.chat_template = "chatml";
  const Prompt prompt = load(options, {}).prompt(0);
  ASSERT_EQ(prompt.messages.size(), 2U);
  EXPECT_EQ(prompt.messages[0].at("role"), "system");
  EXPECT_EQ(prompt.extra_info, nlohmann::ordered_json({{"ground_truth", "6"}}));
}

TEST(DatasetTest, ReadsSlimesRow) {
  const Prompt prompt =
      load(options_for({file("slime.jsonl", R"({"prompt":"What is 1+1?","label":"2",)"
                                            R"("metadata":{"source_name":"dapo","level":3}})")}))
          .prompt(0);
  EXPECT_EQ(prompt.ground_truth, "2");
  EXPECT_EQ(prompt.data_source, "dapo");
  EXPECT_EQ(prompt.extra_info.at("level"), 3);
}

TEST(DatasetTest, KeysThatAreSetAreUsedLiterally) {
  DataOptions options = options_for(
      {file("keys.jsonl", R"({"q":"a","label":"no","right":"yes","kind":"x","left":1})")});
  options.prompt_key = "q";
  options.answer_key = "right";
  options.reward_fn_key = "kind";
  const Prompt prompt = load(options).prompt(0);
  EXPECT_EQ(prompt.ground_truth, "yes");
  EXPECT_EQ(prompt.data_source, "x");
  EXPECT_EQ(
      prompt.extra_info,
      nlohmann::ordered_json({{"label", "no"}, {"right", "yes"}, {"kind", "x"}, {"left", 1}}));
  options.answer_key = "wrong";
  EXPECT_TRUE(
      error_of(options).starts_with("keys.jsonl:1: no field \"wrong\"; set data.answer_key"));
}

TEST(DatasetTest, ColumnsOfAnotherTypeAreNamed) {
  EXPECT_EQ(parquet_error_of(options_for({kParquet + "wrong_type.parquet"})),
            "wrong_type.parquet: row 1: column prompt is 1; a prompt is a text or a list of "
            "messages, and data.prompt_key names it");
  EXPECT_EQ(parquet_error_of(options_for({kParquet + "not_utf8.parquet"})).substr(0, 42),
            "not_utf8.parquet: row 1: no field \"reward_");
  EXPECT_TRUE(parquet_error_of(options_for({kParquet + "empty.parquet"}))
                  .starts_with("data.train_files: no prompts in empty.parquet"));
}

TEST(DatasetTest, WeightsArePerFile) {
  DataOptions options = options_for({file("w1.jsonl", kVerlRow), "countdown:seed=3,size=4"});
  options.train_weights = {1, 0.5};
  const Dataset dataset = load(options);
  ASSERT_EQ(dataset.parts().size(), 2U);
  EXPECT_EQ(dataset.parts()[1].size, 4);
  EXPECT_EQ(dataset.parts()[1].weight, 0.5);
  Sampler sampler(dataset.parts(), /*shuffle=*/true, 1);
  EXPECT_EQ(sampler.batches_per_epoch(1), 3);
  options.train_weights = {1};
  EXPECT_EQ(error_of(options),
            "data.train_weights has 1 weights and data.train_files 2 files; give one for each");
  options.train_weights = {0, 0};
  EXPECT_EQ(error_of(options), "data.train_weights are all 0; give one file a weight");
  options.train_weights = {1, -1};
  EXPECT_EQ(error_of(options), "data.train_weights has -1; give numbers from 0");
}

TEST(DatasetTest, IdsRunOverAllFiles) {
  DataOptions options = options_for(
      {file("one.jsonl", kVerlRow), "countdown:seed=3,size=4", file("two.jsonl", kVerlRow)});
  const Dataset dataset = load(options);
  ASSERT_EQ(dataset.size(), 6);
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(dataset.prompt(i).id, i);
  options.train_max_samples = 3;
  EXPECT_EQ(load(options).size(), 3);
}

TEST(DatasetTest, CountdownProblemsDependOnSeedAndIndex) {
  const tokenizer::Tokenizer demo = tokenizer::Tokenizer::load(kTokenizers + "demo");
  const Dataset dataset =
      Dataset::load(options_for({"countdown:seed=1000,size=64"}), demo, Split::kTrain);
  const Dataset longer =
      Dataset::load(options_for({"countdown:seed=1000,size=128"}), demo, Split::kTrain);
  const Dataset other =
      Dataset::load(options_for({"countdown:seed=1001,size=64"}), demo, Split::kTrain);
  int same = 0;
  std::set<std::string> texts;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const Prompt prompt = dataset.prompt(i);
    EXPECT_EQ(prompt.text, prompt.ground_truth + "<think>");
    EXPECT_EQ(demo.decode(prompt.tokens), prompt.text);
    EXPECT_EQ(prompt.data_source, "tlt/countdown_trace");
    EXPECT_EQ(longer.prompt(i).text, prompt.text);
    same += other.prompt(i).text == prompt.text;
    texts.insert(prompt.text);
  }
  EXPECT_LT(same, 4);
  EXPECT_GT(texts.size(), 60U);
}

TEST(DatasetTest, ValidationIsHeldOut) {
  DataOptions options = options_for({"countdown:seed=5,size=500"});
  options.val_files = options.train_files;
  const tokenizer::Tokenizer demo = tokenizer::Tokenizer::load(kTokenizers + "demo");
  std::set<std::string> seen;
  for (int64_t i = 0; i < 500; ++i)
    seen.insert(Dataset::load(options, demo, Split::kTrain).prompt(i).ground_truth);
  for (int64_t i = 0; i < 500; ++i) {
    EXPECT_FALSE(
        seen.contains(Dataset::load(options, demo, Split::kValidation).prompt(i).ground_truth));
  }
}

TEST(DatasetTest, CountdownSettingsAreChecked) {
  for (const char* name : {"countdown:sead=1", "countdown:seed=x", "countdown:seed",
                           "countdown:size=0", "countdown:four=2", "countdown:top=3",
                           "countdown:heldout=maybe", "countdown:insight=0.5"}) {
    EXPECT_TRUE(error_of(options_for({name})).starts_with(std::string(name) + ": "))
        << error_of(options_for({name}));
  }
}

TEST(DatasetTest, Gsm8kIsRead) {
  const std::string path = std::string(TLT_SHARED_DATA) + "/gsm8k/test.jsonl";
  if (*TLT_SHARED_DATA == '\0' || !std::filesystem::exists(path))
    GTEST_SKIP() << "no TLT_SHARED_DATA/gsm8k/test.jsonl";
  DataOptions options = options_for({path});
  options.prompt_key = "question";
  options.answer_key = "answer";
  options.answer_after = "####";
  options.data_source = "openai/gsm8k";
  const Dataset dataset = load(options);
  EXPECT_EQ(dataset.size(), 1319);
  EXPECT_EQ(dataset.prompt(0).ground_truth, "18");
}

}  // namespace
}  // namespace tlt::data
