// GraphCache: the graphs of the engine's forward passes on a device that has them, one set for each
// padded number of token rows.
//
// A graph depends on the number of rows, not on what the rows are: the same one serves decoding,
// verification and prompts. There are at most 67 numbers (ops/padded_rows.h), where graphs for each
// batch size and strategy would be hundreds. The first pass of a number of rows is launched
// directly, so that a size that occurs once costs nothing; the second one is captured. Graphs share
// the device's memory pool (runtime/accelerator.h) and write into the engine's activations.
//
// Owns       the graphs.
// Borrows    the accelerator of the device.
// Not here   attention, whose launches depend on the sequences and their lengths: a set has a graph
//            for each stretch between two attentions (model/row_graphs.h).
// Threading  engine thread only.
//
//   GraphCache graphs(model.device());
//   activations.use(model, graphs);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "model/row_graphs.h"
#include "runtime/accelerator.h"

namespace tlt::rollout {

struct GraphStats {
  int64_t captures = 0;  // sets captured since construction
  int64_t replays = 0;   // passes that replayed a set
  int64_t direct = 0;    // passes launched directly
  int64_t dropped = 0;   // sets that made room for others
  int64_t sets = 0;      // current
  int64_t rows = 0;      // current: of all sets
  int64_t bytes = 0;     // of the device's memory that captures took, since construction
};

class GraphCache final : public model::RowGraphs {
 public:
  // A run has few numbers of rows at a time: its batch shrinks over hundreds of steps.
  static constexpr int64_t kMostSets = 32;

  // Keeps the `most` sets used last. REQUIRES: the device is not the CPU.
  explicit GraphCache(const Device& device, int64_t most = kMostSets)
      : GraphCache(runtime::accelerator(device), device.torch(), most) {}
  GraphCache(runtime::Accelerator& accelerator, at::Device device, int64_t most);

  void launch(int64_t rows, int64_t part, const std::function<void()>& work) override;
  void clear() override;

  GraphStats stats() const;

 private:
  struct Set {
    std::vector<std::unique_ptr<runtime::Graph>> parts;
    bool is_direct = true;  // there was one pass so far
    int64_t used = 0;       // passes_ at its last pass
  };

  std::unique_ptr<runtime::Graph> capture(const std::function<void()>& work);
  // Chooses how the pass that begins now is launched.
  void begin(int64_t rows);
  void drop_oldest();

  runtime::Accelerator& accelerator_;
  const at::Device device_;
  const int64_t most_;
  std::map<int64_t, Set> sets_;  // by padded rows
  int64_t passes_ = 0;
  GraphStats stats_;
};

}  // namespace tlt::rollout
