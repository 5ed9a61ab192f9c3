// Output paths (B1, B16): a device, a FIFO or a link is written to and never replaced by a file;
// "-" is standard output and input.
//
// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include "tests/first_use/support.h"

namespace tlt::first_use {
namespace {

constexpr const char* kPrompt = "{\"id\": \"a\", \"prompt\": \"7,6,3:60<think>\"}\n";

std::vector<std::string> generate(const std::string& prompts, const std::string& output) {
  return {"generate", "--model",  demo_model(), "--prompts",        prompts, "--speculation",
          "off",      "--output", output,       "--max-new-tokens", "4"};
}

TEST(OutputsTest, DashIsStandardInputAndOutput) {
  const Ended ended = run_program(generate("-", "-"), kPrompt);
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  ASSERT_EQ(apps::json_lines(ended.out).size(), 1u) << "log lines belong to standard error";
  EXPECT_EQ(apps::json_lines(ended.out)[0]["id"], "a");
  EXPECT_FALSE(std::filesystem::exists("-"));
}

TEST(OutputsTest, DevStdoutIsNotReplaced) {
  const std::string link = scratch_folder() + "/stdout";
  std::filesystem::create_symlink("/dev/stdout", link);
  const std::string prompts = scratch_file("p.jsonl", kPrompt);
  const Ended ended = run_program(generate(prompts, link));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(apps::json_lines(ended.out).size(), 1u);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(std::filesystem::read_symlink(link), "/dev/stdout");
}

TEST(OutputsTest, FifoIsWrittenToAndNotReplaced) {
  const std::string fifo = scratch_folder() + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  std::string text;
  FileHandle held(fifo, O_RDWR);  // so that neither side blocks if the other does not open the FIFO
  const Ended ended = run_program(generate(scratch_file("p.jsonl", kPrompt), fifo));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  ASSERT_TRUE(std::filesystem::is_fifo(fifo));
  ASSERT_EQ(::fcntl(held.descriptor(), F_SETFL, O_NONBLOCK), 0);
  text.resize(1 << 16);
  const ssize_t count = ::read(held.descriptor(), text.data(), text.size());
  ASSERT_GT(count, 0) << "nothing was written to the FIFO";
  text.resize(static_cast<size_t>(count));
  EXPECT_EQ(apps::json_lines(text).size(), 1u);
}

TEST(OutputsTest, LinkIsKeptAndItsTargetIsReplaced) {
  const std::string real = scratch_file("real.jsonl", "old\n"),
                    link = scratch_folder() + "/link.jsonl";
  std::filesystem::create_symlink("real.jsonl", link);
  const std::string prompts = scratch_file("p.jsonl", kPrompt);
  ASSERT_EQ(run_program(generate(prompts, link)).exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(apps::json_file(real).size(), 1u);
}

TEST(OutputsTest, MessagesHaveThePathOfTheUser) {  // B16: the message named a temporary file
  const Ended ended = run_program(generate(scratch_file("p.jsonl", kPrompt), "/nodir/x.jsonl"));
  expect_refusal(ended, AllOf(HasSubstr("/nodir/x.jsonl: cannot open"), Not(HasSubstr(".tmp"))));
}

TEST(OutputsTest, TokenizeReadsAndWritesFiles) {
  const std::string input = scratch_file("in.jsonl", "{\"text\": \"7\"}\n"),
                    output = scratch_folder() + "/out.jsonl";
  const Ended ended = run_program(
      {"tokenize", "--model", demo_model(), "encode", "--input", input, "--output", output});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(apps::json_file(output).size(), 1u);
  EXPECT_EQ(ended.out, "");
}

}  // namespace
}  // namespace tlt::first_use
