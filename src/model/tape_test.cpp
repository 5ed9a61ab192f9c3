// SPDX-License-Identifier: Apache-2.0
#include "model/tape.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/check.h"
#include "tests/support/rollouts.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_model.h"

namespace tlt::model {
namespace {

using tests::tensors_equal;
using tests::tensors_near;

constexpr int64_t kPrefix = 32;

// Two prompts of whole pages with some responses each, and a single sequence between them.
class TapeTest : public ::testing::TestWithParam<std::tuple<Family, at::ScalarType, bool>> {
 protected:
  at::ScalarType type() const { return std::get<1>(GetParam()); }

  struct Pass {
    at::Tensor hidden;  // of the suffixes' rows, then of the shared prefixes' (first copies)
    Gradients gradients;
  };

  // The gradient of sum(hidden * weights) over the rows of the suffixes.
  Pass run(bool share) const {
    Tape tape(*model_, /*recompute=*/std::get<2>(GetParam()));
    std::vector<int64_t> rows, prefix_rows;
    const auto take = [](std::vector<int64_t>& list, int64_t first, int64_t count) {
      for (int64_t i = 0; i < count; ++i) list.push_back(first + i);
    };
    const auto add_group = [&](uint32_t prompt, const std::vector<int32_t>& lengths) {
      std::vector<int32_t> tokens = tests::random_tokens(5, prompt, kPrefix, vocabulary());
      const int64_t first = tape.batch().rows();
      take(prefix_rows, first, kPrefix);
      if (share) tape.add_sequence(tokens.data(), kPrefix);
      for (size_t i = 0; i < lengths.size(); ++i) {
        const std::vector<int32_t> more = tests::random_tokens(
            6, prompt * 10 + static_cast<uint32_t>(i), lengths[i], vocabulary());
        if (share) {
          take(rows, tape.batch().rows(), lengths[i]);
          tape.add_suffix(more.data(), lengths[i]);
        } else {
          take(rows, tape.batch().rows() + kPrefix, lengths[i]);
          tokens.resize(kPrefix);
          tokens.insert(tokens.end(), more.begin(), more.end());
          tape.add_sequence(tokens.data(), static_cast<int32_t>(tokens.size()));
        }
      }
    };
    add_group(1, {5, 40, 16, 1});
    const std::vector<int32_t> alone = tests::random_tokens(7, 0, 21, vocabulary());
    take(rows, tape.batch().rows(), 21);
    tape.add_sequence(alone.data(), 21);
    add_group(2, {33});

    const at::Tensor& hidden = model_->forward(tape);
    const at::Tensor at_rows = at::tensor(rows, at::kLong);
    const at::Tensor weights =
        tests::random_tensor({std::ssize(rows), hidden.size(1)}, at::kFloat, 9);
    at::Tensor d_hidden = at::zeros_like(hidden);
    d_hidden.index_copy_(0, at_rows, weights.to(type()));
    Pass pass{at::cat({hidden.index_select(0, at_rows),
                       hidden.index_select(0, at::tensor(prefix_rows, at::kLong))}),
              model_->make_gradients()};
    model_->backward(tape, d_hidden, pass.gradients);
    return pass;
  }
  int64_t vocabulary() const { return model_->config().vocabulary; }

  const std::unique_ptr<PolicyModel> model_ =
      tests::make_tiny_model(tests::tiny_config(std::get<0>(GetParam())), type(), Device::cpu(2));
};

TEST_P(TapeTest, SharedPrefixKeepsStatesAndGradients) {
  const Pass want = run(/*share=*/false), got = run(/*share=*/true);
  EXPECT_TRUE(tensors_equal(got.hidden, want.hidden));
  for (size_t i = 0; i < want.gradients.tensors.size(); ++i) {
    const at::Tensor &x = got.gradients.tensors[i], &y = want.gradients.tensors[i];
    const double size = y.abs().max().item<double>();
    EXPECT_LE((x - y).abs().max().item<double>(), (type() == at::kFloat ? 1e-5 : 2e-2) * size)
        << "parameter " << i;
  }
}

// Kernels read whole pages: what a batch leaves in slots that the next one does not use, they
// multiply by 0.
TEST_P(TapeTest, BatchWithNanHasNoEffectOnTheNext) {
  const Parameter& norm = find(model_->parameters(), "model.layers.0.input_layernorm.weight");
  const at::Tensor weights = norm.read(model_->device());
  const auto forward = [&](Tape& tape, int32_t tokens) {
    tape.clear();
    tape.add_sequence(tests::random_tokens(5, 1, tokens, vocabulary()).data(), tokens);
    return model_->forward(tape).clone();
  };
  Tape fresh(*model_, std::get<2>(GetParam())), used(*model_, std::get<2>(GetParam()));
  const at::Tensor want = forward(fresh, 5);
  norm.write(model_->device(), at::full_like(weights, NAN));
  EXPECT_TRUE(at::isnan(forward(used, 40)).any().item<bool>());
  norm.write(model_->device(), weights);
  EXPECT_TRUE(tensors_equal(forward(used, 5), want));
}

TEST_P(TapeTest, SuffixNeedsAPrefixOfWholePages) {
  Tape tape(*model_, false);
  const std::vector<int32_t> tokens(20, 3);
  EXPECT_THROW(tape.add_suffix(tokens.data(), 2), Error);
  tape.add_sequence(tokens.data(), 20);
  EXPECT_THROW(tape.add_suffix(tokens.data(), 2), Error);
  tape.clear();
  EXPECT_THROW(tape.add_suffix(tokens.data(), 2), Error);
}

INSTANTIATE_TEST_SUITE_P(
    All, TapeTest,
    ::testing::Combine(::testing::Values(Family::kQwen2, Family::kQwen3, Family::kLlama),
                       ::testing::Values(at::kFloat, at::kBFloat16), ::testing::Bool()));

}  // namespace
}  // namespace tlt::model
