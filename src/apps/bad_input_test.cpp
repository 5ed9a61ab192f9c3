// What a user gets for a mistake: exit code 2 and one sentence that says what is wrong, where, and
// what to type.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>

#include "apps/program.h"

namespace tlt::apps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kRow = "{\"tokens\": [5, 6, 7]}\n";

// Runs `words` and requires the complaint; `command` is its first word.
void expect_complaint(const std::vector<std::string>& words,
                      const ::testing::Matcher<const std::string&>& matcher) {
  const Ended ended = run_program(words);
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  EXPECT_EQ(ended.out, "");
  const std::string text = complaint(ended, words.empty() ? "" : words.front());
  EXPECT_THAT(text, matcher);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << "one line: " << text;
  EXPECT_THAT(ended.err, Not(HasSubstr("frame #")));
}

struct GenerateComplaintTest : ::testing::Test {
  std::string model = golden_model("qwen2_tied");
  std::string prompts = scratch_file("prompts.jsonl", kRow);
  std::string output = scratch_folder() + "/out.jsonl";

  std::vector<std::string> words(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"generate", "--model",  model, "--prompts",
                                      prompts,    "--output", output};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  void expect(const std::vector<std::string>& more,
              const ::testing::Matcher<const std::string&>& matcher) const {
    expect_complaint(words(more), matcher);
    EXPECT_FALSE(std::filesystem::exists(output));
  }
  // The same with other prompts.
  void expect_for_prompts(const std::string& text,
                          const ::testing::Matcher<const std::string&>& matcher) {
    prompts = scratch_file("prompts.jsonl", text);
    expect({}, matcher);
  }
};

TEST(CommandLineComplaintTest, UnknownCommandNamesTheKnownOnes) {
  const Ended ended = run_program({"genrate"});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_EQ(ended.err,
            "tlt: unknown command 'genrate'; did you mean generate? use one of train, sft, "
            "generate, score, tokenize, bench, options, doctor\n");
  EXPECT_EQ(run_program({}).exit_code, 2);
}

TEST(CommandLineComplaintTest, HelpAndVersionAreNoMistakes) {
  EXPECT_THAT(run_program({"--help"}).out, AllOf(HasSubstr("generate"), HasSubstr("doctor")));
  EXPECT_THAT(run_program({"generate", "--help"}).out,
              AllOf(HasSubstr("--max-new-tokens"), HasSubstr("tlt generate")));
  const Ended version = run_program({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_TRUE(version.out.starts_with("tlt ")) << version.out;
}

TEST_F(GenerateComplaintTest, WrongFlagsAreNamed) {
  expect({"--sample", "2"}, "unknown option --sample; did you mean --samples?\n");
  expect({"--samples", "two"}, "--samples is 'two'; give a whole number\n");
  expect({"--seed", "-3"}, HasSubstr("--seed is -3; give a whole number from 0"));
  expect({"--samples", "0"}, HasSubstr("--samples is 0; give"));
  expect({"--temperature", "-1"}, HasSubstr("temperature is -1; give 0"));
  expect({"--dtype", "float16"}, HasSubstr("float16"));
  expect({"--device", "gpu"}, HasSubstr("unknown device 'gpu'; use cpu, cuda"));
  expect({"--threads", "-2"}, HasSubstr("--threads is -2; give"));
  expect({"--kv-memory", "lots"}, HasSubstr("--kv-memory"));
  expect({"--kv-memory", "100"}, HasSubstr("100"));
}

TEST_F(GenerateComplaintTest, WhatComesLaterIsRefusedByName) {
  expect({"--speculation", "eagle"},
         "--speculation eagle comes with a later version; this one decodes plainly: use off or "
         "auto\n");
  expect({"--speculation", "fast"}, "--speculation is 'fast'; use off or auto\n");
  expect({"--drafter", "somewhere"}, HasSubstr("--drafter belongs to speculation"));
  expect({"--chat"}, HasSubstr("--chat: chat templates come with a later version"));
}

TEST_F(GenerateComplaintTest, WrongPromptsAreNamedWithFileAndLine) {
  expect_for_prompts("", AllOf(HasSubstr("prompts.jsonl: no rows")));
  expect_for_prompts(kRow + "{\"tokens\": [5,\n",
                     AllOf(HasSubstr("prompts.jsonl:2"), HasSubstr("not JSON")));
  expect_for_prompts(kRow + "[1, 2]\n",
                     AllOf(HasSubstr("prompts.jsonl:2"), HasSubstr("not a JSON object")));
  expect_for_prompts(kRow + "{\"id\": 3}\n",
                     AllOf(HasSubstr("prompts.jsonl:2"), HasSubstr("neither")));
  expect_for_prompts("{\"tokens\": []}\n", HasSubstr("prompts.jsonl:1: \"tokens\" is empty"));
  expect_for_prompts(
      "{\"tokens\": [320]}\n",
      HasSubstr(
          "prompts.jsonl:1: 320 is no token of this model; give whole numbers from 0 to 319"));
  expect_for_prompts("{\"tokens\": [-1]}\n", HasSubstr("-1 is no token"));
  expect_for_prompts("{\"tokens\": [1.5]}\n", HasSubstr("1.5 is no token"));
  expect_for_prompts("{\"prompt\": \"1+1\"}\n",
                     AllOf(HasSubstr("prompts.jsonl:1"), HasSubstr("has no tokenizer.json")));
  expect_for_prompts("{\"prompt\": [{\"role\": \"user\", \"content\": \"1+1\"}]}\n",
                     HasSubstr("chat templates come with a later version"));
  const std::string row = nlohmann::json{{"tokens", std::vector<int>(512, 3)}}.dump() + "\n";
  expect_for_prompts(
      row, HasSubstr("prompts.jsonl:1: the prompt has 512 tokens and the model 512 positions"));
}

TEST_F(GenerateComplaintTest, MissingFilesAreNamed) {
  prompts = "/nowhere/prompts.jsonl";
  expect({}, HasSubstr("/nowhere/prompts.jsonl: cannot open: No such file"));
  prompts = scratch_file("prompts.jsonl", kRow);
  output = "/nowhere/out.jsonl";
  expect({}, HasSubstr("/nowhere/out.jsonl"));
  output = scratch_folder() + "/out.jsonl";
  model = "/nowhere/model";
  expect({}, HasSubstr("/nowhere/model"));
}

TEST_F(GenerateComplaintTest, BrokenModelsAreNamed) {
  model = copied_model("qwen2_tied");
  const std::string weights = model + "/model.safetensors";
  std::filesystem::resize_file(weights, std::filesystem::file_size(weights) / 2);
  expect({}, HasSubstr("model.safetensors"));
  std::filesystem::resize_file(weights, 0);
  expect({}, HasSubstr("model.safetensors"));
  std::filesystem::remove(weights);
  expect({}, HasSubstr("model.safetensors"));
}

TEST_F(GenerateComplaintTest, TokenizerWithMoreTokensThanTheModelIsRefused) {
  model = copied_model("qwen2_tied");
  std::filesystem::copy(golden_tokenizer("llama3_style") + "/tokenizer.json",
                        model + "/tokenizer.json");
  expect({}, AllOf(HasSubstr("tokenizer.json: it has"), HasSubstr("tokens and the model 320")));
  write_file_atomic(model + "/tokenizer.json", "{}");
  expect({}, HasSubstr("tokenizer.json"));
}

TEST(ScoreComplaintTest, WrongRowsAreNamed) {
  const std::string input = scratch_file("rows.jsonl", "{\"tokens\": [1, 2]}\n{\"text\": \"x\"}\n");
  const std::vector<std::string> words = {
      "score", "--model",  golden_model("qwen2_tied"),     "--input",
      input,   "--output", scratch_folder() + "/out.jsonl"};
  expect_complaint(words, HasSubstr("rows.jsonl:2: no \"tokens\"; give a list of token ids"));
}

TEST(TokenizeComplaintTest, WrongModesAndFoldersAreNamed) {
  expect_complaint({"tokenize", "--model", golden_tokenizer("demo"), "chat"},
                   HasSubstr("chat templates come with a later version"));
  expect_complaint({"tokenize", "--model", golden_tokenizer("demo"), "incode"},
                   "'incode' is no mode; use encode or decode\n");
  expect_complaint({"tokenize", "--model", golden_model("qwen2_tied"), "encode"},
                   HasSubstr("tokenizer.json"));
}

TEST(TrainComplaintTest, WrongRecipesAreNamed) {
  expect_complaint({"train", "/nowhere/recipe.toml"}, HasSubstr("/nowhere/recipe.toml"));
  expect_complaint({"train", scratch_file("recipe.toml", "[rollout]\nm = 3\n")},
                   HasSubstr("rollout.m"));
  expect_complaint({"train", scratch_file("recipe.toml", "[rollout]\nn = \"many\"\n")},
                   HasSubstr("rollout.n"));
  expect_complaint({"train", scratch_file("recipe.toml", ""), "rollout.n=0", "--workers", "2"},
                   HasSubstr("give"));
  expect_complaint({"sft", scratch_file("recipe.toml", ""), "--workers", "0"},
                   HasSubstr("--workers is 0; give"));
}

}  // namespace
}  // namespace tlt::apps
