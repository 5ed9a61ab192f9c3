// SpeculationOptions: whether and when to speculate, with which drafters and strategies. The names
// are FastRL's where it has the option. The target decides every token, so only the acceptance rule
// affects results.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/options.h"
#include "drafter/eagle/eagle_drafter_options.h"
#include "drafter/strategy.h"

namespace tlt::speculation {

struct EagleOptions {
  std::string spec_model_path;
  std::string tune_algorithm = "ADAPTIVE";
  std::vector<std::string> mab_configs = {"8_4_48", "8_4_32", "8_4_16", "8_4_8"};
  // Not an option: BEG's batch sizes from which on the next smaller number of tokens to verify is
  // used, TLT's; with fewer numbers the first ones.
  std::vector<int64_t> mab_bs_threshold = {1, 2, 5, 21};
  int64_t mab_window = 300;  // not an option: BEG's rewards remembered per strategy, TLT's number
  double mab_epsilon = 0.1;  // not an option: BEG's probability of a random choice

  drafter::EagleDrafterOptions drafter;

  void visit(auto& v) {
    v(spec_model_path, "spec_model_path", Affects::kPlace,
      "Folder of an EAGLE draft model made for the model (SGLang's layout).");
    v(tune_algorithm, "tune_algorithm", Affects::kSpeed,
      "How the strategy of a step is chosen: ADAPTIVE (measured costs, learned acceptance; no "
      "speculation is one more strategy) or BEG (the paper's bandit: fewer tokens to verify for "
      "more sequences, epsilon-greedy; no speculation above bs_threshold sequences).");
    v(mab_configs, "mab_configs", Affects::kSpeed,
      "Strategies to choose from: depth and width of the draft trees, and tokens that the target "
      "verifies, the last accepted one included, as 8_4_48.");
    drafter.visit(v);
  }

  // mab_configs and, if the algorithm is ADAPTIVE, four of its own, without duplicates.
  std::vector<drafter::Strategy> strategies() const;

  // InputError names the option and what is accepted.
  void check() const;
};

// Drafters, and when to use which.
struct SpeculationOptions {
  bool enable = true;
  std::vector<std::string> drafters = {"suffix", "eagle"};
  int64_t bs_threshold = 32;
  std::string accept_rule = "coupled";
  // target_only; flags of tlt generate, not options: below 1 the responses are no longer the
  // model's own and cannot be trained on.
  double accept_threshold_single = 1;  // a draft token at least this probable is accepted
  double accept_threshold_acc = 1;     // divisor of the probability that draft tokens must reach
  int64_t memory_bytes = int64_t{2} << 30;
  EagleOptions eagle;

  void visit(auto& v) {
    v(enable, "enable", Affects::kSpeed, "Speculative decoding of the rollouts.");
    v(drafters, "drafters", Affects::kSpeed,
      "Drafters, of which one is chosen for each step: suffix (suffix tree over this response, its "
      "group and earlier responses to the prompt), ngram (n-gram trie over all responses), eagle "
      "(EAGLE draft model, where there is one), mixed (eagle and suffix in one tree).");
    v(bs_threshold, "bs_threshold", Affects::kSpeed,
      "BEG: largest number of sequences with which to speculate.");
    v(accept_rule, "accept_rule", Affects::kResults,
      "coupled: a draft token is accepted when it is the token that would have been sampled "
      "without speculation; target_only: FastRL's and SGLang's rule, which preserves the "
      "distribution, not the sampled tokens.");
    v(memory_bytes, "memory_bytes", Affects::kSpeed,
      "Memory per worker of what drafters remember: half for the texts of suffix, an eighth each "
      "for the draft model's KV cache and the prompts' hidden states, a quarter for the hidden "
      "states that the draft model is trained on; what was not used for longest is evicted.");
    v.group("eagle", eagle);
  }

  // The parts of memory_bytes.
  int64_t suffix_bytes() const { return memory_bytes / 2; }
  int64_t draft_kv_bytes() const { return memory_bytes / 8; }
  int64_t prompt_bytes() const { return memory_bytes / 8; }
  int64_t training_bytes() const { return memory_bytes / 4; }

  // InputError names the option and what is accepted.
  void check() const;

  bool is_coupled() const { return accept_rule == "coupled"; }
};

}  // namespace tlt::speculation
