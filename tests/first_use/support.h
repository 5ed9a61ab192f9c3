// Shared by the first-use tests, which run build/tlt as a new user would and check exit code,
// output and files. B1, B2, … number the reports of a research engineer who tried the program at
// commit 96fc618; each has a test that failed there.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gmock/gmock.h>

#include <filesystem>
#include <regex>

#include "tests/support/program.h"
#include "tests/support/run_program.h"

namespace tlt::first_use {

using apps::Ended;
using apps::run_program;
using apps::scratch_file;
using apps::scratch_folder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Commands are typed in the repository's folder, wherever the test program is started.
inline const bool kIsInRepository = (std::filesystem::current_path(TLT_SOURCE_DIR), true);

inline std::string demo_model() { return std::string(TLT_SOURCE_DIR) + "/models/demo"; }

// A user error: exit code 2 and one sentence on standard error, "tlt COMMAND: …".
inline void expect_refusal(const Ended& ended, const ::testing::Matcher<const std::string&>& says) {
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  EXPECT_THAT(ended.err, says);
  EXPECT_THAT(ended.err, Not(HasSubstr("terminate called")));
}

// The name of a metric in the form of docs/metrics.md.
inline std::string page_name(std::string name) {
  const std::pair<const char*, const char*> patterns[] = {
      {"^val-(core|aux)/.*/(reward|acc)/(mean|std|best|maj|pass)@[0-9]+",
       "val-$1/<data_source>/$2/$3@<n>"},
      {"worker_[0-9]+", "worker_<i>"},
      {"pos_[0-9]+", "pos_<k>"},
      {"^speculation/arm/[a-z]+/[0-9_]+/", "speculation/arm/<drafter>/<strategy>/"},
      {"^speculation/(suffix|ngram|eagle|mixed)/", "speculation/<drafter>/"},
      {"^(drafter/[a-z0-9_]+)/(before|after|frozen)$", "$1/<moment>"}};
  for (const auto& [pattern, replacement] : patterns)
    name = std::regex_replace(name, std::regex(pattern), replacement);
  return name;
}

inline void expect_all_on_the_page(const std::vector<nlohmann::json>& rows) {
  const std::string page = read_file(TLT_SOURCE_DIR "/docs/metrics.md", 1 << 26);
  for (const auto& row : rows)
    for (const auto& [name, value] : row.items())
      EXPECT_TRUE(name == "step" || page.find("`" + page_name(name) + "`") != page.npos) << name;
}

}  // namespace tlt::first_use
