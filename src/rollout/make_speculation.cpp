// SPDX-License-Identifier: Apache-2.0
#include "rollout/make_speculation.h"

#include <algorithm>

#include "base/check.h"
#include "drafter/eagle/eagle_drafter.h"
#include "drafter/make_draft_network.h"
#include "drafter/ngram/ngram_drafter.h"
#include "drafter/suffix/suffix_drafter.h"
#include "rollout/cost_probe.h"

namespace tlt::rollout {
namespace {

// Null for an EAGLE drafter without a draft model.
std::unique_ptr<drafter::Drafter> make_drafter(
    const std::string& kind, const speculation::SpeculationOptions& options,
    const std::shared_ptr<const drafter::DraftNetwork>& network) {
  if (kind == "suffix")
    return std::make_unique<drafter::SuffixDrafter>(
        drafter::SuffixOptions{.memory_bytes = options.suffix_bytes()});
  if (kind == "ngram") return std::make_unique<drafter::NgramDrafter>(drafter::NgramOptions{});
  TLT_CHECK(kind == "eagle", "no drafter ", kind);
  if (!network) return nullptr;
  drafter::EagleDrafterOptions eagle = options.eagle.drafter;
  eagle.kv_memory_bytes = options.draft_kv_bytes();
  eagle.prompt_memory_bytes = options.prompt_bytes();
  return std::make_unique<drafter::EagleDrafter>(network, eagle);
}

bool names(const speculation::SpeculationOptions& options, const char* kind) {
  return std::ranges::find(options.drafters, kind) != options.drafters.end();
}

struct Drafters {
  std::vector<std::unique_ptr<drafter::Drafter>> all;
  std::vector<std::string> competing;  // as Speculation::Adaptive::kinds
};

// The drafters named in the options, and those that `mixed` consists of: EAGLE and suffix. Without
// a draft model `mixed` is the suffix drafter alone.
Drafters make_drafters(const speculation::SpeculationOptions& options,
                       const std::shared_ptr<const drafter::DraftNetwork>& network) {
  Drafters drafters;
  const auto add = [&](const std::string& kind) {
    auto drafter = make_drafter(kind, options, network);
    if (drafter) drafters.all.push_back(std::move(drafter));
  };
  const bool mixes = names(options, "mixed");
  for (const std::string& kind : options.drafters) {
    if (kind == "mixed") continue;
    const size_t before = drafters.all.size();
    add(kind);
    if (drafters.all.size() > before) drafters.competing.push_back(kind);
  }
  if (!mixes) return drafters;
  for (const char* kind : {"suffix", "eagle"})
    if (!names(options, kind)) add(kind);
  if (drafters.all.size() > 1 || drafters.competing.empty())
    drafters.competing.emplace_back("mixed");
  return drafters;
}

// One strategy of each depth and width: drafting costs the same whatever is verified.
std::vector<drafter::Strategy> shapes(const std::vector<drafter::Strategy>& strategies) {
  std::vector<drafter::Strategy> shapes;
  for (const drafter::Strategy& strategy : strategies)
    if (std::ranges::none_of(shapes, [&](const drafter::Strategy& shape) {
          return shape.depth == strategy.depth && shape.width == strategy.width;
        }))
      shapes.push_back(strategy);
  return shapes;
}

// InputError when a tree of this strategy could never be verified.
void check_fits(const drafter::Strategy& strategy, const TargetModel& target,
                const EngineOptions& engine) {
  TLT_CHECK_INPUT(strategy.verify <= engine.max_batch_tokens, "strategy ", to_string(strategy),
                  " verifies ", strategy.verify, " tokens and a forward pass has at most ",
                  engine.max_batch_tokens,
                  " (rollout.max_num_batched_tokens); give a smaller strategy or raise that");
  const int64_t page_bytes = target.kv_shape().page_bytes();
  const int64_t bytes = ops::pages_for(strategy.depth + 1) * page_bytes;
  if (engine.kv_memory_bytes < page_bytes) return;  // the engine says what it needs at least
  TLT_CHECK_INPUT(bytes <= engine.kv_memory_bytes, "strategy ", to_string(strategy), " needs ",
                  bytes, " bytes of KV cache for one path and kv_memory_bytes is ",
                  engine.kv_memory_bytes, "; give a smaller depth or raise that");
}

}  // namespace

std::string draft_model_folder(const speculation::SpeculationOptions& options) {
  const bool is_wanted = options.enable && (names(options, "eagle") || names(options, "mixed"));
  return is_wanted ? options.eagle.spec_model_path : "";
}

std::shared_ptr<drafter::DraftNetwork> load_draft_network(
    const speculation::SpeculationOptions& options, const model::PolicyModel& model) {
  const std::string folder = draft_model_folder(options);
  return folder.empty() ? nullptr : drafter::make_draft_network({.folder = folder}, model);
}

speculation::CostTable measure_costs(const TargetModel& target,
                                     const drafter::DraftNetwork* network,
                                     const speculation::SpeculationOptions& options,
                                     const EngineOptions& engine) {
  const CostProbe probe = {.max_sequences = engine.max_running,
                           .max_rows = engine.max_batch_tokens};
  std::vector<speculation::DraftCost> drafts;
  if (network) drafts = measure_drafts(*network, shapes(options.eagle.strategies()), probe);
  const size_t measured = drafts.size();
  for (size_t i = 0; i < measured; ++i) {  // the suffix drafter's cost is negligible
    drafts.push_back(drafts[i]);
    drafts.back().kind = "mixed";
  }
  return {measure_forwards(target, probe), drafts};
}

std::unique_ptr<Speculation> make_speculation(const speculation::SpeculationOptions& options,
                                              const TargetModel& target,
                                              const EngineOptions& engine, SpeculationSetup setup) {
  if (!options.enable) return nullptr;
  options.check();
  const int64_t vocabulary = target.model.config().vocabulary;
  Drafters drafters = make_drafters(options, setup.network);
  if (drafters.all.empty()) return nullptr;
  for (const drafter::Strategy& strategy :
       setup.strategy ? std::vector{*setup.strategy} : options.eagle.strategies())
    check_fits(strategy, target, engine);
  std::unique_ptr<Speculation> speculation;
  if (setup.strategy) {
    TLT_CHECK_INPUT(drafters.competing.size() == 1,
                    "a strategy is for one drafter; name one of them");
    speculation =
        drafters.all.size() == 1
            ? std::make_unique<Speculation>(std::move(drafters.all.front()), *setup.strategy,
                                            vocabulary)
            : std::make_unique<Speculation>(std::move(drafters.all), *setup.strategy, vocabulary);
  } else {
    const auto measure = [target, network = setup.network, options, engine] {
      return measure_costs(target, network.get(), options, engine);
    };
    if (!setup.costs && !setup.defers_measuring) setup.costs = measure();
    speculation =
        std::make_unique<Speculation>(std::move(drafters.all),
                                      Speculation::Adaptive{.options = options,
                                                            .kinds = std::move(drafters.competing),
                                                            .costs = std::move(setup.costs),
                                                            .measure_costs = measure,
                                                            .max_rows = engine.max_batch_tokens,
                                                            .seed = setup.seed},
                                      vocabulary);
  }
  if (!options.is_coupled())
    speculation->set_target_only({options.accept_threshold_single, options.accept_threshold_acc});
  return speculation;
}

}  // namespace tlt::rollout
