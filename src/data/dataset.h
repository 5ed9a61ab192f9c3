// Dataset: the prompts of a run, with what their reward needs to know.
//
// Owns       the rows of files, read and tokenized at start; problems of a generator are made when
// asked for. Not here   the order (sampler.h); demonstrations (sft_dataset.h). Threading  constant
// after loading.
//
//   const Dataset dataset = Dataset::load(options, tokenizer, Split::kTrain);
//   Sampler sampler(dataset.size(), options.shuffle, options.seed);
//   for (int64_t index : sampler.next_batch(options.train_batch_size)) use(dataset.prompt(index));
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/data_options.h"
#include "data/tokenizer.h"

namespace tlt::data {

struct Prompt {
  uint32_t id =
      0;  // the row's number over all files, counted before any is left out; no shuffle changes it
  std::vector<int32_t> tokens;
  std::string text;
  std::string data_source;
  std::string ground_truth;
  nlohmann::json extra_info;
};

enum class Split { kTrain, kValidation };

class Dataset {
 public:
  // InputError: no files, no prompts, a row without its prompt, answer or data source, a prompt
  // that is too long; with file and line.
  static Dataset load(const DataOptions& options, const Tokenizer& tokenizer, Split split);

  int64_t size() const { return size_; }

  // REQUIRES: 0 <= index < size().
  Prompt prompt(int64_t index) const;

  // Rows that were too long and so left out (data.filter_overlong_prompts).
  int64_t left_out() const { return left_out_; }

  class Source;

 private:
  std::vector<std::shared_ptr<const Source>> sources_;  // one for each file or generator
  int64_t size_ = 0;
  int64_t left_out_ = 0;
};

}  // namespace tlt::data
