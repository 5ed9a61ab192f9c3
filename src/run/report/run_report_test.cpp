// SPDX-License-Identifier: Apache-2.0
#include "run/report/run_report.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/files.h"
#include "tests/support/test_folder.h"

namespace tlt::run {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

// The data of a page.
Json data_of(const std::string& html) {
  const std::string begin = "id=\"data\">";
  const size_t from = html.find(begin) + begin.size();
  return Json::parse(html.substr(from, html.find("</script>", from) - from));
}

class RunReportTest : public ::testing::Test {
 protected:
  std::string run(const std::string& name, const std::string& metrics) {
    const std::string folder = folder_ / name;
    make_folder(folder);
    write_file_atomic(folder + "/metrics.jsonl", metrics);
    return folder;
  }
  static RunReport report(const std::vector<std::string>& folders) { return report_runs(folders); }

  const TestFolder folder_;
};

TEST_F(RunReportTest, NumbersAreThoseOfTheMetrics) {
  const std::string folder = run("a", "{\"step\": 1, \"x\": 0.1}\n{\"step\": 2, \"x\": 3e-9}\n");
  write_file_atomic(folder + "/options.toml",
                    "[actor.optim]\n# [results] Rate.\nlr = 1e-06\n[reward.http]\n"
                    "api_key = \"hidden\"\nheaders = [\"a\"]\n");
  write_file_atomic(folder + "/run.json", "{\"command\": \"train\", \"started\": \"now\"}");
  write_file_atomic(folder + "/summary.txt", "Run summary\x1b[2J\n");
  const RunReport made = report({folder + "/"});
  const Json data = data_of(made.html);
  const Json& read = data.at("runs").at(0);
  EXPECT_EQ(read.at("name"), "a");
  EXPECT_EQ(read.at("command"), "train");
  EXPECT_EQ(read.at("metrics").at("columns").at("x"), Json({0.1, 3e-9}));
  EXPECT_EQ(read.at("options"), Json({{"actor.optim.lr", "1e-06"},
                                      {"reward.http.api_key", "…"},
                                      {"reward.http.headers", "…"}}));
  EXPECT_THAT(made.html, Not(HasSubstr("hidden\\\"")));
  EXPECT_EQ(read.at("summary"), "Run summary\\u001b[2J\n") << "no control characters";
  EXPECT_EQ(read.at("left_out"), Json::array());
}

TEST_F(RunReportTest, SeveralRunsAreOnOnePage) {
  const Json data = data_of(
      report({run("a", "{\"step\": 1, \"x\": 1}\n"), run("b", "{\"step\": 1, \"x\": 2}\n")}).html);
  EXPECT_EQ(data.at("runs").size(), 2u);
  EXPECT_EQ(data.at("runs").at(1).at("metrics").at("columns").at("x"), Json({2}));
}

TEST_F(RunReportTest, ARunThatIsBeingWrittenIsReadAsFarAsItGoes) {
  const std::string folder = run("a", "{\"step\": 1, \"x\": 1}\n{\"step\": 2, \"x\"");
  write_file_atomic(folder + "/timeline.json", "[{\"pid\": 0,");
  write_file_atomic(folder + "/run.json", "{\"comm");
  write_file_atomic(folder + "/options.toml", "[a\nb =");
  make_folder(folder + "/rollouts");
  write_file_atomic(folder + "/rollouts/000001.jsonl", "{\"output\": ");
  const RunReport made = report({folder});
  EXPECT_THAT(made.left_out, ElementsAre(AllOf(HasSubstr("metrics.jsonl:2"), HasSubstr("not JSON")),
                                         HasSubstr("000001.jsonl:1")));
  const Json data = data_of(made.html);
  EXPECT_EQ(data.at("runs").at(0).at("left_out").size(), 2u);
  EXPECT_EQ(data.at("runs").at(0).at("metrics").at("steps"), Json({1}));
}

TEST_F(RunReportTest, WhatIsNoRunIsRefused) {
  EXPECT_THAT(thrown_message<InputError>([&] { report({folder_ / "none"}); }),
              HasSubstr("none: no run folder (it has no metrics.jsonl)"));
  EXPECT_THAT(thrown_message<InputError>([&] { report({run("empty", "")}); }),
              HasSubstr("empty/metrics.jsonl: no row of a step yet"));
  const std::string folder = run("a", "{\"step\": 1, \"x\": 1}\n");
  EXPECT_THAT(thrown_message<InputError>([&] {
                report({folder, folder + "/."});
              }),
              HasSubstr("given twice"));
}

TEST_F(RunReportTest, HostileResponsesAddNoScript) {
  const std::string folder = run("a", "{\"step\": 1, \"</script><b>\": 1}\n");
  make_folder(folder + "/rollouts");
  write_file_atomic(folder + "/rollouts/000001.jsonl",
                    Json({{"input", "</script><script>alert(1)</script>"},
                          {"output", "<img src=x onerror=alert(1)>"},
                          {"score", 1}})
                            .dump() +
                        "\n");
  const std::string html = report({folder}).html;
  for (const char* part : {"</script><", "<img", "<b>"}) EXPECT_THAT(html, Not(HasSubstr(part)));
  EXPECT_EQ(data_of(html).at("runs").at(0).at("rollouts").at(0).at("output"),
            "<img src=x onerror=alert(1)>");
}

// 1,000 steps with 150 metrics of full precision, and more responses than fit.
TEST_F(RunReportTest, AThousandStepsTakeLessThanFiveMegabytes) {
  std::string metrics;
  for (int step = 1; step <= 1000; ++step) {
    metrics += fmt::format("{{\"step\": {}", step);
    for (int i = 0; i < 150; ++i) metrics += fmt::format(", \"m/{}\": {}", i, std::sin(step + i));
    metrics += "}\n";
  }
  const std::string folder = run("a", metrics);
  make_folder(folder + "/rollouts");
  const Json row = {{"input", "p"}, {"output", std::string(8000, 'x')}, {"score", 1}};
  std::string rows;
  for (int i = 0; i < 50; ++i) rows += row.dump() + "\n";
  for (int step = 1; step <= 20; ++step)
    write_file_atomic(fmt::format("{}/rollouts/{:06}.jsonl", folder, step), rows);
  const RunReport made = report({folder});
  EXPECT_LT(made.html.size(), 5'000'000u);
  const Json data = data_of(made.html);
  EXPECT_EQ(data.at("runs").at(0).at("metrics").at("steps").size(), 1000u);
  EXPECT_EQ(data.at("runs").at(0).at("metrics").at("columns").at("m/7").at(99), std::sin(107));
}

}  // namespace
}  // namespace tlt::run
