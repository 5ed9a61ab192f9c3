// PreferenceDataset: pairs of responses of which one is preferred (`tlt dpo`), in the forms of TRL
// and ShareGPT, or generated countdown traces of which one finds the target and one gives up.
//
//   prompt, chosen, rejected   texts; or lists of messages, where the prompt may be left out if
//                              chosen and rejected begin with it, or stand under conversations
//
// A text response ends with an end-of-sequence token, which is added if the row has none. In lists
// the assistant's messages after the prompt count, as the chat template writes them
// (chat_spans.h). Pairs of equal responses are left out and counted: they prefer nothing.
//
// Not here   the order (sampler.h); the loss (train/preference_loss.h).
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

struct PreferencePair {
  SftExample chosen, rejected;
};

class PreferenceDataset {
 public:
  // Reads the files of the split. InputError as SftDataset::load, for a row without chosen or
  // rejected, and for lists of messages in which no prompt is found.
  static PreferenceDataset load(const DataOptions& options, const tokenizer::Tokenizer& tokenizer,
                                Split split);

  int64_t size() const { return sources_.size(); }

  // Its files and generators, in order, with their data.train_weights.
  const std::vector<SamplerPart>& parts() const { return sources_.parts(); }

  // REQUIRES: 0 <= index < size().
  PreferencePair pair(int64_t index) const { return sources_.item(index); }

  // Pairs that were left out because they are too long, and because both responses are equal.
  int64_t left_out() const { return left_out_; }
  int64_t equal_pairs() const { return equal_pairs_; }

 private:
  Sources<PreferencePair> sources_;  // one for each file or generator
  int64_t left_out_ = 0, equal_pairs_ = 0;
};

}  // namespace tlt::data
