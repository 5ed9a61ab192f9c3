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

std::vector<Way> make_ways() {
  const Way full = {.name = "tlt",
                    .help =
                        "suffix drafts and a draft model, tuned for each engine step; idle "
                        "workers train it, and unfinished sequences migrate",
                    .drafters = {"suffix", "eagle"},
                    .trains = true,
                    .migrates = true};
  Way early = full;
  early.name = "tlt-early";
  early.help = "tlt, and idle workers compute gradients of finished groups";
  early.early_gradients = true;
  return {{.name = "plain", .help = "no speculation"},
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
          early};
}

}  // namespace

bool Way::has_draft_model() const { return std::ranges::find(drafters, "eagle") != drafters.end(); }

const std::vector<Way>& ways() {
  static const std::vector<Way> all = make_ways();
  return all;
}

const Way& find_way(const std::string& name) {
  const auto found = std::ranges::find(ways(), name, &Way::name);
  std::vector<std::string> known;
  for (const Way& way : ways()) known.push_back(way.name);
  TLT_CHECK_INPUT(found != ways().end(), unknown_name("way", name, known));
  return *found;
}

}  // namespace tlt::simulate
