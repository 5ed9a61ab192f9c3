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
#include <vector>

#include "data/data_options.h"
#include "data/example_maker.h"
#include "data/sources.h"
#include "tokenizer/tokenizer.h"

namespace tlt::data {

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
