// SPDX-License-Identifier: Apache-2.0
#include "rollout/cost_probe.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "drafter/eagle/eagle_drafter.h"
#include "rollout/sequence.h"

namespace tlt::rollout {
namespace {

constexpr int32_t kContext = 128;       // tokens before the trees …
constexpr int32_t kLongContext = 1024;  // … and in long contexts
constexpr int32_t kPathNodes = 8;       // nodes per branch of a tree
// Token rows of a pass. Kernels work in blocks of 4 or 6 rows, and a row more than whole blocks costs
// a large part of a block.
constexpr int64_t kRows[] = {2,  4,  6,   7,   8,   12,  13,  18,  24,   32,   48,
                             64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096};
constexpr int64_t kMostTreeRows = 64;
// Passes after long contexts are slow: fewer sizes suffice to tell the cost of context.
constexpr int64_t kMostLongRows = 256, kMostLongTreeRows = 16, kLongStep = 4;
// KV cache of the contexts; above this size sequences share pages. No processor cache is as large.
constexpr int64_t kMostKvBytes = int64_t{256} << 20;
constexpr int64_t kProbeLogitsBytes = int64_t{64} << 20;
constexpr int kLeastRounds = 3, kMostRounds = 12;
constexpr int kMostInARow = 6;         // repetitions of a task per round …
constexpr double kRowSeconds = 0.004;  // … until this much time has passed
constexpr double kWarmShare = 0.25;  // of the seconds: no further batch size is started after them
constexpr size_t kMostProposals = 4096;  // per sequence

class ForwardProbe {
 public:
  ForwardProbe(const TargetModel& target, const CostProbe& probe)
      : model_(target.model),
        longest_(kLongContext + kPathNodes < model_.config().max_positions ? kLongContext
                                                                           : kContext),
        shared_pages_(shared_pages(target.kv_shape().page_bytes(), probe.max_sequences)),
        own_pages_(ops::pages_for(kPathNodes + 1)),
        runner_(
            target.make_runner(shared_pages_ + probe.max_sequences * own_pages_, probe.max_rows)),
        is_written_(static_cast<size_t>(runner_->pages())) {
    runner_->use_graphs();  // as the engine's passes
    const int64_t vocabulary = model_.config().vocabulary;
    const int64_t rows = kProbeLogitsBytes / (vocabulary * static_cast<int64_t>(sizeof(float)));
    logits_ = model_.device().empty({std::clamp<int64_t>(rows, 1, probe.max_rows), vocabulary},
                                    at::kFloat);
  }

  bool has_long_contexts() const { return longest_ > kContext; }

  double measure(const speculation::ForwardCost& pass) {
    fill(pass.batch, pass.rows, static_cast<int32_t>(pass.context));
    model_.device().synchronize();
    const Stopwatch watch;
    run();
    model_.device().synchronize();
    return watch.seconds();
  }

 private:
  int64_t shared_pages(int64_t page_bytes, int64_t sequences) const {
    const int64_t of_context = longest_ / ops::kPageSlots;
    return std::min(std::max(of_context, kMostKvBytes / page_bytes), sequences * of_context);
  }

  // Contexts are only read and may be shared; trees are written to pages of their own.
  void choose_pages(int64_t sequences, int64_t context_pages) {
    pages_.clear();
    int64_t context = 0, own = shared_pages_;
    for (int64_t i = 0; i < sequences; ++i) {
      for (int64_t page = 0; page < context_pages; ++page, context = (context + 1) % shared_pages_)
        pages_.push_back(static_cast<ops::PageId>(context));
      for (int64_t page = 0; page < own_pages_; ++page)
        pages_.push_back(static_cast<ops::PageId>(own++));
    }
    // The kernel backs memory that was never written by one page of zeros, which any processor cache
    // holds.
    std::vector<ops::PageId> unwritten;
    for (const ops::PageId page : pages_)
      if (std::exchange(is_written_[static_cast<size_t>(page)], uint8_t{1}) == 0)
        unwritten.push_back(page);
    if (!unwritten.empty()) runner_->clear_pages(unwritten);
  }

  // Every tree has one branch per kPathNodes of its nodes; the first ones have a row more if the
  // rows do not divide evenly.
  void fill(int64_t sequences, int64_t rows, int32_t context) {
    const int64_t context_pages = context / ops::kPageSlots;
    choose_pages(sequences, context_pages);
    batch_.clear();
    for (int64_t i = 0; i < sequences; ++i) {
      const ops::PageId* pages = &pages_[static_cast<size_t>(i * (context_pages + own_pages_))];
      const int64_t tree_rows = rows / sequences + (i < rows % sequences ? 1 : 0);
      const int32_t token = 0;
      if (tree_rows == 1) {
        batch_.add(&token, 1, context, pages);
        continue;
      }
      batch_.add_tree(token, context, pages);
      for (int32_t node = 0; node + 1 < tree_rows; ++node)
        batch_.add_node(token, 1 + node % kPathNodes);
    }
  }

  void run() {
    const at::Tensor& hidden = runner_->forward(batch_);
    for (int64_t first = 0; first < hidden.size(0); first += logits_.size(0)) {
      const int64_t rows = std::min(logits_.size(0), hidden.size(0) - first);
      at::Tensor logits = logits_.narrow(0, 0, rows);
      runner_->logits(hidden.narrow(0, first, rows), logits);
    }
  }

  const model::PolicyModel& model_;
  const int32_t longest_;
  const int64_t shared_pages_, own_pages_;
  const std::unique_ptr<ModelRunner> runner_;
  std::vector<uint8_t> is_written_;  // by page
  std::vector<ops::PageId> pages_;   // of the sequences of a pass
  at::Tensor logits_;                // [R, V]
  ops::Batch batch_;
};

}  // namespace

std::vector<double> measure_interleaved(size_t tasks, double seconds,
                                        const std::function<double(size_t)>& run) {
  std::vector<double> least(tasks, std::numeric_limits<double>::infinity());
  double spent = 0;
  for (int round = 0; round < kMostRounds && (round < kLeastRounds || spent < seconds); ++round)
    for (size_t task = 0; task < tasks; ++task) {
      double in_round = 0;
      for (int i = 0; i < kMostInARow && in_round < kRowSeconds; ++i) {
        const double took = run(task);
        least[task] = std::min(least[task], took);
        in_round += took;
      }
      spent += in_round;
    }
  return least;
}

void make_monotone(std::span<speculation::ForwardCost> costs) {
  for (size_t i = costs.size(); i-- > 1;)
    if (costs[i - 1].batch == costs[i].batch && costs[i - 1].context == costs[i].context)
      costs[i - 1].seconds = std::min(costs[i - 1].seconds, costs[i].seconds);
}

std::vector<speculation::ForwardCost> measure_forwards(const TargetModel& target,
                                                       const CostProbe& probe) {
  ForwardProbe prober(target, probe);
  std::vector<speculation::ForwardCost> costs;
  const auto run = [&](size_t i) { return prober.measure(costs[i]); };
  const auto add = [&](int64_t sequences, int64_t rows, int64_t context) {
    costs.push_back({sequences, rows, 0, context});
    run(costs.size() - 1);  // warm-up pass
  };
  const Stopwatch watch;
  for (int64_t sequences = 1; sequences <= probe.max_sequences; sequences *= 2) {
    if (!costs.empty() && watch.seconds() > kWarmShare * probe.seconds) break;
    add(sequences, sequences, kContext);
    for (const int64_t rows : kRows)
      if (rows > sequences && rows <= std::min(kMostTreeRows * sequences, probe.max_rows))
        add(sequences, rows, kContext);
  }
  const Stopwatch long_watch;
  const int64_t most_rows = std::min(probe.max_rows, kMostLongRows);
  for (int64_t sequences = 1; prober.has_long_contexts() && sequences <= probe.max_sequences;
       sequences *= kLongStep) {
    if (sequences > 1 && long_watch.seconds() > kWarmShare * probe.seconds) break;
    for (int64_t rows = sequences; rows <= kMostLongTreeRows * sequences; rows *= kLongStep)
      if (rows == sequences || rows <= most_rows) add(sequences, rows, kLongContext);
  }
  const std::vector<double> seconds =
      measure_interleaved(costs.size(), probe.seconds - watch.seconds(), run);
  for (size_t i = 0; i < costs.size(); ++i) costs[i].seconds = seconds[i];
  make_monotone(costs);
  return costs;
}

std::vector<speculation::DraftCost> measure_drafts(const drafter::DraftNetwork& network,
                                                   std::span<const drafter::Strategy> strategies,
                                                   const CostProbe& probe) {
  drafter::EagleDrafter drafter(network, {});
  const at::Tensor states =
      network.device().zeros({kContext, network.feature_columns()}, network.type());
  const std::vector<int32_t> prompt(kContext, 0), row = {0};
  const std::vector<int32_t> tokens(kMostProposals, 0);  // of every response
  std::vector<double> uniforms;
  for (const drafter::Strategy& strategy : strategies)
    uniforms.resize(std::max(uniforms.size(), static_cast<size_t>(strategy.depth)), 0.5);
  std::vector<drafter::DraftTree> trees(static_cast<size_t>(probe.max_sequences));
  std::vector<drafter::DraftRequest> requests;
  std::vector<speculation::DraftCost> costs;
  // Proposes after one more token of each of the first sequences.
  const auto run = [&](size_t i) {
    const auto batch = std::span(requests).first(static_cast<size_t>(costs[i].batch));
    for (drafter::DraftRequest& request : batch) {
      request.strategy = costs[i].strategy;
      request.tree->clear();
      drafter.read_states(request.id, std::ssize(request.response), states, row);
      request.response = std::span(tokens).first(request.response.size() + 1);
    }
    network.device().synchronize();
    const Stopwatch proposal;
    drafter.propose(batch);
    network.device().synchronize();
    return proposal.seconds();
  };
  const Stopwatch watch;
  for (int64_t sequences = 1; sequences <= probe.max_sequences; sequences *= 2) {
    if (!costs.empty() && watch.seconds() > kWarmShare * probe.seconds) break;
    while (std::ssize(requests) < sequences) {
      const drafter::SequenceId id{static_cast<uint32_t>(requests.size()), 0};
      drafter.read_prompt(id.prompt_id, 0, states, prompt);
      requests.push_back({.id = id,
                          .prompt = prompt,
                          .response = {},
                          .strategy = {},
                          .tree = &trees[requests.size()],
                          .draws = {uniforms, {}}});
    }
    for (const drafter::Strategy& strategy : strategies) {
      costs.push_back({"eagle", strategy, sequences, 0});
      run(costs.size() - 1);  // warm-up pass
    }
  }
  const std::vector<double> seconds =
      measure_interleaved(costs.size(), probe.seconds - watch.seconds(), run);
  for (size_t i = 0; i < costs.size(); ++i) costs[i].seconds = seconds[i];
  return costs;
}

}  // namespace tlt::rollout
