// SPDX-License-Identifier: Apache-2.0
#include "simulate/workload.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>

#include "base/check.h"
#include "base/files.h"
#include "base/statistics.h"
#include "tests/support/test_folder.h"

namespace tlt::simulate {
namespace {

SimulateOptions with_lengths(const std::string& lengths) {
  SimulateOptions options;
  options.lengths = lengths;
  options.max_response_length = 1'000'000;
  options.length_correlation = 0;
  return options;
}

std::vector<double> draw(const SimulateOptions& options, int64_t groups = 2500) {
  const Workload workload(options);
  std::vector<double> lengths;
  for (int64_t group = 0; group < groups; ++group)
    for (int64_t i = 0; i < 8; ++i)
      lengths.push_back(static_cast<double>(workload.length(1, group, i)));
  return lengths;
}

TEST(WorkloadTest, QuantilesAreTheGivenOnes) {
  for (const char* kind : {"lognormal:2000,20000", "pareto:2000,20000"}) {
    const auto lengths = draw(with_lengths(kind));
    EXPECT_NEAR(median(lengths) / 2000, 1, 0.05) << kind;
    EXPECT_NEAR(percentile(lengths, 0.99) / 20000, 1, 0.15) << kind;
  }
}

TEST(WorkloadTest, LimitCutsOff) {
  SimulateOptions options = with_lengths("lognormal:2000,20000");
  options.max_response_length = 4096;
  EXPECT_EQ(std::ranges::max(draw(options)), 4096);
}

TEST(WorkloadTest, GroupsAreCorrelated) {
  SimulateOptions options = with_lengths("lognormal:2000,20000");
  for (const double correlation : {0.0, 0.5, 1.0}) {
    options.length_correlation = correlation;
    const auto lengths = draw(options);
    double products = 0, squares = 0;
    for (size_t i = 0; i < lengths.size(); i += 8) {
      const double one = std::log(lengths[i] / 2000), other = std::log(lengths[i + 1] / 2000);
      products += one * other;
      squares += (one * one + other * other) / 2;
    }
    EXPECT_NEAR(products / squares, correlation, 0.06);
  }
}

TEST(WorkloadTest, RolloutsOfARunAndTraces) {
  const TestFolder folder;
  write_file_atomic(folder / "1.jsonl", R"({"response_tokens": 10}
{"response_tokens": 30}
)");
  auto lengths = draw(with_lengths("rollouts:" + (folder / "1.jsonl")));
  EXPECT_NEAR(std::ranges::count(lengths, 10) / 20000.0, 0.5, 0.02);
  EXPECT_NEAR(std::ranges::count(lengths, 30) / 20000.0, 0.5, 0.02);
  // More tokens than a number of tokens can be.
  write_file_atomic(folder / "huge.jsonl", R"({"response_tokens": 18446744073709551615})");
  const SimulateOptions huge = with_lengths("rollouts:" + (folder / "huge.jsonl"));
  EXPECT_EQ(Workload(huge).length(0, 0, 0), huge.max_response_length);
  // A dump of verl has no numbers of tokens.
  write_file_atomic(folder / "verl.jsonl", R"({"output": "eight by", "score": 1}
{"output": "twelve bytes", "score": 0}
)");
  lengths = draw(with_lengths("rollouts:" + (folder / "verl.jsonl")));
  EXPECT_NEAR(std::ranges::count(lengths, 2) / 20000.0, 0.5, 0.02);
  EXPECT_NEAR(std::ranges::count(lengths, 3) / 20000.0, 0.5, 0.02);
  write_file_atomic(folder / "a-dataset.json", R"({"0": {"output_tokens": "{7: 1, 9: 3}"}})");
  lengths = draw(with_lengths("servegen:" + (folder / "a-dataset.json")));
  EXPECT_NEAR(std::ranges::count(lengths, 9) / 20000.0, 0.75, 0.02);
}

// Two steps of two groups of two; the files of verl have no leading zeros.
TEST(WorkloadTest, FoldersOfRolloutsAreReplayed) {
  const TestFolder folder;
  const auto write = [&](const std::string& name, std::initializer_list<int> lengths) {
    std::string rows;
    for (const int tokens : lengths)
      rows += R"({"response_tokens": )" + std::to_string(tokens) + "}\n";
    write_file_atomic(folder / name, rows);
  };
  write("9.jsonl", {1, 2, 3, 4});
  write("10.jsonl", {5, 6, 7, 800});
  SimulateOptions options = with_lengths("rollouts:" + folder.path());
  options.train_batch_size = options.n = 2;
  options.max_response_length = 100;
  const Workload workload(options);
  std::vector<int64_t> lengths;
  for (int64_t step = 0; step < 3; ++step)
    for (int64_t prompt = 0; prompt < 2; ++prompt)
      for (int64_t sample = 0; sample < 2; ++sample)
        lengths.push_back(workload.length(step, prompt, sample));
  EXPECT_THAT(lengths, ::testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 100, 1, 2, 3, 4));
  write("11.jsonl", {1, 2, 3});
  EXPECT_THAT([&] { const Workload other(options); },
              ::testing::ThrowsMessage<InputError>(::testing::HasSubstr(
                  "11.jsonl has 3 responses, not train_batch_size=2 times n=2")));
}

// Groups of two: other scores, the same, none, and one.
TEST(WorkloadTest, GroupsWithEqualScoresHaveNoGradient) {
  const TestFolder folder;
  std::string rows;
  for (const char* score : {R"(,"score":0)", R"(,"score":1)", R"(,"score":0.5)", R"(,"score":0.5)",
                            "", "", R"(,"score":1)", ""})
    rows += fmt::format("{{\"response_tokens\":7{}}}\n", score);
  write_file_atomic(folder / "1.jsonl", rows);
  SimulateOptions options = with_lengths("rollouts:" + folder.path());
  options.train_batch_size = 4;
  options.n = 2;
  const auto have_gradients = [&] {
    const Workload workload(options);
    std::vector<bool> have;
    for (int64_t prompt = 0; prompt < 4; ++prompt) have.push_back(workload.has_gradient(0, prompt));
    return have;
  };
  EXPECT_THAT(have_gradients(), ::testing::ElementsAre(true, false, true, true));
  options.train_batch_size = 8;
  options.n = 1;
  EXPECT_THAT(have_gradients(), ::testing::Each(true)) << "nothing to compare with";
}

// Responses of two tokens, of which the second is the response's number.
TEST(WorkloadTest, TokensAreThoseOfTheResponses) {
  const TestFolder folder;
  std::string recorded;
  for (int i = 1; i <= 8; ++i)
    recorded += fmt::format("{{\"prompt\":[],\"response\":[0,{}]}}\n", i);
  write_file_atomic(folder / "tokens", recorded);
  for (const char* name : {"9.jsonl", "10.jsonl"}) {
    std::string rows;
    for (int i = 0; i < 4; ++i) rows += "{\"output\":\"twelve bytes\"}\n";
    write_file_atomic(folder / name, rows);
  }
  SimulateOptions options = with_lengths("rollouts:" + folder.path());
  options.train_batch_size = options.n = 2;
  options.bench_suffix = folder / "tokens";
  const Workload workload(options);
  std::vector<int> tokens;
  for (int64_t step = 0; step < 3; ++step)
    for (int64_t prompt = 0; prompt < 2; ++prompt)
      for (int64_t sample = 0; sample < 2; ++sample) {
        EXPECT_EQ(workload.length(step, prompt, sample), 2);
        tokens.push_back(workload.tokens(step, prompt, sample)->tokens.back());
      }
  EXPECT_THAT(tokens, ::testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4));
  const auto complaint = [&] {
    try {
      const Workload other(options);
      return std::string("none");
    } catch (const InputError& error) {
      return std::string(error.what());
    }
  };
  write_file_atomic(folder / "11.jsonl",
                    "{\"output\":\"a\"}\n{\"output\":\"a\"}\n"
                    "{\"output\":\"a\"}\n{\"output\":\"a\"}\n");
  EXPECT_THAT(complaint(), ::testing::HasSubstr("the tokens of 8 responses, and lengths has 12"));
  options.lengths = "lognormal:10,100";
  EXPECT_THAT(complaint(), ::testing::HasSubstr("the folder of these, as lengths=rollouts:"));
}

TEST(WorkloadTest, DamagedInputsAreNamed) {
  const TestFolder folder;
  write_file_atomic(folder / "1.jsonl", "{\"response_tokens\": 10}\n{\"output\": \"\"}\n");
  write_file_atomic(folder / "2.jsonl", "{\"response_tokens\": 10}\n{\"response_tokens\": -3}\n");
  write_file_atomic(folder / "3.jsonl", "{\"response_tokens\": 10}\n{\"response_tok");
  write_file_atomic(folder / "a-dataset.json", R"({"0": {"output_tokens": "{7: 1, 9"}})");
  for (const auto& [lengths, part] : std::vector<std::pair<std::string, std::string>>{
           {"rollouts:" + (folder / "1.jsonl"), "1.jsonl:2: neither response_tokens above 0"},
           {"rollouts:" + (folder / "2.jsonl"), "2.jsonl:2: neither response_tokens above 0"},
           {"rollouts:" + (folder / "3.jsonl"), "3.jsonl:2"},
           {"servegen:" + (folder / "a-dataset.json"), "not a histogram"},
           {"normal:3,4", "give lognormal:MEDIAN,P99"},
           {"lognormal:2000", "as 2000,20000"},
           {"lognormal:2000,200", "not smaller"},
           {"pareto:2,x", "as 2000,20000"}}) {
    try {
      const Workload workload(with_lengths(lengths));
      ADD_FAILURE() << lengths;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(part)) << lengths;
    }
  }
}

}  // namespace
}  // namespace tlt::simulate
