// SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"

#include <gmock/gmock.h>

#include <CLI/CLI.hpp>

#include "base/check.h"

namespace tlt::cli {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> given;

int remember(const Arguments& arguments) {
  given = arguments.words;
  given.insert(given.begin(), arguments.command);
  return 7;
}

constexpr Command kCommands[] = {{"decode", "One.", remember}, {"train", "Two.", remember}};

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(CommandTest, RunsTheCommandOfTheFirstWord) {
  EXPECT_EQ(run_command(kCommands, {"tlt bench", {"train", "--x", "3"}, {}}), 7);
  EXPECT_EQ(given, (std::vector<std::string>{"tlt bench train", "--x", "3"}));
}

TEST(CommandTest, UnknownCommandSuggestsTheNearest) {
  const std::string error = error_of([] { run_command(kCommands, {"tlt", {"trian"}, {}}); });
  EXPECT_EQ(error, "unknown command 'trian'; did you mean train? use one of decode, train");
  EXPECT_EQ(error_of([] {
              run_command(kCommands, {"tlt", {"something"}, {}});
            }),
            "unknown command 'something'; use one of decode, train");
  EXPECT_EQ(error_of([] {
              run_command(kCommands, {"tlt", {}, {}});
            }),
            "no command; use one of decode, train");
}

struct ParseTest : ::testing::Test {
  CLI::App app{"A test."};
  int64_t count = 0;
  double share = 0;
  std::string name;
  std::vector<int64_t> list;

  ParseTest() {
    app.add_option("--count", count, "");
    app.add_option("--share", share, "");
    app.add_option("--name", name, "")->required();
    app.add_option("--list", list, "")->delimiter(',');
  }
  std::string error(const std::vector<std::string>& words) {
    return error_of([&] { EXPECT_TRUE(try_parse(app, {"tlt test", words, {}})); });
  }
};

TEST_F(ParseTest, AcceptsBothForms) {
  ASSERT_TRUE(try_parse(
      app, {"tlt test", {"--count", "-1", "--share=0.5", "--name", "x", "--list", "1,4,8"}, {}}));
  EXPECT_EQ(count, -1);
  EXPECT_EQ(share, 0.5);
  EXPECT_EQ(list, (std::vector<int64_t>{1, 4, 8}));
}

TEST_F(ParseTest, ErrorsNameTheFlagAndWhatToType) {
  EXPECT_EQ(error({"--name", "x", "--cuont", "3"}),
            "unknown option --cuont; did you mean --count?");
  EXPECT_EQ(error({"--name", "x", "--counts=3"}), "unknown option --counts; did you mean --count?");
  EXPECT_EQ(error({"--name", "x", "--very-different"}),
            "unknown option --very-different; tlt test --help lists the options");
  EXPECT_EQ(error({"--name", "x", "word"}), "unexpected argument 'word'; see tlt test --help");
  EXPECT_EQ(error({"--name", "x", "--count", "two"}), "--count is 'two'; give an integer");
  EXPECT_EQ(error({"--name", "x", "--count", "2.5"}), "--count is '2.5'; give an integer");
  EXPECT_EQ(error({"--name", "x", "--share", "half"}), "--share is 'half'; give a number");
  EXPECT_EQ(error({"--name", "x", "--list", "1,b"}), "--list is '1,b'; give an integer");
  EXPECT_THAT(error({}), HasSubstr("--name is required"));
  EXPECT_THAT(error({"--name"}), HasSubstr("--name"));
}

TEST(ShellCommandTest, CanBePasted) {
  const Arguments arguments{"tlt x", {"--a", "b c"}, {"build/tlt", "x", "--a", "b c", "it's", ""}};
  EXPECT_EQ(shell_command(arguments, "--resume"), "build/tlt x --a 'b c' 'it'\\''s' '' --resume");
  EXPECT_EQ(shell_command(arguments, "--a"), "build/tlt x --a 'b c' 'it'\\''s' ''");
}

TEST(NearestTest, IsEmptyWhenNothingIsNear) {
  const std::vector<std::string> known = {"--samples", "--seed"};
  EXPECT_EQ(nearest("--sample", known), "--samples");
  EXPECT_EQ(nearest("--sede", known), "--seed");
  EXPECT_EQ(nearest("--xyzw", known), "");
}

}  // namespace
}  // namespace tlt::cli
