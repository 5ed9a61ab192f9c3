// Rows of JSON lines and of a JSON list, and the JSON inside their strings: tests of the reward
// `code`.
//
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include "base/files.h"
#include "data/rows.h"
#include "data/schema.h"
#include "reward/code_tests.h"
#include "tests/support/fuzz.h"
#include "tests/support/test_folder.h"

namespace tlt::tests {
namespace {

const std::vector<std::string> kRowWords = {"prompt",
                                            "reward_model",
                                            "ground_truth",
                                            "{",
                                            "}",
                                            "[",
                                            "]",
                                            ",",
                                            ":",
                                            "\"",
                                            "\\",
                                            "\n",
                                            "\\u0000",
                                            "\\ud800",
                                            "\\udc00",
                                            "\xef\xbb\xbf",
                                            "\xc3\xa9",
                                            "\xed\xa0\x80",
                                            "\xff",
                                            "\x1b[2J",
                                            "null",
                                            "NaN",
                                            "-Infinity",
                                            "1e999",
                                            "//",
                                            "{\"a\":",
                                            "[[[[[[[["};

std::string mutate_json(Mutator& mutator, const std::string& text, const std::string& other) {
  return mutator.one_in(2) ? mutator.bytes(text, other) : mutator.json(text, other);
}

// Reads all rows of the text, written to a file of this name.
FuzzCall read_rows_from(FileHandle& file) {
  return [&file](const std::string& text) {
    file.write_at(0, text);
    file.truncate(std::ssize(text));
    data::Schema schema;
    size_t bytes = 0;
    data::for_each_row(file.path(), [&](const nlohmann::ordered_json& row, const std::string&) {
      schema.add(row);
      for (const auto& [name, value] : row.items()) bytes += data::text_of(value).size();
    });
    std::string summary;
    for (const auto& field : schema.fields()) summary += field.type + ",";
    return summary.substr(0, 200) + std::string(std::min<size_t>(bytes / 1000, 20), '.');
  };
}

void fuzz_rows(const std::string& name, const std::vector<std::string>& corpus) {
  const TestFolder folder;
  FileHandle file(folder / ("rows." + name), O_RDWR | O_CREAT);
  fuzz({.name = name,
        .corpus = corpus,
        .dictionary = kRowWords,
        .inputs = 6000,
        .mutate = mutate_json},
       read_rows_from(file));
}

TEST(DataRowsFuzzTest, JsonLinesAreReadOrRejected) {
  std::vector<std::string> corpus;
  for (const char* name : {"trl", "types", "verl_gsm8k"})
    corpus.push_back(
        read_text(std::string(TLT_SOURCE_DIR) + "/tests/golden/parquet/" + name + ".jsonl")
            .substr(0, 4000));
  for (std::string& text : corpus) text.erase(text.rfind('\n') + 1);
  corpus.push_back(R"({"prompt": "1+1"})");
  fuzz_rows("jsonl", corpus);
}

TEST(DataRowsFuzzTest, ListsOfRowsAreReadOrRejected) {
  fuzz_rows("json", {R"([{"prompt": "1+1", "answer": 2}, {"prompt": [1.5, null, {"a": true}]}])",
                     "[]", R"([ {"a" : "\u00e9\ud83d\ude00"} ])"});
}

TEST(DataRowsFuzzTest, CodeTestsAreParsedOrRejected) {
  FuzzPlan plan{
      .name = "code_tests",
      .corpus = {R"({"inputs": ["1 2\n", "3"], "outputs": ["3\n", "3"]})",
                 R"({"fn_name": "add", "inputs": [[1, 2]], "outputs": [[3]]})",
                 R"tests(["assert add(1, 2) == 3", "assert add('a', b=1)"])tests",
                 R"([{"input": "1", "output": "2", "testtype": "stdin"}])"},
      .dictionary = {"inputs", "outputs", "fn_name", "assert ", "testtype", "stdin", "functional",
                     "\\u0000", "\\ud800", "[", "]", "{", "}", "\"", "null"},
      .inputs = 6000,
      .mutate = mutate_json};
  fuzz(plan, [](const std::string& text) {
    std::string summary;
    for (const reward::CodeTest& test : reward::parse_code_tests(text)) {
      TLT_CHECK(test.most_output_bytes() >= 0, test.most_output_bytes());
      test.is_passed_by("3");
      test.request.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
      if (summary.size() < 20) summary += static_cast<char>('a' + static_cast<int>(test.kind));
    }
    return summary;
  });
}

}  // namespace
}  // namespace tlt::tests
