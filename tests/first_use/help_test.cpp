// --help pages (B14), and prefix and plural forms of messages (B16).
//
// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>

#include <regex>

#include "tests/first_use/support.h"

namespace tlt::first_use {
namespace {

using Words = std::vector<std::string>;

Ended help_of(Words command) {
  command.push_back("--help");
  return run_program(command);
}

// All commands below this one that have a --help page, as listed in the pages of their parents.
std::vector<Words> commands_below(const Words& above) {
  const std::string page = help_of(above).out;
  if (page.find(" COMMAND …") == std::string::npos) return {above};
  std::vector<Words> found;
  static const std::regex kLine("\n  ([a-z-]+) +[^ ]");
  for (std::sregex_iterator line(page.begin(), page.end(), kLine), end; line != end; ++line) {
    Words command = above;
    command.push_back((*line)[1]);
    for (Words& below : commands_below(command)) found.push_back(std::move(below));
  }
  return found;
}

TEST(HelpTest, PagesShowNoTermsOfCli11) {  // B14
  const std::vector<Words> commands = commands_below({});
  ASSERT_GE(commands.size(), 20U);
  for (const Words& command : commands) {
    const Ended ended = help_of(command);
    const std::string name = fmt::format("{}", fmt::join(command, " "));
    EXPECT_EQ(ended.exit_code, 0) << name;
    EXPECT_THAT(ended.out, HasSubstr("Usage: tlt " + name)) << name;
    for (const char* leak :
         {"TEXT", "INT", "FLOAT", "REQUIRED", "Excludes", "Positionals", ":SIZE"})
      EXPECT_THAT(ended.out, Not(::testing::ContainsRegex(std::string("\\b") + leak))) << name;
    std::istringstream lines(ended.out);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), 110U) << name << ": " << line;
    }
  }
}

TEST(HelpTest, TheRecipeIsOptional) {  // B14
  for (const char* command : {"train", "sft", "dpo", "draft", "reward"}) {
    const Ended help = help_of({command});
    EXPECT_THAT(help.out, HasSubstr(std::string("Usage: tlt ") + command +
                                    " [OPTIONS] [RECIPE] [KEY=VALUE...]"));
    EXPECT_THAT(help.out, Not(HasSubstr("(required)\n  KEY=VALUE")));
  }
  expect_refusal(run_program({"train"}), HasSubstr("no recipe and no options; give a TOML file"));
}

TEST(HelpTest, MessagesNameTheProgramOnce) {  // B16
  for (const char* pattern : {"gsm8k/*.parquet", "recipes/*.parquet"})
    EXPECT_EQ(run_program({"data", "inspect", pattern}).err,
              "tlt data: FILE: no files match " + std::string(pattern) + "\n");
}

TEST(HelpTest, CountsAreSingularAndPlural) {  // B16
  const std::string row = "{\"prompt\": \"7,6,3:60\"}\n";
  EXPECT_THAT(run_program({"data", "inspect", scratch_file("one.jsonl", row)}).out,
              HasSubstr("one.jsonl: 1 row\n"));
  EXPECT_THAT(run_program({"data", "inspect", scratch_file("two.jsonl", row + row)}).out,
              HasSubstr("two.jsonl: 2 rows\n"));
}

TEST(HelpTest, TemporaryNamesAreNotShown) {  // B16
  const std::string prompts = scratch_file("p.jsonl", "{\"prompt\": \"7,6,3:60<think>\"}\n");
  for (const Words& command :
       {Words{"generate", "--model", demo_model(), "--prompts", prompts, "--output"},
        Words{"reward", "reward.functions=format", "--input", prompts, "--output"},
        Words{"import", "verl", "tests/golden/verl/fastrl.yaml", "--out"}}) {
    Words words = command;
    words.push_back("/no_such_folder/x.jsonl");
    expect_refusal(run_program(words),
                   AllOf(HasSubstr("/no_such_folder/x.jsonl: "), Not(HasSubstr(".tmp"))));
  }
}

}  // namespace
}  // namespace tlt::first_use
