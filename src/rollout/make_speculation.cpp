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

// A tree that could never be verified is a mistake, not a slow choice.
void check_fits(const spec::Strategy& strategy, const model::PolicyModel& model,
                const EngineOptions& engine) {
  TLT_CHECK_INPUT(strategy.verify <= engine.max_batch_tokens, "strategy ", to_string(strategy),
                  " verifies ", strategy.verify, " tokens and a forward pass has at most ",
                  engine.max_batch_tokens,
                  " (rollout.max_num_batched_tokens); give a smaller strategy or raise that");
  const int64_t bytes = pages_for(strategy.depth + 1) * model.kv_shape().page_bytes();
  TLT_CHECK_INPUT(bytes <= engine.kv_memory_bytes, "strategy ", to_string(strategy), " needs ",
                  bytes, " bytes of keys and values for one path and kv_memory_bytes is ",
                  engine.kv_memory_bytes, "; give a smaller depth or raise that");
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
  for (const spec::Strategy& strategy :
       setup.strategy ? std::vector{*setup.strategy} : options.eagle.strategies())
    check_fits(strategy, model, engine);
  std::unique_ptr<Speculation> speculation;
  if (setup.strategy) {
    TLT_CHECK_INPUT(drafters.size() == 1, "a strategy is for one drafter; name one of them");
    speculation =
        std::make_unique<Speculation>(std::move(drafters.front()), *setup.strategy, vocabulary);
  } else {
    speculation = std::make_unique<Speculation>(
        std::move(drafters),
        Speculation::Adaptive{
            .options = options,
            .costs = setup.costs ? std::move(*setup.costs) : measure_costs(model, engine),
            .max_rows = engine.max_batch_tokens,
            .seed = setup.seed},
        vocabulary);
  }
  if (!options.is_coupled())
    speculation->set_target_only({options.accept_threshold_single, options.accept_threshold_acc});
  return speculation;
}

}  // namespace tlt::rollout
