// Errors of the user: exit code 2 and one sentence that says what is wrong, where, and what to
// type.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>

#include "tests/support/run_program.h"

namespace tlt::apps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kRow = "{\"tokens\": [5, 6, 7]}\n";

// Runs `words` and expects exit code 2 and one error sentence that matches.
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
  // Like expect(), with other prompts.
  void expect_for_prompts(const std::string& text,
                          const ::testing::Matcher<const std::string&>& matcher) {
    prompts = scratch_file("prompts.jsonl", text);
    expect({}, matcher);
  }
};

TEST(CommandLineComplaintTest, UnknownCommandListsTheKnownOnes) {
  const Ended ended = run_program({"genrate"});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_EQ(
      ended.err,
      "tlt: unknown command 'genrate'; did you mean generate? use one of train, sft, dpo, "
      "draft, export, eval, report, generate, chat, serve, score, reward, environment, tokenize, "
      "data, import, bench, simulate, options, doctor, completion, man\n");
  EXPECT_EQ(run_program({}).exit_code, 2);
}

TEST(CommandLineComplaintTest, HelpAndVersionAreNotErrors) {
  EXPECT_THAT(run_program({"--help"}).out, AllOf(HasSubstr("generate"), HasSubstr("doctor")));
  EXPECT_THAT(run_program({"generate", "--help"}).out,
              AllOf(HasSubstr("--max-new-tokens"), HasSubstr("tlt generate")));
  const Ended version = run_program({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_TRUE(version.out.starts_with("tlt ")) << version.out;
}

TEST_F(GenerateComplaintTest, WrongFlagsAreNamed) {
  expect({"--sample", "2"}, "unknown option --sample; did you mean --samples?\n");
  expect({"--samples", "two"}, "--samples is 'two'; give an integer\n");
  expect({"--seed", "-3"}, HasSubstr("--seed is -3; give an integer from 0"));
  expect({"--samples", "0"}, HasSubstr("--samples is 0; give"));
  expect({"--temperature", "-1"}, HasSubstr("temperature is -1; give 0"));
  expect({"--dtype", "float16"}, HasSubstr("float16"));
  expect({"--device", "gpu"}, HasSubstr("unknown device 'gpu'; give --device cpu"));
  expect({"--threads", "-2"}, HasSubstr("--threads is -2; give"));
  expect({"--kv-memory", "lots"}, HasSubstr("--kv-memory"));
  expect({"--kv-memory", "100"}, HasSubstr("100"));
}

TEST_F(GenerateComplaintTest, InvalidSpeculationFlagsAreNamed) {
  expect({"--speculation", "eagle"},
         "--speculation eagle needs a draft model; give its folder with --drafter\n");
  expect({"--speculation", "fast"},
         "--speculation is 'fast'; use off, auto, suffix, ngram, eagle or mixed\n");
  expect({"--strategy", "8_4_48"}, HasSubstr("--strategy is for --speculation suffix, ngram"));
  expect({"--speculation", "suffix", "--strategy", "8_4"}, HasSubstr("8_4"));
  expect({"--speculation", "suffix", "--strategy", "1_2_9"}, HasSubstr("1_2_9"));
  expect({"--speculation", "suffix", "--drafter", "somewhere"},
         HasSubstr("--drafter is for --speculation auto, eagle or mixed"));
  expect({"--drafter", "somewhere"}, HasSubstr("somewhere/config.json"));
  expect({"--accept-rule", "greedy"}, HasSubstr("accept_rule"));
  expect({"--accept-rule", "target_only", "--accept-threshold-acc", "0"},
         HasSubstr("accept_threshold_acc is 0"));
  expect({"--speculation", "suffix", "--strategy", "200_40_4000"}, HasSubstr("max_num_batched"));
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
      HasSubstr("prompts.jsonl:1: 320 is not a token of this model; give integers from 0 to 319"));
  expect_for_prompts("{\"tokens\": [-1]}\n", HasSubstr("-1 is not a token"));
  expect_for_prompts("{\"tokens\": [1.5]}\n", HasSubstr("1.5 is not a token"));
  expect_for_prompts("{\"prompt\": \"1+1\"}\n",
                     AllOf(HasSubstr("prompts.jsonl:1"), HasSubstr("has no tokenizer.json")));
  expect_for_prompts("{\"prompt\": [{\"role\": \"user\", \"content\": \"1+1\"}]}\n",
                     AllOf(HasSubstr("prompts.jsonl:1"), HasSubstr("has no tokenizer.json")));
  const std::string row = nlohmann::json{{"tokens", std::vector<int>(512, 3)}}.dump() + "\n";
  expect_for_prompts(
      row, HasSubstr("prompts.jsonl:1: the prompt has 512 tokens and the model 512 positions"));
}

TEST_F(GenerateComplaintTest, DuplicateIdIsNamedWithBothLines) {
  const std::string row = "{\"id\": \"a\", \"tokens\": [5]}\n";
  expect_for_prompts(row + kRow + row, HasSubstr("prompts.jsonl:3: the id \"a\" is also that of"));
  expect_for_prompts("{\"id\": 1, \"tokens\": [5]}\n" + kRow,
                     AllOf(HasSubstr("prompts.jsonl:2: the id 1 is also that of"),
                           HasSubstr("prompts.jsonl:1; give")));
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
  expect({}, AllOf(HasSubstr("tokenizer.json: has"), HasSubstr("tokens and the model 320")));
  write_file_atomic(model + "/tokenizer.json", "{}");
  expect({}, HasSubstr("tokenizer.json"));
}

TEST(ScoreComplaintTest, WrongRowsAreNamed) {
  const std::string input = scratch_file("rows.jsonl", "{\"tokens\": [1, 2]}\n{\"text\": \"x\"}\n");
  const std::vector<std::string> words = {
      "score", "--model",  golden_model("qwen2_tied"),     "--input",
      input,   "--output", scratch_folder() + "/out.jsonl"};
  expect_complaint(
      words,
      HasSubstr("rows.jsonl:2: no \"tokens\", \"prompt\" and \"response\", or \"messages\""));
}

TEST(TokenizeComplaintTest, WrongModesAndFoldersAreNamed) {
  expect_complaint({"tokenize", "--model", golden_tokenizer("demo"), "chat"},
                   HasSubstr("demo: no chat template in this folder"));
  expect_complaint({"tokenize", "--model", golden_tokenizer("demo"), "incode"},
                   "'incode' is not a mode; use encode, decode or chat\n");
  expect_complaint({"tokenize", "--model", golden_model("qwen2_tied"), "encode"},
                   HasSubstr("tokenizer.json"));
}

// Runs of the demo's model on a file of countdown problems.
struct TrainComplaintTest : ::testing::Test {
  std::string model = TLT_SOURCE_DIR "/models/demo";
  std::string folder = scratch_folder() + "/run";
  std::string rows = scratch_file("rows.jsonl", row("3,4,6:24") + row("1,2,3:6"));

  static std::string row(const std::string& answer) {
    return nlohmann::json{{"prompt", answer + "<think>"},
                          {"data_source", "countdown"},
                          {"reward_model", {{"ground_truth", answer}}}}
               .dump() +
           "\n";
  }
  std::vector<std::string> words_with(const std::vector<std::string>& more,
                                      const std::string& command = "train") const {
    std::vector<std::string> words = {command,
                                      TLT_SOURCE_DIR "/recipes/demo.toml",
                                      "model.path=" + model,
                                      "trainer.default_local_dir=" + folder,
                                      "data.train_files=" + rows,
                                      "data.val_files=[]",
                                      "data.train_batch_size=2",
                                      "rollout.n=2",
                                      "reward.functions=countdown",
                                      "trainer.total_training_steps=1",
                                      "trainer.save_freq=1"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  void expect(const std::vector<std::string>& more,
              const ::testing::Matcher<const std::string&>& matcher,
              const std::string& command = "train") const {
    expect_complaint(words_with(more, command), matcher);
    EXPECT_FALSE(std::filesystem::exists(folder + "/checkpoints"));
  }
  void expect_for_rows(const std::string& text,
                       const ::testing::Matcher<const std::string&>& matcher) {
    rows = scratch_file("rows.jsonl", text);
    expect({}, matcher);
  }
};

TEST_F(TrainComplaintTest, WrongRecipesAreNamed) {
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

TEST_F(TrainComplaintTest, UnknownOptionsAndWrongTypesAreNamed) {
  expect({"rollout.max_num_seq=3"},
         HasSubstr("unknown option: rollout.max_num_seq; did you mean rollout.max_num_seqs?"));
  expect({"rollout=3"}, HasSubstr("rollout is a group of options"));
  expect({"rollout.n=four"}, HasSubstr("rollout.n"));
  expect({"trainer.val_before_train=perhaps"}, HasSubstr("true or false"));
  expect({"rollout.n"}, HasSubstr("rollout.n"));
}

TEST_F(TrainComplaintTest, EmptyDatasetIsNamed) {
  expect_for_rows("", AllOf(HasSubstr("data.train_files: no prompts in"), HasSubstr("rows.jsonl")));
  expect_for_rows("\n\n", HasSubstr("no prompts in"));
  expect_for_rows(row("3,4,6:24"), AllOf(HasSubstr("1"), HasSubstr("batch")));
  rows = "[]";
  expect({},
         HasSubstr("data.train_files is empty; give .parquet or .jsonl files or countdown:seed=…"));
}

TEST_F(TrainComplaintTest, PatternsWithoutFilesAreNamed) {
  const std::string empty = scratch_folder() + "/empty";
  std::filesystem::create_directory(empty);
  for (const char* command : {"train", "sft", "dpo", "draft"}) {
    expect({"data.train_files=" + empty + "/*.parquet"},
           HasSubstr("data.train_files: no files match " + empty + "/*.parquet"), command);
    expect({"data.val_files=" + empty},
           HasSubstr("data.val_files: no .parquet, .jsonl or .json files in the folder"), command);
  }
}

TEST_F(TrainComplaintTest, ChangedSetOfShardsIsNotResumed) {
  const std::string shards = scratch_folder() + "/shards", shard = row("3,4,6:24") + row("1,2,3:6");
  std::filesystem::create_directory(shards);
  write_file_atomic(shards + "/b.jsonl", shard);
  write_file_atomic(shards + "/c.jsonl", shard);
  rows = shards;
  const Ended begun = run_program(words_with({}));
  ASSERT_EQ(begun.exit_code, 0) << begun.err;
  const std::string options = read_file(folder + "/options.toml", 1 << 20);
  EXPECT_THAT(options,
              HasSubstr("train_files = [\"" + shards + "/b.jsonl\", \"" + shards + "/c.jsonl\"]"));
  write_file_atomic(shards + "/a.jsonl", shard);
  expect_complaint(
      words_with({"trainer.total_training_steps=2"}),
      AllOf(HasSubstr("has a run with other options (data.train_files "), HasSubstr("a.jsonl")));
  std::filesystem::remove(shards + "/a.jsonl");
  rows = shards + "/?.jsonl";
  const Ended resumed = run_program(words_with({"trainer.total_training_steps=2"}));
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err + resumed.out, HasSubstr("resuming from"));
}

TEST_F(TrainComplaintTest, RowWithoutAnswerIsNamedBeforeTheRun) {
  const std::string good = row("3,4,6:24");
  expect_for_rows(good + row(""), HasSubstr("rows.jsonl:2: no countdown problem; data.answer_key"));
  expect_for_rows(good + row("twelve"), HasSubstr("rows.jsonl:2: the ground truth `twelve`"));
  expect_for_rows(good + "{\"prompt\": \"3\", \"data_source\": \"countdown\"}\n",
                  HasSubstr("rows.jsonl:2: no countdown problem; data.answer_key names a field"));
  rows = scratch_file("rows.jsonl", good + good);
  const std::string held_out = scratch_file("held_out.jsonl", good + good + row("7"));
  expect({"data.val_files=" + held_out}, HasSubstr("held_out.jsonl:3: the ground truth `7`"));
  expect({"reward.functions=auto", "data.data_source=poems"},
         HasSubstr("rows.jsonl:1: no reward is known for the data source `poems`"));
}

TEST_F(TrainComplaintTest, BrokenModelsAreNamed) {
  const std::string whole = model;
  model = scratch_folder() + "/model";
  expect({}, HasSubstr(model));
  std::filesystem::copy(whole, model);
  const std::string weights = model + "/model.safetensors";
  std::filesystem::resize_file(weights, std::filesystem::file_size(weights) - 1);
  expect({}, HasSubstr("model.safetensors: not a whole safetensors file"));
  std::filesystem::resize_file(weights, 100);
  expect({}, HasSubstr("model.safetensors"));
  std::filesystem::remove(weights);
  expect({}, HasSubstr("model.safetensors"));
}

TEST_F(TrainComplaintTest, FilesOfARunFolderThatAreNoneAreNamed) {
  std::filesystem::create_directories(folder);
  for (const char* name : {"metrics.jsonl", "unfinished_step", ".lock"}) {
    const std::string path = folder + "/" + name;
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    expect({}, HasSubstr(path + " is not a file, and a run writes one there; remove it"));
    std::filesystem::remove(path);
  }
  std::filesystem::create_directories(folder + "/checkpoints");
  const std::string latest = folder + "/checkpoints/latest";
  std::filesystem::create_symlink("latest", latest);
  expect_complaint(words_with({}), HasSubstr(latest + ": cannot be used: Too many levels of symbolic links"));
}

// A FIFO that no program writes to was opened for ever.
TEST_F(TrainComplaintTest, FifosAreNamed) {
  const std::string recipe = scratch_folder() + "/fifo.toml", whole = model;
  ASSERT_EQ(::mkfifo(recipe.c_str(), 0600), 0);
  expect_complaint({"train", recipe}, HasSubstr(recipe + " is a FIFO (named pipe), not a file"));
  model = scratch_folder() + "/model";
  std::filesystem::copy(whole, model);
  for (const char* name : {"config.json", "tokenizer.json", "model.safetensors"}) {
    const std::string path = model + "/" + name, aside = path + ".aside";
    std::filesystem::rename(path, aside);
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    expect({}, HasSubstr(path + " is a FIFO (named pipe), not a file"));
    std::filesystem::remove(path);
    std::filesystem::rename(aside, path);
  }
}

TEST_F(TrainComplaintTest, MismatchedTokenizerIsNamed) {
  const std::string whole = model;
  model = scratch_folder() + "/model";
  std::filesystem::copy(whole, model);
  std::filesystem::copy_file(golden_tokenizer("llama3_style") + "/tokenizer.json",
                             model + "/tokenizer.json",
                             std::filesystem::copy_options::overwrite_existing);
  expect({}, AllOf(HasSubstr("tokenizer_config.json: pad_token"), HasSubstr("tokenizer.json")));
  std::filesystem::remove(model + "/tokenizer_config.json");
  expect({}, AllOf(HasSubstr("tokenizer.json has"), HasSubstr("do not belong together")));
  std::filesystem::remove(model + "/tokenizer.json");
  expect({}, HasSubstr("tokenizer.json"));
}

TEST_F(TrainComplaintTest, TooLittleMemoryForOneSequenceIsNamed) {
  expect({"rollout.kv_memory_bytes=1000"},
         HasSubstr("kv_memory_bytes is 1000, less than one page"));
  expect({"rollout.kv_memory_bytes=100000"},
         AllOf(HasSubstr("a response of 1024 needs"),
               HasSubstr("raise it or allow shorter responses")));
}

TEST_F(TrainComplaintTest, FoldersThatCannotBeUsedAreNamed) {
  folder = "/proc/nothing";
  expect({}, HasSubstr("/proc/nothing"));
  folder = scratch_file("a_file", "");
  expect({}, HasSubstr("a_file"));
}

}  // namespace
}  // namespace tlt::apps
