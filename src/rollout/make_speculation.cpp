// SPDX-License-Identifier: Apache-2.0
#include "rollout/make_speculation.h"

#include "base/check.h"
#include "rollout/cost_probe.h"
#include "spec/ngram_drafter.h"
#include "spec/suffix_drafter.h"

namespace tlt::rollout {
namespace {

std::unique_ptr<spec::Drafter> make_drafter(const std::string& kind,
                                            const spec::SpeculationOptions& options) {
  if (kind == "suffix") return std::make_unique<spec::SuffixDrafter>(options.suffix);
  if (kind == "ngram") return std::make_unique<spec::NgramDrafter>(options.ngram);
  throw InputError("there is no drafter '" + kind + "'; use suffix or ngram");
}

}  // namespace

spec::CostTable measure_costs(const model::PolicyModel& model, const EngineOptions& engine) {
  return {measure_forwards(
              model, {.max_sequences = engine.max_running, .max_rows = engine.max_batch_tokens}),
          {}};
}

std::unique_ptr<Speculation> make_speculation(const spec::SpeculationOptions& options,
                                              const model::PolicyModel& model,
                                              const EngineOptions& engine, SpeculationSetup setup) {
  if (!options.enable) return nullptr;
  options.check();
  const int64_t vocabulary = model.config().vocabulary;
  std::vector<std::unique_ptr<spec::Drafter>> drafters;
  for (const std::string& kind : options.drafters) drafters.push_back(make_drafter(kind, options));
  if (setup.strategy) {
    TLT_CHECK_INPUT(drafters.size() == 1, "a strategy is for one drafter; name one of them");
    return std::make_unique<Speculation>(std::move(drafters.front()), *setup.strategy, vocabulary);
  }
  return std::make_unique<Speculation>(
      std::move(drafters),
      Speculation::Adaptive{
          .options = options,
          .costs = setup.costs ? std::move(*setup.costs) : measure_costs(model, engine),
          .max_rows = engine.max_batch_tokens,
          .seed = setup.seed},
      vocabulary);
}

}  // namespace tlt::rollout
