// A tiny target with an EAGLE-3 draft model, and samples for it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <vector>

#include "drafter/eagle/draft_eagle3.h"
#include "drafter_training/draft_sample.h"
#include "model/tape.h"
#include "tests/support/tiny_model.h"

namespace tlt::drafter_training {

// A target with three layers, and a draft model whose LM head has most of its tokens.
struct Eagle3Drafter {
  explicit Eagle3Drafter(int threads = 1)
      : target(tests::make_tiny_model(config(), at::kFloat, Device::cpu(threads))),
        network(*target, drafter::Eagle3Config::make(target->config(), /*head_rows=*/90)) {
    network.initialize(/*seed=*/3);
  }
  static model::ModelConfig config() {
    model::ModelConfig config = tests::tiny_config(model::Family::kQwen3);
    config.layers = 3;
    return config;
  }
  // Greedy responses of the target, with auxiliary and final hidden states.
  std::vector<DraftSample> samples(uint32_t count, int64_t steps) const {
    std::vector<DraftSample> samples;
    for (uint32_t i = 0; i < count; ++i) {
      std::vector<int32_t> tokens = {static_cast<int32_t>(10 + i), static_cast<int32_t>(3 + 7 * i)};
      const int64_t length = steps + 2 * i;
      at::Tensor states;
      for (int64_t step = 0; step < length; ++step) {
        model::Tape tape(*target, false);
        tape.add_sequence(tokens.data(), static_cast<int32_t>(tokens.size()));
        const at::Tensor hidden = target->forward(tape);
        at::Tensor shown = at::empty({hidden.size(0), 3 * hidden.size(1)}, at::kFloat);
        tape.captured(network.auxiliary_layers(), shown);
        states = at::cat({shown, hidden}, 1);
        at::Tensor logits = at::empty({hidden.size(0), target->config().vocabulary}, at::kFloat);
        target->logits(hidden, logits);
        tokens.push_back(static_cast<int32_t>(logits[-1].argmax().item<int64_t>()));
      }
      tokens.pop_back();
      samples.push_back(make_sample(tokens, states, 2, i));
    }
    return samples;
  }

  std::unique_ptr<model::PolicyModel> target;
  drafter::Eagle3Network network;
};

}  // namespace tlt::drafter_training
