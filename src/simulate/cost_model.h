// CostModel: the seconds of engine steps, updates and exchanges of one worker, from a roofline of
// device and model or from measured forward passes.
//
//   forward = layers + all-reduces + KV reads + (reading^p + arithmetic^p)^(1/p)
//   reading    = bytes of the weights that the rows reach / bandwidth
//   arithmetic = 2 FLOP x parameters x rows / peak
//
// A worker is `tensor_parallel` devices of one node, which share weights and KV cache evenly.
//
// Threading  constant after construction.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "drafter/strategy.h"
#include "simulate/devices.h"
#include "simulate/model_shapes.h"
#include "speculation/cost_table.h"

namespace tlt::simulate {

class CostModel {
 public:
  struct Setup {
    DeviceSpec device;
    ModelShape model;
    int64_t tensor_parallel = 1;
    CostConstants constants = {};
    // Lines of `tlt bench forward`, instead of the roofline of a forward pass; empty: none.
    std::vector<speculation::ForwardCost> measured = {};
    // The same while no other worker computes, of workers that share a memory; empty: it makes no
    // difference.
    std::vector<speculation::ForwardCost> measured_alone = {};
  };
  explicit CostModel(Setup setup);

  // A forward pass of `rows` token rows of `sequences` sequences, `context` tokens before each.
  // `neighbours`: the share of the other workers that compute at the same time; between none and
  // all, linear.
  double forward(double rows, double sequences, double context, double neighbours = 1) const;
  // Chunks of prompts that go through the model with such a pass: `rows` more rows.
  double prefill(double rows, double neighbours = 1) const;
  // What an engine step with draft tokens takes besides the target's forward pass. `has_model`: the
  // drafter is a draft model, which runs once for each level of the tree.
  double drafting(const drafter::Strategy& strategy, double sequences, bool has_model) const;
  // Forward and backward pass of `tokens` tokens in sequences of this mean length; a forward pass
  // alone takes a third.
  double training(double tokens, double mean_length) const;
  double draft_training(double tokens) const;
  // A checkpoint of policy and, if there is one, draft model: all of it, and what every device
  // copies of it to the memory of its host.
  double checkpoint_bytes(bool has_draft_model) const;
  double checkpoint_copy(bool has_draft_model) const;
  // Sum of the gradients over `workers` workers and the optimizer's pass over its moments.
  double optimizer(int64_t workers) const;
  // An all-gather in which each of `workers` workers ends with `bytes`.
  double exchange(double bytes, int64_t workers) const;
  // Weights into the engine: from one layout in a worker's memory to the other, …
  double weight_sync() const;
  // … or from workers that train to those that roll out, all of which receive at the same time.
  double weight_broadcast() const;

  // KV tokens that fit next to the weights in this share of the memory. InputError: none fit;
  // says how many devices are needed.
  int64_t kv_tokens(double memory_share) const;

  // The product's cost table, as the engine measures it at its start.
  speculation::CostTable table(const std::vector<drafter::Strategy>& strategies,
                               int64_t most_sequences, int64_t most_rows) const;

 private:
  double roofline(double read_parameters, double row_parameters, double rows) const;
  double all_reduces(double count, double rows) const;
  double devices() const { return static_cast<double>(setup_.tensor_parallel); }

  const Setup setup_;
  std::optional<speculation::CostTable> measured_, measured_alone_;
};

// Reads lines of `tlt bench forward`. InputError names the line.
std::vector<speculation::ForwardCost> read_forward_costs(const std::string& path);

}  // namespace tlt::simulate
