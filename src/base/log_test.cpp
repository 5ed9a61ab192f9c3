// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/files.h"
#include "base/sentence.h"
#include "tests/support/test_folder.h"

namespace tlt {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

class LogTest : public testing::Test {
 protected:
  LogTest() { testing::internal::CaptureStderr(); }
  ~LogTest() override {
    if (!was_read_) testing::internal::GetCapturedStderr();
    close_log_file();
    set_log_rank(0, 1);
    set_log_is_terminal(false);
  }

  std::string logged() {
    was_read_ = true;
    return testing::internal::GetCapturedStderr();
  }

 private:
  bool was_read_ = false;
};

TEST_F(LogTest, LineHasTimeAndLevel) {
  log_info("step {}: {:.1f} tokens/s", 3, 12.34);
  log_warning("careful");
  log_error("broken");
  EXPECT_THAT(logged(), MatchesRegex("....-..-.. ..:..:.. I step 3: 12.3 tokens/s\n"
                                     "....-..-.. ..:..:.. W careful\n"
                                     "....-..-.. ..:..:.. E broken\n"));
}

TEST_F(LogTest, BracesInAValueAreNotFormatted) {
  log_info("{}", "{} 100% {x}");
  EXPECT_THAT(logged(), HasSubstr(" {} 100% {x}\n"));
}

TEST_F(LogTest, RankIsMarkedOnlyWhenThereAreSeveral) {
  set_log_rank(1, 4);
  log_info("hello");
  set_log_rank(0, 1);
  log_info("alone");
  EXPECT_THAT(logged(), MatchesRegex("[^\n]* I \\[1/4\\] hello\n[^\n]* I alone\n"));
}

TEST_F(LogTest, WarnOnceWarnsOnceForEachKey) {
  for (int i = 0; i < 3; ++i) {
    warn_once("log_test_a", "a {}", i);
    warn_once("log_test_b", "b {}", i);
  }
  EXPECT_THAT(logged(), MatchesRegex("[^\n]* W a 0\n[^\n]* W b 0\n"));
}

TEST_F(LogTest, FileHasLinesFromBeforeItWasOpened) {
  const TestFolder folder;
  log_info("before");
  open_log_file(folder / "log.txt");
  log_info("one");
  close_log_file();
  log_info("between");
  open_log_file(folder / "log.txt");
  log_info("two");
  const std::string text = read_file(folder / "log.txt", 1 << 16);
  // Other tests of this process may have logged before.
  EXPECT_THAT(text, MatchesRegex("(.|\n)* I before\n[^\n]* I one\n[^\n]* I two\n"));
  EXPECT_THAT(text, Not(HasSubstr("between")));
}

TEST_F(LogTest, FileThatCannotBeOpenedIsAnInputError) {
  const TestFolder folder;
  write_file_atomic(folder / "file", "");
  EXPECT_THAT(thrown_message<InputError>([&] { open_log_file(folder / "file/log.txt"); }),
              HasSubstr("cannot open the log file"));
}

TEST_F(LogTest, StatusStaysBelowTheLinesOnATerminal) {
  set_log_is_terminal(true);
  show_status("1/2");
  log_info("hello");
  show_status("2/2");
  show_status("");
  log_info("end");
  EXPECT_THAT(
      logged(),
      MatchesRegex(
          "\r\033\\[K1/2\r\033\\[K[^\n]* I hello\n1/2\r\033\\[K2/2\r\033\\[K....-[^\n]* I end\n"));
}

TEST_F(LogTest, StatusIsOnlyOnATerminal) {
  const TestFolder folder;
  open_log_file(folder / "log.txt");
  show_status("1/2");
  log_info("hello");
  EXPECT_THAT(logged(), MatchesRegex("....-..-.. ..:..:.. I hello\n"));
  EXPECT_THAT(read_file(folder / "log.txt", 1000), Not(HasSubstr("1/2")));
}

TEST_F(LogTest, WideStatusIsCutToTheTerminal) {
  set_log_is_terminal(true);
  show_status(std::string(500, 'x'));
  EXPECT_LT(logged().size(), 300u);
}

TEST_F(LogTest, LinesOfThreadsAreNotInterleaved) {
  const TestFolder folder;
  open_log_file(folder / "log.txt");
  set_log_is_terminal(true);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      for (int line = 0; line < 50; ++line) {
        log_info("{}", std::string(200, static_cast<char>('a' + i)));
        show_status("status");
        if (line % 10 == 0) set_log_rank(0, 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string text = read_file(folder / "log.txt", 1 << 20);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 200);
  size_t whole = 0;
  for (const char letter : {'a', 'b', 'c', 'd'}) {
    const std::string line = " I " + std::string(200, letter) + "\n";
    for (size_t at = 0; (at = text.find(line, at)) != std::string::npos; ++at) ++whole;
  }
  EXPECT_EQ(whole, 200u);
}

// Strings of a file could forge a line, set the terminal's title or clear it.
TEST_F(LogTest, ControlCharactersAreEscaped) {
  const TestFolder folder;
  open_log_file(folder / "log.txt");
  log_warning("column {}", "a\n2026-01-01 00:00:00 I forged \x1b]0;title\x07\x1b[2J");
  log_info("{}", std::string(1'000'000, 'k'));
  const std::string whole = logged(), file = read_file(folder / "log.txt", 1 << 16);
  for (const std::string& text : {whole, file}) {
    EXPECT_THAT(text, HasSubstr("column a\\u000a2026-01-01 00:00:00 I forged \\u001b]0;title"));
    EXPECT_THAT(text, Not(HasSubstr("\x1b")));
    EXPECT_THAT(text, HasSubstr("kkk … (1000000 bytes) … kkk"));
    EXPECT_LT(text.size(), 2 * kMaxLogLineBytes);
  }
}

TEST_F(LogTest, StatusHasNoControlCharacters) {
  set_log_is_terminal(true);
  show_status("\x1b[2J\n");
  EXPECT_EQ(logged(), "\r\033[K\\u001b[2J\\u000a");
}

}  // namespace
}  // namespace tlt
