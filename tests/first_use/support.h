// What the tests of the first use share. They run build/tlt as a new user types it, and look at
// what he sees: exit code, output, files. FIRST_USE numbers (B1, B2, …) name the reports of a
// research engineer who tried the program at commit 96fc618; each has a test that failed there.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gmock/gmock.h>

#include "apps/program.h"
#include "tests/support/program.h"

namespace tlt::first_use {

using apps::Ended;
using apps::run_program;
using apps::scratch_file;
using apps::scratch_folder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

inline std::string demo_model() { return std::string(TLT_SOURCE_DIR) + "/models/demo"; }

// A mistake of the user: exit code 2 and one sentence on standard error, "tlt COMMAND: …".
inline void expect_refusal(const Ended& ended, const ::testing::Matcher<const std::string&>& says) {
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  EXPECT_THAT(ended.err, says);
  EXPECT_THAT(ended.err, Not(HasSubstr("terminate called")));
}

}  // namespace tlt::first_use
