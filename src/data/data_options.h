// DataOptions: which prompts a run uses and how a row becomes one. Names are verl's.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/options.h"

namespace tlt::data {

enum class Split { kTrain, kValidation };

// The options of a split.
struct SplitFiles {
  const char* option;  // that names the files
  const std::vector<std::string>& files;
  int64_t max_rows;
  const std::vector<double>& weights;  // empty: all weights are equal

  double weight(size_t file) const { return weights.empty() ? 1 : weights[file]; }
};

struct DataOptions {
  std::vector<std::string> train_files;
  std::vector<std::string> val_files;
  std::vector<double> train_weights;
  int64_t train_batch_size = 1024;
  int64_t gen_batch_size = 0;
  int64_t train_max_samples = -1;
  int64_t val_max_samples = -1;
  int64_t max_prompt_length = 512;
  int64_t max_response_length = 512;
  bool filter_overlong_prompts = false;
  std::string truncation = "error";
  bool shuffle = true;
  int64_t seed = 1;
  std::string prompt_key = "prompt";
  std::string prompt_template;
  std::string chat_template = "auto";
  std::string apply_chat_template_kwargs = "{}";
  std::string answer_key = "reward_model.ground_truth";
  std::string answer_after;
  std::string reward_fn_key = "data_source";
  std::string data_source;
  std::string response_key = "response";
  std::vector<std::string> loss_weights;
  // No option: the time that chat templates print (base/local_time.h); empty: that of loading.
  std::string template_time;
  // No option: false where an environment writes the beginning of the assistant's turn (environment/).
  bool opens_turn = true;

  // NOLINTNEXTLINE(readability-function-size): a list.
  void visit(auto& v) {
    v(train_files, "train_files", Affects::kResults,
      "Files to train on (.parquet, .jsonl, .json), folders of them, patterns (shards/*.parquet), "
      "or generated problems: countdown:seed=1000,size=65536,four=0.1,top=12.");
    v(val_files, "val_files", Affects::kResults,
      "Files to validate on; countdown:seed=7,size=256 generates problems that training never "
      "uses.");
    v(train_weights, "train_weights", Affects::kResults,
      "One weight for each of train_files: the relative frequency of its rows. "
      "An epoch has all rows of the files with the largest weight; empty: equal weights.");
    v(train_batch_size, "train_batch_size", Affects::kResults, "Prompts per RL step.");
    v(gen_batch_size, "gen_batch_size", Affects::kResults,
      "Prompts rolled out at a time with algorithm.filter_groups; 0: train_batch_size.");
    v(train_max_samples, "train_max_samples", Affects::kResults,
      "Train on at most this many rows, the first ones; -1: all.");
    v(val_max_samples, "val_max_samples", Affects::kResults,
      "Validate on at most this many rows, the first ones; -1: all.");
    v(max_prompt_length, "max_prompt_length", Affects::kResults, "Longest prompt, in tokens.");
    v(max_response_length, "max_response_length", Affects::kResults,
      "Longest response, in tokens.");
    v(filter_overlong_prompts, "filter_overlong_prompts", Affects::kResults,
      "Leave out rows that are too long.");
    v(truncation, "truncation", Affects::kResults,
      "What to do with a longer prompt: error, or truncate it: left, right or middle.");
    v(shuffle, "shuffle", Affects::kResults, "Shuffle the rows, in another order each epoch.");
    v(seed, "seed", Affects::kResults, "Seed of the shuffling.");
    v(prompt_key, "prompt_key", Affects::kResults,
      "Field with the prompt: a text or a list of messages.");
    v(prompt_template, "prompt_template", Affects::kResults,
      "Text of the prompt with {field} placeholders, instead of prompt_key.");
    v(chat_template, "chat_template", Affects::kResults,
      "Chat template: auto (the model folder's, for messages; a text is unchanged), model (the "
      "model folder's, for texts too, as user messages), chatml (Qwen 2.5's), a .jinja file, or "
      "none.");
    v(apply_chat_template_kwargs, "apply_chat_template_kwargs", Affects::kResults,
      "Extra variables of the chat template, e.g. {enable_thinking = false}.");
    v(answer_key, "answer_key", Affects::kResults,
      "Field with the ground truth; dots select members of objects. By default also slime's label, "
      "TRL's solution or ground_truth.");
    v(answer_after, "answer_after", Affects::kResults,
      "Text in the answer after which the ground truth begins, e.g. ####; the last one counts.");
    v(reward_fn_key, "reward_fn_key", Affects::kResults,
      "Field with the data source, by which reward.functions=auto selects the reward. By default "
      "also slime's metadata.source_name.");
    v(data_source, "data_source", Affects::kResults,
      "Data source of every row, instead of reward_fn_key.");
    v(response_key, "response_key", Affects::kResults,
      "Field with the response to imitate (tlt sft). By default also TRL's completion, or the "
      "assistant messages of a conversation in messages or conversations.");
    v(loss_weights, "loss_weights", Affects::kResults,
      "Loss weights of tokens in tlt sft, e.g. </think>=3; 1 for other tokens.");
  }

  // InputError: a value is out of range.
  void check() const;

  // InputError: no files are named. Borrows the options.
  SplitFiles files_of(Split split) const;
};

}  // namespace tlt::data
