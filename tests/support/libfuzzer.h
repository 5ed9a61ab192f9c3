// run_libfuzzer(): runs libFuzzer on a parser, for TLT_FUZZ_SECONDS (60), with the corpus of the plan
// and of earlier runs, in TLT_FUZZ_CORPUS/NAME (runs/fuzz). Ends the process, as libFuzzer does:
// with exit code 0, or after an input that is neither accepted nor rejected by an InputError of one
// sentence, takes too long or too much memory, with another one; the input is then in
// TLT_FUZZ_CORPUS/NAME.crash-… .
//
// Only in a build with TLT_LIBFUZZER; a process can fuzz one parser.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/support/fuzz_plan.h"

namespace tlt::tests {

void run_libfuzzer(const FuzzPlan& plan, const FuzzCall& call);

}  // namespace tlt::tests
