// SPDX-License-Identifier: Apache-2.0
#include "speculation/speculation_options.h"

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string_view>

#include "base/check.h"

namespace tlt::speculation {
namespace {

// Further strategies of ADAPTIVE: chains for many sequences, a large tree for a single one.
const std::vector<std::string> kAdaptiveStrategies = {"1_1_2", "3_1_4", "6_1_7", "10_8_64"};

void check_choice(std::string_view name, const std::string& value,
                  std::initializer_list<std::string_view> known) {
  std::string list;
  for (const std::string_view choice : known) list.append(list.empty() ? "" : ", ").append(choice);
  TLT_CHECK_INPUT(std::ranges::find(known, value) != known.end(), "speculative.", name, " is \"",
                  value, "\"; give one of ", list);
}

// Values that earlier versions had, each with what to give instead.
void check_removed(std::string_view name, const std::string& value,
                   std::initializer_list<std::pair<std::string_view, std::string_view>> removed) {
  for (const auto& [old, instead] : removed)
    TLT_CHECK_INPUT(value != old, "speculative.", name, " is \"", value,
                    "\", which was removed; give ", instead);
}

void add_strategies(const std::vector<std::string>& names,
                    std::vector<drafter::Strategy>& strategies) {
  for (const std::string& name : names) {
    const drafter::Strategy strategy = drafter::parse_strategy(name);
    TLT_CHECK_INPUT(!strategy.is_off(),
                    "speculative.eagle.mab_configs has \"off\", which is always included; give "
                    "strategies like 8_4_32");
    if (std::ranges::find(strategies, strategy) == strategies.end()) strategies.push_back(strategy);
  }
}

}  // namespace

std::vector<drafter::Strategy> EagleOptions::strategies() const {
  std::vector<drafter::Strategy> strategies;
  add_strategies(mab_configs, strategies);
  if (tune_algorithm == "ADAPTIVE") add_strategies(kAdaptiveStrategies, strategies);
  return strategies;
}

// The conditions are false for NaN.
void EagleOptions::check() const {
  TLT_CHECK_INPUT(!mab_configs.empty(),
                  "speculative.eagle.mab_configs is empty; name strategies like 8_4_48, or set "
                  "speculative.enable=false");
  check_removed("eagle.tune_algorithm", tune_algorithm,
                {{"EG", "ADAPTIVE, or BEG, the paper's epsilon-greedy bandit"},
                 {"UCB1", "ADAPTIVE, or BEG, the paper's bandit"},
                 {"PREDEFINED", "BEG, the paper's bandit"}});
  check_choice("eagle.tune_algorithm", tune_algorithm, {"ADAPTIVE", "BEG"});
  drafter.check();
  std::set<int64_t> sizes;
  for (const drafter::Strategy& strategy : strategies()) sizes.insert(strategy.verify);
  TLT_CHECK_INPUT(tune_algorithm != "BEG" || sizes.size() <= mab_bs_threshold.size(),
                  "speculative.eagle.mab_configs has strategies with ", sizes.size(),
                  " different numbers of tokens to verify, and BEG has ranges of batch sizes for ",
                  mab_bs_threshold.size(), "; give fewer, or tune_algorithm=ADAPTIVE");
}

void SpeculationOptions::check() const {
  TLT_CHECK_INPUT(!drafters.empty(),
                  "speculative.drafters is empty; name suffix, ngram, eagle or mixed, or set "
                  "speculative.enable=false");
  for (size_t i = 0; i < drafters.size(); ++i) {
    check_choice("drafters", drafters[i], {"suffix", "ngram", "eagle", "mixed"});
    TLT_CHECK_INPUT(std::ranges::count(drafters, drafters[i]) == 1, "speculative.drafters has ",
                    drafters[i], " twice; name it once");
  }
  TLT_CHECK_INPUT(bs_threshold >= 0, "speculative.bs_threshold is ", bs_threshold,
                  "; give a number of sequences, 0 for no speculation");
  check_choice("accept_rule", accept_rule, {"coupled", "target_only"});
  for (const auto& [name, value] :
       {std::pair("single", accept_threshold_single), std::pair("acc", accept_threshold_acc)}) {
    TLT_CHECK_INPUT(value > 0 && value <= 1, "speculative.accept_threshold_", name, " is ", value,
                    "; give a number above 0, at most 1");
    TLT_CHECK_INPUT(value == 1 || !is_coupled(), "speculative.accept_threshold_", name, " is ",
                    value, ", which only speculative.accept_rule=target_only uses");
  }
  TLT_CHECK_INPUT(memory_bytes >= 4, "speculative.memory_bytes is ", memory_bytes,
                  "; give a number of bytes such as 2147483648");
  eagle.check();
}

}  // namespace tlt::speculation
