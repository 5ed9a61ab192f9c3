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
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "data/data_options.h"
#include "data/example_maker.h"
#include "data/sources.h"
#include "tokenizer/tokenizer.h"

namespace tlt::data {

struct PreferencePair {
  SftExample chosen, rejected;
};

// Makes pairs of rows.
class PairMaker {
 public:
  // InputError as ExampleMaker.
  PairMaker(const DataOptions& options, const tokenizer::Tokenizer& tokenizer);

  const ExampleMaker& examples() const { return maker_; }

  // Whether a row has the fields of a pair.
  static bool is_pair(const nlohmann::ordered_json& row);

  struct Made {
    std::optional<PreferencePair> pair;  // nullopt: equal, or too long
    bool is_equal = false;               // chosen and rejected have the same tokens
  };
  // InputError: as PreferenceDataset::load.
  Made make(const nlohmann::ordered_json& row, int64_t number, const std::string& place) const;

 private:
  struct Fields;
  std::optional<PreferencePair> try_texts(const nlohmann::ordered_json& row, const Fields& fields,
                                          int64_t number, const std::string& place) const;
  std::optional<PreferencePair> try_messages(const nlohmann::ordered_json& row,
                                             const Fields& fields, int64_t number,
                                             const std::string& place) const;
  ChatTokens answer_tokens(const nlohmann::ordered_json& row, const nlohmann::ordered_json& prompt,
                           const nlohmann::ordered_json& messages, const std::string& place) const;
  static Fields fields_of(const nlohmann::ordered_json& row, const DataOptions& options,
                          const std::string& place);
  static void find_prompt(const nlohmann::ordered_json& row, const DataOptions& options,
                          const std::string& place, Fields& found);

  const DataOptions options_;
  const ExampleMaker maker_;
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
