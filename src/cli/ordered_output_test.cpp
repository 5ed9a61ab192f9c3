// SPDX-License-Identifier: Apache-2.0
#include "cli/ordered_output.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <memory>

#include "base/check.h"
#include "tests/support/test_folder.h"

namespace tlt::cli {
namespace {

using ::testing::HasSubstr;

// Lines are {"place": n}.
int64_t place_of(const nlohmann::json& line, int64_t /*number*/, const std::string& /*where*/) {
  return line.at("place").get<int64_t>();
}
std::string line(int64_t place) { return "{\"place\": " + std::to_string(place) + "}\n"; }

class OrderedOutputTest : public ::testing::Test {
 protected:
  std::unique_ptr<OrderedOutput> open(bool resume, int seed = 1) const {
    return std::make_unique<OrderedOutput>(
        OrderedOutput::Setup{
            .path = path_, .resume = resume, .settings = {{"--seed", seed}}, .lines = 4},
        place_of);
  }
  // Writes lines 3 and 1 and leaves the partial file of a killed program.
  void leave_two() const {
    auto output = open(false);
    output->add(3, line(3));
    output->add(1, line(1));
  }
  std::string text_of(const std::string& path) const { return read_file(path, 1 << 20); }
  std::string partial() const { return path_ + ".partial"; }

  const TestFolder folder_;
  const std::string path_ = folder_ / "out.jsonl";
};

TEST_F(OrderedOutputTest, LinesAreInOrderHoweverTheyWereAdded) {
  auto output = open(false);
  for (const int64_t place : {2, 0, 3, 1}) output->add(place, line(place));
  EXPECT_FALSE(std::filesystem::exists(path_));
  output->commit();
  EXPECT_EQ(text_of(path_), line(0) + line(1) + line(2) + line(3));
  EXPECT_FALSE(std::filesystem::exists(partial()));
}

TEST_F(OrderedOutputTest, ResumeHasTheLinesOfThePartialFile) {
  leave_two();
  auto output = open(true);
  EXPECT_EQ(output->done(), 2);
  EXPECT_TRUE(output->has(1) && output->has(3) && !output->has(0) && !output->has(2));
  output->add(2, line(2));
  output->add(0, line(0));
  output->commit();
  EXPECT_EQ(text_of(path_), line(0) + line(1) + line(2) + line(3));
}

TEST_F(OrderedOutputTest, IncompleteLastLineIsOverwritten) {
  leave_two();
  const std::string whole = text_of(partial());
  write_file_atomic(partial(), whole + "{\"place\": 0, \"longer than a line\": 12345");
  auto output = open(true);
  EXPECT_EQ(output->done(), 2);
  output->add(2, line(2));
  EXPECT_EQ(text_of(partial()), whole + line(2));
}

TEST_F(OrderedOutputTest, PartialFileIsNeverOverwritten) {
  leave_two();
  const std::string whole = text_of(partial());
  EXPECT_THAT(thrown_message<InputError>([&] { open(false); }), HasSubstr("add --resume"));
  EXPECT_THAT(thrown_message<InputError>([&] { open(true, /*seed=*/2); }),
              HasSubstr("started with --seed 1, and this command has 2;"));
  // A setting that only the interrupted run had (--adapter) is a difference, too.
  EXPECT_THAT(thrown_message<InputError>(
                  [&] { OrderedOutput({.path = path_, .resume = true, .lines = 4}, place_of); }),
              HasSubstr("started with --seed 1, and this command has "));
  EXPECT_EQ(text_of(partial()), whole);
  write_file_atomic(partial(), whole + line(3));
  EXPECT_THAT(thrown_message<InputError>([&] { open(true); }),
              HasSubstr("partial:4: this response is"));
  write_file_atomic(partial(), whole + "{\n");
  EXPECT_THAT(thrown_message<InputError>([&] { open(true); }), HasSubstr("partial:4: not a JSON"));
  write_file_atomic(partial(), line(3));
  EXPECT_THAT(thrown_message<InputError>([&] { open(true); }),
              HasSubstr("not a file of an interrupted"));
}

// Copying the settings of such a file overflowed the stack.
TEST_F(OrderedOutputTest, DeeplyNestedLineIsRefused) {
  write_file_atomic(partial(), "{\"partial\":{\"a\":" + std::string(100'000, '[') +
                                   std::string(100'000, ']') + "}}\n");
  EXPECT_THAT(thrown_message<InputError>([&] { open(true); }),
              HasSubstr("partial:1: lists and objects nested more than 500 deep"));
}

// A FIFO that no program writes to was opened for ever.
TEST_F(OrderedOutputTest, PartialFileThatIsNoFileIsRefused) {
  ASSERT_EQ(::mkfifo(partial().c_str(), 0600), 0);
  EXPECT_THAT(thrown_message<InputError>([&] { open(false); }), HasSubstr("partial is a FIFO"));
}

TEST_F(OrderedOutputTest, SecondWriterIsRefused) {
  leave_two();
  const auto output = open(true);
  EXPECT_THAT(thrown_message<InputError>([&] { open(true); }), HasSubstr("another process writes"));
}

TEST_F(OrderedOutputTest, NoPartialFileWithoutLines) {
  open(false);
  EXPECT_FALSE(std::filesystem::exists(partial()));
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace tlt::cli
