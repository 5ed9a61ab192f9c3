// SPDX-License-Identifier: Apache-2.0
#include "spot/draft_loss.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "model/draft_tape.h"
#include "spot/golden_draft.h"

namespace tlt::spot {
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

TEST(DraftLossTest, LossesRanksAndGradientAreThoseOfTorch) {
  for (const std::string& name : kModels) {
    const auto golden = read_draft_golden(name).at("near");
    const auto target = golden_model(name);
    const Near near(target->config().hidden);
    DraftLoss loss(*target, {});
    DraftSums sums;
    const at::Tensor d = loss.backward(near.predicted, near.wanted, all_rows(40), 40, sums);
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

TEST(DraftLossTest, GradientsOfTheNetworkAreThoseOfTorch) {
  for (const std::string& name : kModels) {
    const auto golden = read_draft_golden(name);
    const GoldenDrafter drafter(name);
    const auto samples = golden_draft_samples(golden, drafter.target->config());
    for (const auto& setting : golden.at("settings")) {
      const auto positions =
          setting.at("positions") == "all" ? LossPositions::kAll : LossPositions::kResponse;
      model::DraftTape tape(drafter.network);
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
      DraftLoss loss(*drafter.target, {.hidden = setting.at("hidden_weight"),
                                       .logits = setting.at("logits_weight")});
      DraftSums sums;
      model::Gradients gradients = drafter.network.make_gradients();
      const at::Tensor& predicted = drafter.network.forward(tape, at::cat(features));
      drafter.network.backward(
          tape, loss.backward(predicted, at::cat(wanted), rows, std::ssize(rows), sums), gradients);
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

TEST(DraftLossTest, TheSizeOfAChunkAndTheThreadsChangeNoBit) {
  const auto one = golden_model("qwen2_tied", 1), two = golden_model("qwen2_tied", 2);
  const Near near(one->config().hidden);
  DraftLoss whole(*one, {}), cut(*two, {}, /*logits_bytes=*/1);
  DraftSums a, b;
  // 37 rows and some left out: the last chunk of 16 is not full.
  std::vector<int64_t> rows = all_rows(40);
  rows.erase(rows.begin() + 3, rows.begin() + 6);
  const at::Tensor want = whole.backward(near.predicted, near.wanted, rows, 100, a).clone();
  const at::Tensor got = cut.backward(near.predicted, near.wanted, rows, 100, b);
  EXPECT_TRUE(at::equal(got, want));
  EXPECT_EQ(got.narrow(0, 3, 3).abs().max().item<float>(), 0) << "rows that do not count";
  EXPECT_EQ(a.top, b.top);
  EXPECT_NEAR(a.logits, b.logits, 1e-9 * a.logits);
}

TEST(DraftLossTest, AGuessThatIsTheTruthCostsOnlyTheTargetsEntropy) {
  const auto target = golden_model("llama_tied");
  const Near near(target->config().hidden);
  DraftLoss loss(*target, {});
  DraftSums sums;
  const at::Tensor d = loss.backward(near.wanted, near.wanted, all_rows(40), 40, sums);
  EXPECT_EQ(d.abs().max().item<float>(), 0);
  EXPECT_EQ(sums.hidden, 0);
  EXPECT_EQ(sums.top[0], 40);
  at::Tensor logits = at::empty({40, target->config().vocabulary}, at::kFloat);
  target->logits(near.wanted, logits);
  const at::Tensor p = logits.softmax(-1);
  EXPECT_NEAR(sums.logits, -(p * p.log()).sum().item<double>(), 1e-3);
  EXPECT_NEAR(sums.acceptance, std::get<0>(p.max(-1)).sum().item<double>(), 1e-4);
}

}  // namespace
}  // namespace tlt::spot
