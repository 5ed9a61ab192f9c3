// Compares several passes of the training-time test of a golden draft model with PyTorch's
// (tests/tools/make_unrolled_goldens.py).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "drafter/eagle/draft_tape.h"
#include "model/safetensors.h"
#include "tests/support/tensors.h"

namespace tlt::tests {

// The tape has the golden sequences. Rows without meaning in pass k are zero in the golden file.
inline void expect_ttt_passes(const drafter::DraftNetwork& network, drafter::DraftTape& tape,
                              const at::Tensor& states, model::SafetensorsFile& golden) {
  constexpr int64_t kPasses = 3;
  const auto near = [](const at::Tensor& got, const at::Tensor& want, double tolerance) {
    const double scale = want.abs().max().item<double>();
    return tensors_near(got / scale, want / scale, tolerance);
  };
  for (int64_t pass = 0; pass < kPasses; ++pass) {
    pass == 0 ? network.forward(tape, states) : network.run_ttt_pass(tape);
    const at::Tensor want = golden.read("next." + std::to_string(pass));
    const at::Tensor means_something = (want != 0).any(1, /*keepdim=*/true);
    EXPECT_TRUE(near(tape.next(pass) * means_something, want, 1e-5)) << "pass " << pass;
  }
  model::Gradients gradients = network.make_gradients();
  for (int64_t pass = kPasses; pass-- > 0;)
    network.backward_pass(tape, pass, golden.read("d_read." + std::to_string(pass)), gradients);
  for (size_t i = 0; i < network.parameters().size(); ++i)
    for (const model::Parameter::Part& part : network.parameters()[i].parts) {
      if (!golden.index().find("d/" + part.name)) continue;  // the LM head's
      EXPECT_TRUE(near(gradients.tensors[i].narrow(0, part.first_row, part.rows),
                       golden.read("d/" + part.name), 1e-4))
          << part.name;
    }
}

}  // namespace tlt::tests
