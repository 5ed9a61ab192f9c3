// tlt bench forward: time of a forward pass by its number of token rows, the cost model of
// speculative decoding.
//
// The token rows of a pass are one draft tree after a common context, trees of several sequences,
// or one row per sequence as in non-speculative decoding. The LM head is measured separately. All
// sizes are interleaved, so that a transient slowdown of the machine affects all of them.
//
// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/clock.h"
#include "base/statistics.h"
#include "bench/bench.h"
#include "bench/scenarios.h"
#include "model/activations.h"

namespace tlt::bench {
namespace {

constexpr int64_t kMostRows = 4096;

struct ForwardFlags {
  BenchModel model;
  std::vector<int64_t> rows = {1, 2, 4, 8, 16, 32};
  std::vector<std::string> kinds = {"tree", "sequences"};
  std::vector<int64_t> tree_rows = {4};
  int64_t context = 256, repeat = 200;

  void add_to(CLI::App& app) {
    model.add_to(app);
    app.add_option("--rows", rows, "Token rows of a pass, as 1,2,4,8,16,32.")
        ->delimiter(',')
        ->default_str("1,2,4,8,16,32");
    app.add_option("--as", kinds,
                   "The token rows: tree (one draft tree), trees (of --tree-rows each), "
                   "sequences (one row each).")
        ->delimiter(',')
        ->default_str("tree,sequences");
    app.add_option("--tree-rows", tree_rows,
                   "With --as trees: token rows of each tree, as 2,4; --rows that are no multiple "
                   "are left out.")
        ->delimiter(',')
        ->default_str("4");
    app.add_option("--context", context, "Tokens of each sequence before the token rows.");
    app.add_option("--repeat", repeat, "Passes of each size.");
  }

  void check(const model::ModelConfig& config) const {
    for (const int64_t count : rows)
      TLT_CHECK_INPUT(count >= 1 && count <= kMostRows, "--rows has ", count,
                      "; give numbers from 1 to ", kMostRows);
    for (const std::string& kind : kinds)
      TLT_CHECK_INPUT(kind == "tree" || kind == "trees" || kind == "sequences", "--as has '", kind,
                      "'; give tree, trees or sequences");
    TLT_CHECK_INPUT(context >= 1 && repeat >= 1, "--context is ", context, " and --repeat ", repeat,
                    "; give at least 1");
    for (const int64_t of_each : tree_rows) {
      TLT_CHECK_INPUT(of_each >= 1, "--tree-rows has ", of_each, "; give at least 1");
      TLT_CHECK_INPUT(!has("trees") || trees(of_each) > 0, "none of --rows is a multiple of ",
                      "--tree-rows=", of_each, "; give multiples, or another --tree-rows");
    }
    TLT_CHECK_INPUT(!rows.empty() && context + most_rows() <= config.max_positions, "--context ",
                    context, " and --rows need ", context + (rows.empty() ? 0 : most_rows()),
                    " positions and the model has ", config.max_positions, "; give fewer");
  }

  int64_t most_rows() const { return *std::max_element(rows.begin(), rows.end()); }
  bool has(const char* kind) const { return std::ranges::find(kinds, kind) != kinds.end(); }
  // As many trees of this size as a pass has at most; 0: none of --rows is a multiple of it.
  int64_t trees(int64_t of_each) const {
    int64_t most = 0;
    for (const int64_t count : rows)
      if (count % of_each == 0) most = std::max(most, count / of_each);
    return most;
  }
  int64_t sequences() const {
    if (has("sequences")) return most_rows();
    int64_t most = 1;
    if (has("trees"))
      for (const int64_t of_each : tree_rows) most = std::max(most, trees(of_each));
    return most;
  }
};

// One kind and number of token rows, and the times of its passes.
struct Case {
  std::string kind;
  int64_t tree_rows = 1;  // of each sequence
  ops::Batch batch;
  at::Tensor logits;  // [rows, V] f32
  std::vector<double> forward_seconds = {}, head_seconds = {};
};

// A tree of width 2: a chain of nodes, each with a leaf as sibling.
void add_tree(ops::Batch& batch, std::span<const int32_t> tokens, int64_t context,
              const ops::PageId* pages) {
  batch.add_tree(tokens[0], static_cast<int32_t>(context), pages);
  for (size_t i = 1; i < tokens.size(); ++i)
    batch.add_node(tokens[i], static_cast<int32_t>(i + 1) / 2);
}

class ForwardBench {
 public:
  ForwardBench(const ForwardFlags& flags, const model::PolicyModel& policy)
      : flags_(flags),
        policy_(policy),
        sequences_(flags.sequences()),
        pages_of_one_((flags.context + flags.most_rows()) / ops::kPageSlots + 1),
        pages_(static_cast<size_t>(sequences_ * pages_of_one_)),
        cache_(policy.device(), policy.kv_shape(), sequences_ * pages_of_one_),
        activations_(policy, flags.most_rows()) {
    std::iota(pages_.begin(), pages_.end(), 0);
    for (int64_t i = 0; i < sequences_; ++i) read_context(i);
    for (const std::string& kind : flags.kinds) {
      if (kind == "sequences") add_cases(kind, 1);
      if (kind == "tree")
        for (const int64_t rows : flags.rows) add_case(kind, rows, rows);
      if (kind == "trees")
        for (const int64_t of_each : flags.tree_rows) add_cases(kind, of_each);
    }
  }

  void run() {
    constexpr int64_t kTurn = 10;  // consecutive passes of one size
    for (Case& which : cases_) pass(which);
    for (Case& which : cases_) which.forward_seconds.clear(), which.head_seconds.clear();
    for (int64_t done = 0; done < flags_.repeat; done += kTurn)
      for (Case& which : cases_)
        for (int64_t i = done; i < std::min(done + kTurn, flags_.repeat); ++i) pass(which);
  }

  std::span<const Case> cases() const { return cases_; }

 private:
  const ops::PageId* pages_of(int64_t sequence) const {
    return pages_.data() + sequence * pages_of_one_;
  }

  void read_context(int64_t sequence) {
    const auto tokens = random_prompt(policy_, static_cast<uint32_t>(sequence), flags_.context);
    ops::Batch batch;
    batch.add(tokens.data(), static_cast<int32_t>(tokens.size()), 0, pages_of(sequence));
    model::Activations activations(policy_, flags_.context);
    policy_.forward(batch, cache_, activations);
  }

  void add_cases(const std::string& kind, int64_t of_each) {
    for (const int64_t rows : flags_.rows)
      if (rows % of_each == 0) add_case(kind, rows, of_each);
  }

  void add_case(const std::string& kind, int64_t rows, int64_t of_each) {
    const auto tokens = random_prompt(policy_, static_cast<uint32_t>(kMostRows), rows);
    Case which{.kind = kind,
               .tree_rows = of_each,
               .batch = {},
               .logits = policy_.device().empty({rows, policy_.config().vocabulary}, at::kFloat)};
    if (kind == "sequences") {
      for (int64_t i = 0; i < rows; ++i)
        which.batch.add(&tokens[static_cast<size_t>(i)], 1, static_cast<int32_t>(flags_.context),
                        pages_of(i));
    } else {
      for (int64_t first = 0; first < rows; first += of_each)
        add_tree(
            which.batch,
            std::span(tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(of_each)),
            flags_.context, pages_of(first / of_each));
    }
    cases_.push_back(std::move(which));
  }

  void pass(Case& which) {
    Stopwatch watch;
    const at::Tensor& hidden = policy_.forward(which.batch, cache_, activations_);
    policy_.device().synchronize();
    which.forward_seconds.push_back(watch.restart());
    policy_.logits(hidden, which.logits);
    policy_.device().synchronize();
    which.head_seconds.push_back(watch.seconds());
  }

  const ForwardFlags& flags_;
  const model::PolicyModel& policy_;
  int64_t sequences_, pages_of_one_;
  std::vector<ops::PageId> pages_;
  kv::KvCache cache_;
  model::Activations activations_;
  std::vector<Case> cases_;
};

void print_case(const ForwardFlags& flags, const model::PolicyModel& policy, const Case& which) {
  nlohmann::ordered_json report = begin_report("forward", flags.model, policy);
  report["as"] = which.kind;
  report["rows"] = which.batch.rows();
  if (which.kind == "trees") report["tree_rows"] = which.tree_rows;
  report["context"] = flags.context;
  report["repeat"] = flags.repeat;
  report["forward_seconds_p50"] = median(which.forward_seconds);
  report["forward_seconds_mean"] = mean(which.forward_seconds);
  report["forward_seconds_p10"] = percentile(which.forward_seconds, 0.1);
  report["head_seconds_p50"] = median(which.head_seconds);
  report["head_seconds_mean"] = mean(which.head_seconds);
  report["head_seconds_p10"] = percentile(which.head_seconds, 0.1);
  print_report(std::move(report));
}

}  // namespace

int run_forward(const cli::Arguments& arguments) {
  ForwardFlags flags;
  CLI::App app(
      "Seconds of a forward pass by its number of token rows, as draft trees or as sequences.");
  flags.add_to(app);
  if (!cli::try_parse(app, arguments)) return 0;
  const auto policy = flags.model.load();
  flags.check(policy->config());
  ForwardBench bench(flags, *policy);
  bench.run();
  for (const Case& which : bench.cases()) print_case(flags, *policy, which);
  return 0;
}

}  // namespace tlt::bench
