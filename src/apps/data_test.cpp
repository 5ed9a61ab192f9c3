// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "tests/support/run_program.h"
#include "tests/support/test_folder.h"

namespace tlt::apps {
namespace {

using ::testing::HasSubstr;

const std::string kGolden = std::string(TLT_SOURCE_DIR) + "/tests/golden/";

TEST(DataInspectTest, ShowsAVerlParquetFile) {
  const std::string file = kGolden + "parquet/verl_gsm8k.parquet";
  const Ended ended =
      run_program({"data", "inspect", file, "--model", kGolden + "tokenizers/gpt2_style",
                   "data.chat_template=chatml", "data.max_prompt_length=200"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("verl_gsm8k.parquet: 24 rows in 3 row groups\n"
                                   "  data_source      string\n"
                                   "  prompt           list<"));
  EXPECT_THAT(ended.out, HasSubstr("tlt train reads\n"
                                   "  prompt           prompt\n"
                                   "  answer           reward_model.ground_truth\n"
                                   "  data source      data_source\n"));
  EXPECT_THAT(ended.out, HasSubstr("row 3: "));
  EXPECT_THAT(ended.out, HasSubstr(" tokens, answer 18\n<|im_start|>system\n"));
  EXPECT_THAT(ended.out, HasSubstr("prompts in tokens: shortest "));
  EXPECT_THAT(ended.out, HasSubstr("longer than data.max_prompt_length=200: "));
  EXPECT_THAT(ended.out, ::testing::Not(HasSubstr("row 4: ")));
}

TEST(DataInspectTest, ShowsRowsWithoutAModel) {
  const std::string file = scratch_file(
      "rows.jsonl",
      "{\"question\": \"1+1?\", \"level\": 1}\n{\"question\": \"2+2?\", \"level\": 2.5}\n");
  const Ended bare = run_program({"data", "inspect", file});
  EXPECT_EQ(bare.exit_code, 2);
  EXPECT_THAT(bare.out, HasSubstr("rows.jsonl: 2 rows\n"
                                  "  level            integer or number\n"
                                  "  question         text\n"));
  EXPECT_THAT(bare.out, HasSubstr("  prompt           none; set data.prompt_key\n"
                                  "  answer           none; set data.answer_key if"));
  EXPECT_THAT(bare.err, HasSubstr("rows.jsonl:1: no field \"prompt\"; set data.prompt_key"));
  const Ended ended = run_program({"data", "inspect", file, "data.prompt_key=question"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("rows.jsonl:2: 4 bytes\n2+2?\n"));
  EXPECT_THAT(ended.out, HasSubstr("prompts in bytes: shortest 4, median 4"));
}

// A column name could set the terminal's title, clear it, or forge a line of the output.
TEST(DataInspectTest, ControlCharactersOfTheFileAreEscaped) {
  const nlohmann::json row = {{"prompt", "one\ntwo\x1b[2J"},
                              {"reward_model", {{"ground_truth", "\x1b[31m7"}}},
                              {"\x1b]0;title\x07\n  forged           text", "\u009b2J"},
                              {std::string(1'000'000, 'k'), 1}};
  const std::string file = scratch_file("ro\x1bws.jsonl", row.dump() + "\n[]\n");
  const Ended refused = run_program({"data", "inspect", file});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("ro\\u001bws.jsonl:2: a row must be a JSON object"));
  write_file_atomic(file, row.dump() + "\n");
  const Ended ended = run_program({"data", "inspect", file});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out,
              HasSubstr("\n  \\u001b]0;title\\u0007\\u000a  forged           text text\n"));
  EXPECT_THAT(ended.out, HasSubstr("\n  kkk"));
  EXPECT_THAT(ended.out, HasSubstr(", answer \\u001b[31m7\none\ntwo\\u001b[2J\n"));
  EXPECT_LT(ended.out.size(), 5'000U);
  for (const std::string& text : {refused.err, ended.out, ended.err})
    EXPECT_EQ(text.find('\x1b'), text.npos);
}

TEST(DataInspectTest, ShowsAFolderOfShardsAsOneFile) {
  const TestFolder folder;
  const std::string shard = read_file(kGolden + "parquet/verl_gsm8k.parquet", 1 << 20);
  for (const char* name : {"b.parquet", "a.parquet"}) write_file_atomic(folder / name, shard);
  for (const std::string& name : {folder.path(), folder / "*.parquet"}) {
    const Ended ended = run_program({"data", "inspect", name});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_THAT(ended.out,
                HasSubstr(name + ": 2 files, 48 rows\n  " + (folder / "a.parquet") +
                          ": 24 rows in 3 row groups\n  " + (folder / "b.parquet") +
                          ": 24 rows in 3 row groups\nfields\n  data_source      string\n"
                          "  prompt           list<"));
    EXPECT_THAT(ended.out, HasSubstr(folder / "a.parquet: row 1: "));
  }
  const Ended none = run_program({"data", "inspect", folder / "*.jsonl"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("no files match " + (folder / "*.jsonl")));
  EXPECT_EQ(std::ranges::count(none.err, '\n'), 1) << none.err;
}

TEST(DataInspectTest, DamagedFileIsOneSentence) {
  const std::string whole = read_file(kGolden + "parquet/verl_gsm8k.parquet", 1 << 20);
  const Ended cut = run_program(
      {"data", "inspect", scratch_file("cut.parquet", whole.substr(0, whole.size() / 2))});
  EXPECT_EQ(cut.exit_code, 2);
  EXPECT_THAT(cut.err, HasSubstr("cut.parquet: not a whole Parquet file; copy the file again"));
  EXPECT_EQ(std::ranges::count(cut.err, '\n'), 1) << cut.err;
  const Ended empty = run_program({"data", "inspect", kGolden + "parquet/empty.parquet"});
  EXPECT_EQ(empty.exit_code, 2);
  EXPECT_THAT(empty.err, HasSubstr("empty.parquet: no rows"));
}

}  // namespace
}  // namespace tlt::apps
