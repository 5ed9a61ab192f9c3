// The row formats of `tlt score`, and the tokens of each that get a logprob.
//
//   {"tokens"}                    all but the first
//   {"prompt_tokens", "tokens"}   "tokens": what tlt generate writes
//   {"prompt", "response"}        the response's; prompts as tlt generate takes them
//   {"messages", "tools"?}        the last assistant message's, its end-of-sequence token included
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/rows.h"

namespace tlt::apps {

// InputError, beginning with the place: a row of another form, or an ambiguous one.
std::vector<cli::InputRow> read_score_rows(const std::string& path,
                                           const cli::PromptFormat& format);

}  // namespace tlt::apps
