// SftDataset: demonstrations to imitate (`tlt sft`): rows with a prompt and a response, rows with a
// conversation, or generated countdown traces. A response ends with an end-of-sequence token, which
// is added if the row has none. In a conversation all assistant messages are imitated
// (chat_spans.h), as its template writes them; it may become several examples.
//
// Not here   the order (sampler.h); packing and the loss (train/).
// Threading  constant after loading.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "data/data_options.h"
#include "data/sources.h"
#include "tokenizer/tokenizer.h"

namespace tlt::data {

struct SftExample {
  std::vector<int32_t> tokens;                     // prompt, then response
  int64_t response_begin = 0;                      // of the first response in a conversation
  std::vector<std::pair<int64_t, int64_t>> spans;  // [begin, end) of each response, in order
  std::vector<float> weights;  // loss weight of each token; 0 outside of responses
  int64_t row = 0;             // its index over all files, counted before any is left out
};

class SftDataset {
 public:
  // Reads the files of the split. InputError as Dataset::load, and for a response longer than
  // data.max_response_length, unless data.filter_overlong_prompts leaves it out.
  static SftDataset load(const DataOptions& options, const tokenizer::Tokenizer& tokenizer,
                         Split split);

  int64_t size() const { return sources_.size(); }

  // Its files and generators, in order, with their data.train_weights.
  const std::vector<SamplerPart>& parts() const { return sources_.parts(); }

  // REQUIRES: 0 <= index < size().
  SftExample example(int64_t index) const { return sources_.item(index); }

  // Examples that were left out because they are too long.
  int64_t left_out() const { return left_out_; }

 private:
  Sources<SftExample> sources_;  // one for each file or generator
  int64_t left_out_ = 0;
};

}  // namespace tlt::data
