// SftDataset: demonstrations to imitate (`tlt sft`): rows with a prompt and a response, rows with a
// conversation, or countdown traces made on the fly. A response ends with an end-of-sequence token;
// where the row has none, it is added. Of a conversation all the assistant's messages count
// (chat_spans.h), as its template writes them; it may be several examples.
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
#include "data/tokenizer.h"

namespace tlt::data {

struct SftExample {
  std::vector<int32_t> tokens;                     // prompt, then response
  int64_t response_begin = 0;                      // of the first one in a conversation
  std::vector<std::pair<int64_t, int64_t>> spans;  // [begin, end) of each response, in order
  std::vector<float> weights;  // in the loss, one for each token; 0 for all that is no response
  int64_t row = 0;             // where it is from, over all files, counted before any is left out
};

class SftDataset {
 public:
  // From the files of the split. InputError as Dataset::load; a response longer than
  // data.max_response_length too, unless data.filter_overlong_prompts leaves it out.
  static SftDataset load(const DataOptions& options, const Tokenizer& tokenizer, Split split);

  int64_t size() const { return sources_.size(); }

  // Its files and generators, one after another, with their data.train_weights.
  const std::vector<SamplerPart>& parts() const { return sources_.parts(); }

  // REQUIRES: 0 <= index < size().
  SftExample example(int64_t index) const { return sources_.item(index); }

  // Examples that were too long and so left out.
  int64_t left_out() const { return left_out_; }

 private:
  Sources<SftExample> sources_;  // one for each file or generator
  int64_t left_out_ = 0;
};

}  // namespace tlt::data
