// SPDX-License-Identifier: Apache-2.0
#include "simulate/ways.h"

#include <algorithm>

#include "base/check.h"
#include "simulate/devices.h"

namespace tlt::simulate {
namespace {

// The bandit of the paper, up to 32 sequences; the arms are FastRL's.
speculation::SpeculationOptions paper_tuning() {
  speculation::SpeculationOptions options;
  options.eagle.tune_algorithm = "BEG";
  return options;
}

Way with_early_gradients(Way way) {
  way.help = way.name + ", and idle workers compute gradients of finished groups";
  way.name += "-early";
  way.early_gradients = true;
  return way;
}

std::vector<Way> make_ways() {
  const Way plain = {.name = "plain", .help = "no speculation"};
  const Way full = {.name = "tlt",
                    .help =
                        "suffix drafts and a draft model, tuned for each engine step; idle "
                        "workers train it, and unfinished sequences migrate",
                    .drafters = {"suffix", "eagle"},
                    .trains = true,
                    .migrates = true};
  const Way model_free = {.name = "model-free",
                          .help = "suffix drafts, tuned for each engine step",
                          .drafters = {"suffix"}};
  return {plain,
          with_early_gradients(plain),
          model_free,
          with_early_gradients(model_free),
          {.name = "tlt-base",
           .help = "suffix drafts when at most 32 sequences are left (the paper's TLT-Base)",
           .drafters = {"suffix"},
           .tuning = paper_tuning()},
          {.name = "static",
           .help = "a draft model that is never trained, one strategy, always",
           .drafters = {"eagle"},
           .fixed = drafter::Strategy{8, 4, 48}},
          {.name = "tlt-published",
           .help = "a draft model when at most 32 sequences are left, the paper's bandit; idle "
                   "workers train it every 10 steps",
           .drafters = {"eagle"},
           .tuning = paper_tuning(),
           .trains = true,
           .trains_by_interval = true},
          full,
          with_early_gradients(full)};
}

std::vector<std::string> names_of(const auto& all) {
  std::vector<std::string> names;
  for (const auto& it : all) names.push_back(it.name);
  return names;
}

}  // namespace

const std::vector<Way>& ways() {
  static const std::vector<Way> all = make_ways();
  return all;
}

const std::vector<WhatIf>& what_ifs() {
  static const std::vector<WhatIf> all = {
      {"partial", &Way::is_partial,
       "a step begins over_sampling times its groups and ends when enough are complete; the others "
       "continue in the next one"},
      {"one-step-off", &Way::is_one_step_off,
       "rollout_workers only roll out, with the policy of the step before, while the others "
       "train"}};
  return all;
}

Way find_way(const std::string& name) {
  const size_t plus = std::min(name.find('+'), name.size());
  const std::string base = name.substr(0, plus);
  const auto found = std::ranges::find(ways(), base, &Way::name);
  TLT_CHECK_INPUT(found != ways().end(), unknown_name("way", base, names_of(ways())));
  Way way = *found;
  way.name = name;
  for (size_t begin = plus; begin < name.size();) {
    const size_t end = std::min(name.find('+', begin + 1), name.size());
    const std::string what = name.substr(begin + 1, end - begin - 1);
    begin = end;
    const auto added = std::ranges::find(what_ifs(), what, &WhatIf::name);
    TLT_CHECK_INPUT(added != what_ifs().end(), unknown_name("what-if", what, names_of(what_ifs())));
    way.*(added->flag) = true;
  }
  TLT_CHECK_INPUT(!way.early_gradients || !way.is_one_step_off, name,
                  ": workers that roll out one step off train nothing; give tlt+one-step-off");
  return way;
}

}  // namespace tlt::simulate
