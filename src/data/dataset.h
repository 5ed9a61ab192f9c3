// Dataset: the prompts of a run, with the fields that their reward reads.
//
// Owns       the rows of files, read and tokenized at start and stored by row_store.h: memory is
//            bounded by 256 MB and 8 bytes per row for each file, whatever its size. Problems of a
//            generator are made on request.
// Not here   the order (sampler.h); demonstrations (sft_dataset.h).
// Threading  constant after loading.
//
//   const Dataset dataset = Dataset::load(options, tokenizer, Split::kTrain);
//   Sampler sampler(dataset.parts(), options.shuffle, options.seed);
//   for (int64_t index : sampler.next_batch(options.train_batch_size)) use(dataset.prompt(index));
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/data_options.h"
#include "data/row_fields.h"
#include "data/sources.h"
#include "tokenizer/tokenizer.h"

namespace tlt::data {

struct Prompt {
  uint32_t id =
      0;  // row index over all files, counted before any is left out; not changed by shuffling
  std::vector<int32_t> tokens;
  std::string text;
  std::string data_source;          // empty: the row has none
  std::string ground_truth;         // empty: the row has none
  nlohmann::ordered_json messages;  // of a conversational prompt; null: the prompt is a text
  nlohmann::ordered_json tools;     // of the chat template; null: none
  nlohmann::ordered_json extra_info;
  std::string place;  // for messages: the file and the row
};

// Throws InputError for a row that a reward cannot use, such as one whose answer cannot be
// compared.
using RowCheck = std::function<void(const Prompt&)>;

class Dataset {
 public:
  // InputError: no files, no prompts, a row without its prompt or a required field, a prompt that
  // is too long, a row that `check` rejects; with file and line. Rows of a generator are all alike,
  // so only its first one is checked.
  static Dataset load(const DataOptions& options, const tokenizer::Tokenizer& tokenizer,
                      Split split, const RequiredFields& required = {}, const RowCheck& check = {});

  int64_t size() const { return sources_.size(); }

  // Its files and generators, in order, with their data.train_weights.
  const std::vector<SamplerPart>& parts() const { return sources_.parts(); }

  // REQUIRES: 0 <= index < size().
  Prompt prompt(int64_t index) const { return sources_.item(index); }

  // Rows that were left out because they are too long (data.filter_overlong_prompts).
  int64_t left_out() const { return left_out_; }

  // Whether there is a prompt to which the model's chat template is not applied
  // (PromptRenderer::leaves_out_template).
  bool leaves_out_template() const { return leaves_out_template_; }

 private:
  Sources<Prompt> sources_;  // one for each file or generator
  int64_t left_out_ = 0;
  bool leaves_out_template_ = false;
};

}  // namespace tlt::data
