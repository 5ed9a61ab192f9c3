// SPDX-License-Identifier: Apache-2.0
#include "drafter_training/draft_loss.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "drafter/eagle/draft_eagle3.h"
#include "drafter/eagle/draft_tape.h"
#include "tests/support/golden_draft.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_model.h"

namespace tlt::drafter_training {
namespace {

const std::vector<std::string> kModels = {"qwen2_tied", "qwen2_untied", "llama_tied"};

std::vector<int64_t> all_rows(int64_t count) {
  std::vector<int64_t> rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

double mean_of(const nlohmann::json& values) {
  double sum = 0;
  for (const auto& value : values) sum += value.get<double>();
  return sum / static_cast<double>(values.size());
}

struct Near {
  at::Tensor wanted, predicted;
  explicit Near(int64_t hidden)
      : wanted(wave({40, hidden}, 0.61, 2.0, 1.5)),
        predicted(wanted + wave({40, hidden}, 0.37, 1.0, 1.2)) {}
};

TEST(DraftLossTest, LossRankAndGradientMatchPyTorch) {
  for (const std::string& name : kModels) {
    const auto golden = read_draft_golden(name).at("near");
    const GoldenDrafter drafter(name);
    const Near near(drafter.target->config().hidden);
    DraftLoss loss(drafter.network, {});
    DraftSums sums;
    model::Gradients none;
    const auto rows = all_rows(40);
    const at::Tensor d = loss.backward({near.predicted, near.wanted, rows}, 1.0 / 40, none, sums);
    EXPECT_EQ(sums.rows, 40);
    EXPECT_NEAR(sums.hidden / 40, mean_of(golden.at("vloss")), 1e-5) << name;
    EXPECT_NEAR(sums.logits / 40, mean_of(golden.at("ploss")), 1e-4) << name;
    EXPECT_NEAR(sums.acceptance / 40, mean_of(golden.at("acceptance")), 1e-5) << name;
    for (size_t k = 0; k < 3; ++k) {
      double right = 0;
      for (const auto& rank : golden.at("rank")) right += rank.get<size_t>() <= k;
      EXPECT_EQ(sums.top[k], right) << name << " top-" << k + 1;
    }
    const double norm = golden.at("gradient_norm");
    EXPECT_NEAR(d.norm().item<double>(), norm, 1e-5 * norm) << name;
    for (int64_t row = 0; row < 40; ++row)
      for (int64_t i = 0; i < 6; ++i)
        EXPECT_NEAR(d[row][i].item<double>(),
                    golden.at("gradient_first")[static_cast<size_t>(row)][static_cast<size_t>(i)]
                        .get<double>(),
                    1e-6)
            << name << " row " << row << " " << i;
  }
}

TEST(DraftLossTest, NetworkGradientsMatchPyTorch) {
  for (const std::string& name : kModels) {
    const auto golden = read_draft_golden(name);
    const GoldenDrafter drafter(name);
    const auto samples = golden_draft_samples(golden, drafter.target->config());
    for (const auto& setting : golden.at("settings")) {
      const auto positions =
          setting.at("positions") == "all" ? LossPositions::kAll : LossPositions::kResponse;
      drafter::DraftTape tape;
      std::vector<at::Tensor> features, wanted;
      std::vector<int64_t> rows;
      for (const DraftSample& sample : samples) {
        for (int64_t pair = sample.first_pair(positions); pair < sample.pairs(); ++pair)
          rows.push_back(tape.batch().rows() + pair);
        features.push_back(sample.states().narrow(0, 0, sample.pairs()));
        wanted.push_back(sample.states().narrow(0, 1, sample.pairs()));
        tape.add_sequence(sample.tokens.data() + 1, static_cast<int32_t>(sample.pairs()));
      }
      ASSERT_EQ(std::ssize(rows), setting.at("rows").get<int64_t>());
      DraftLoss loss(drafter.network, {.hidden = setting.at("hidden_weight"),
                                       .logits = setting.at("logits_weight")});
      DraftSums sums;
      model::Gradients gradients = drafter.network.make_gradients();
      const at::Tensor& predicted = drafter.network.forward(tape, at::cat(features));
      drafter.network.backward(
          tape,
          loss.backward({predicted, at::cat(wanted), rows},
                        1.0 / static_cast<double>(std::ssize(rows)), gradients, sums),
          gradients);
      size_t seen = 0;
      for (size_t p = 0; p < gradients.tensors.size(); ++p)
        for (const auto& part : drafter.network.parameters()[p].parts) {
          const std::string prefix = "layers.0.";
          const auto& want =
              setting.at("gradients")
                  .at(part.name.starts_with(prefix) ? part.name.substr(prefix.size()) : part.name);
          const at::Tensor got =
              gradients.tensors[p].narrow(0, part.first_row, part.rows).flatten();
          const double norm = want.at("norm");
          EXPECT_NEAR(got.norm().item<double>(), norm, 1e-4 * norm + 1e-7)
              << name << " " << part.name;
          for (int64_t i = 0; i < 6; ++i)
            EXPECT_NEAR(got[i].item<double>(),
                        want.at("first")[static_cast<size_t>(i)].get<double>(), 1e-4 * norm)
                << name << " " << part.name << " " << i;
          ++seen;
        }
      EXPECT_EQ(seen, setting.at("gradients").size()) << name;
    }
  }
}

TEST(DraftLossTest, ChunkSizeAndThreadsChangeNoBit) {
  const GoldenDrafter one("qwen2_tied", 1), two("qwen2_tied", 2);
  const Near near(one.target->config().hidden);
  DraftLoss whole(one.network, {}), cut(two.network, {}, /*logits_bytes=*/1);
  model::Gradients none;
  DraftSums a, b;
  // 37 rows and some left out: the last chunk of 16 is not full.
  std::vector<int64_t> rows = all_rows(40);
  rows.erase(rows.begin() + 3, rows.begin() + 6);
  const at::Tensor want =
      whole.backward({near.predicted, near.wanted, rows}, 0.01, none, a).clone();
  const at::Tensor got = cut.backward({near.predicted, near.wanted, rows}, 0.01, none, b);
  EXPECT_TRUE(at::equal(got, want));
  EXPECT_EQ(got.narrow(0, 3, 3).abs().max().item<float>(), 0) << "rows that do not count";
  EXPECT_EQ(a.top, b.top);
  EXPECT_NEAR(a.logits, b.logits, 1e-9 * a.logits);
}

TEST(DraftLossTest, PerfectDraftCostsTheTargetsEntropy) {
  const GoldenDrafter drafter("llama_tied");
  const auto& target = drafter.target;
  const Near near(target->config().hidden);
  DraftLoss loss(drafter.network, {});
  DraftSums sums;
  model::Gradients none;
  const auto rows = all_rows(40);
  const at::Tensor d = loss.backward({near.wanted, near.wanted, rows}, 1.0 / 40, none, sums);
  EXPECT_EQ(d.abs().max().item<float>(), 0);
  EXPECT_EQ(sums.hidden, 0);
  EXPECT_EQ(sums.top[0], 40);
  at::Tensor logits = at::empty({40, target->config().vocabulary}, at::kFloat);
  target->logits(near.wanted, logits);
  const at::Tensor p = logits.softmax(-1);
  EXPECT_NEAR(sums.logits, -(p * p.log()).sum().item<double>(), 1e-3);
  EXPECT_NEAR(sums.acceptance, std::get<0>(p.max(-1)).sum().item<double>(), 1e-4);
}

// EAGLE-3: the target's softmax over the head's tokens, in rows where its best token is one of
// them.
TEST(DraftLossTest, SmallHeadIsComparedOverItsOwnTokens) {
  model::ModelConfig config = tests::tiny_config(model::Family::kQwen3);
  config.layers = 3;
  const auto target = tests::make_tiny_model(config, at::kFloat);
  drafter::Eagle3Network network(*target, drafter::Eagle3Config::make(config, /*head_rows=*/60));
  std::vector<int32_t> tokens(60);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i + i / 3);
  network.set_head_tokens(tokens);
  network.initialize(/*seed=*/5);
  const at::Tensor read = tests::random_tensor({40, config.hidden}, at::kFloat, /*name=*/1),
                   wanted = tests::random_tensor({40, config.hidden}, at::kFloat, /*name=*/2);
  const auto head_of = [](const std::vector<model::Parameter>& parameters) {
    return find(parameters, "lm_head.weight").read(Device::cpu(1)).to(at::kDouble);
  };
  const at::Tensor head = head_of(network.parameters()),
                   index = at::tensor(network.head_tokens(), at::kLong),
                   of_target = wanted.to(at::kDouble).matmul(head_of(target->parameters()).t()),
                   of_drafter = read.to(at::kDouble).matmul(head.t());
  const std::vector<int64_t> rows = {0, 1, 2, 5, 7, 11, 12, 13, 20, 21, 22, 23, 30, 31, 38, 39};

  double loss = 0, acceptance = 0;
  std::array<double, 3> top{};
  at::Tensor d_logits = at::zeros({40, 60}, at::kDouble);
  int64_t outside = 0;
  for (const int64_t row : rows) {
    const auto best = static_cast<int32_t>(of_target[row].argmax().item<int64_t>());
    const at::Tensor order = of_drafter[row].argsort(/*dim=*/0, /*descending=*/true);
    acceptance += of_target[row]
                      .softmax(0)[tokens[static_cast<size_t>(order[0].item<int64_t>())]]
                      .item<double>();
    const auto place = std::ranges::find(tokens, best);
    if (place == tokens.end()) {
      ++outside;
      continue;
    }
    for (int64_t k = 0; k < 3; ++k)
      for (int64_t i = 0; i <= k; ++i)
        top[static_cast<size_t>(k)] += order[i].item<int64_t>() == place - tokens.begin();
    const at::Tensor p = of_target[row].index_select(0, index).softmax(0),
                     q = of_drafter[row].softmax(0);
    loss -= (p * q.log()).sum().item<double>();
    d_logits[row].copy_((q - p) / 10);
  }
  ASSERT_GT(outside, 2);
  ASSERT_LT(outside, 14);
  DraftLoss draft_loss(network, {.hidden = 1, .logits = 0.1});
  DraftSums sums;
  model::Gradients gradients = network.make_gradients();
  const at::Tensor d = draft_loss.backward({read, wanted, rows}, 0.1, gradients, sums);
  EXPECT_EQ(sums.rows, 16);
  EXPECT_NEAR(sums.logits, loss, 1e-4);
  EXPECT_EQ(sums.hidden, 0);
  EXPECT_NEAR(sums.acceptance, acceptance, 1e-4);
  EXPECT_EQ(sums.top, top);
  EXPECT_EQ(draft_loss.weights().logits, 1) << "the only term";
  EXPECT_TRUE(tests::tensors_near(d, d_logits.matmul(head).to(at::kFloat), 1e-4));
  EXPECT_TRUE(tests::tensors_near(gradients.tensors.back(),
                                  d_logits.t().matmul(read.to(at::kDouble)).to(at::kFloat), 1e-4));
}

}  // namespace
}  // namespace tlt::drafter_training
