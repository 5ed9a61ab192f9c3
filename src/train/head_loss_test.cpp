// SPDX-License-Identifier: Apache-2.0
#include "train/head_loss.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/check.h"
#include "model/tape.h"
#include "tests/support/golden_batch.h"
#include "train/policy_loss.h"

namespace tlt::train {
namespace {

// Gradients of all samples in one pack.
struct Gradient {
  std::vector<at::Tensor> tensors;
  std::vector<std::vector<float>> logprobs;
};

Gradient gradient_of(const model::PolicyModel& model, std::span<const TrainSample> samples,
                     TokenLoss& loss, double temperature, bool recompute,
                     int64_t logits_bytes = int64_t{1} << 26) {
  model::Tape tape(model, recompute);
  std::vector<PackedSample> pack;
  for (const TrainSample& sample : samples) {
    pack.push_back({&sample, tape.batch().rows()});
    tape.add_sequence(sample.tokens.data(), static_cast<int32_t>(sample.tokens.size()));
  }
  HeadLoss head(model, temperature, logits_bytes);
  model::Gradients gradients = model.make_gradients();
  Gradient result;
  result.logprobs.resize(samples.size());
  const at::Tensor& hidden = model.forward(tape);
  const at::Tensor& d_hidden = head.backward(
      hidden, pack, loss, gradients, [&](const TrainSample& sample, int64_t first, auto values) {
        auto& row = result.logprobs[static_cast<size_t>(&sample - samples.data())];
        EXPECT_EQ(first, std::ssize(row));
        row.insert(row.end(), values.begin(), values.end());
      });
  model.backward(tape, d_hidden, gradients);
  result.tensors = gradients.tensors;
  return result;
}

double largest(const at::Tensor& values) { return values.abs().max().item<double>(); }

TEST(HeadLossTest, GradientsMatchPyTorchAutograd) {
  for (const std::string& name : kGoldenModels) {
    const auto golden = read_golden(name);
    const auto model = golden_model(name);
    model::SafetensorsFile full(kGolden + "grpo/" + name + ".safetensors");
    int64_t whole_tensors = 0;
    for (const auto& setting : golden.at("settings")) {
      const std::string batch = setting.at("batch"),
                        what = name + " " + setting.at("name").get<std::string>();
      const auto samples = golden_samples(golden, batch);
      PolicyLoss loss(golden_options(setting), {golden_options(setting), samples});
      if (loss.wants_batch())
        loss.see_batch(
            samples,
            golden.at("batches").at(batch).at("logprobs").get<std::vector<std::vector<float>>>(),
            /*steps=*/0);
      const Gradient gradient = gradient_of(
          *model, samples, loss, golden.at("batches").at(batch).at("temperature"), false);
      size_t compared = 0;
      for (size_t p = 0; p < model->parameters().size(); ++p)
        for (const auto& part : model->parameters()[p].parts) {
          const at::Tensor got = gradient.tensors[p].narrow(0, part.first_row, part.rows).flatten();
          const auto& want = setting.at("gradients").at(part.name);
          const double norm = want.at("norm");
          EXPECT_NEAR(got.to(at::kDouble).norm().item<double>(), norm, 1e-4 * norm + 1e-9)
              << what << " " << part.name;
          for (int64_t i = 0; i < 8; ++i)
            EXPECT_NEAR(got[i * (got.numel() - 1) / 7].item<double>(),
                        want.at("values")[static_cast<size_t>(i)].get<double>(), 1e-4 * norm + 1e-9)
                << what << " " << part.name << " value " << i;
          if (setting.at("full_gradient")) {
            const at::Tensor all =
                full.read(setting.at("name").get<std::string>() + "/" + part.name).flatten();
            EXPECT_LE(largest(got - all), 1e-4 * largest(all)) << what << " " << part.name;
            ++whole_tensors;
          }
          ++compared;
        }
      EXPECT_EQ(compared, setting.at("gradients").size());
    }
    EXPECT_GE(whole_tensors, 60);
  }
}

TEST(HeadLossTest, LogprobsMatchTransformersAtEachTemperature) {
  for (const std::string& name : kGoldenModels) {
    const auto golden = read_golden(name);
    const auto model = golden_model(name);
    for (const char* batch : {"t10", "t07"}) {
      const auto samples = golden_samples(golden, batch);
      PolicyLoss loss({}, {{}, samples});
      const auto got = gradient_of(*model, samples, loss,
                                   golden.at("batches").at(batch).at("temperature"), false)
                           .logprobs;
      for (size_t i = 0; i < samples.size(); ++i)
        for (size_t t = 0; t < got[i].size(); ++t)
          EXPECT_NEAR(got[i][t], golden["batches"][batch]["logprobs"][i][t].get<double>(), 1e-4)
              << name << " " << i << " " << t;
    }
  }
}

TEST(HeadLossTest, ChunksChangeGradientsOnlyByRounding) {
  const auto golden = read_golden("qwen3_tied_head32");
  const auto model = golden_model("qwen3_tied_head32");
  const auto samples = golden_samples(golden, "t10");  // 95 rows
  PolicyLoss whole_loss({}, {{}, samples}), chunked_loss({}, {{}, samples});
  const Gradient whole = gradient_of(*model, samples, whole_loss, 1.0, false);
  const Gradient chunked = gradient_of(*model, samples, chunked_loss, 1.0, false,
                                       /*logits_bytes=*/1);  // 16 rows at a time
  EXPECT_EQ(chunked.logprobs, whole.logprobs);
  for (size_t p = 0; p < whole.tensors.size(); ++p)
    EXPECT_LE(largest(chunked.tensors[p] - whole.tensors[p]), 1e-5 * largest(whole.tensors[p]))
        << p;
  EXPECT_EQ(chunked_loss.take_sums(), whole_loss.take_sums());
}

TEST(HeadLossTest, RecomputingActivationsGivesTheSameBits) {
  for (const std::string& name : kGoldenModels) {
    const auto model = golden_model(name);
    const auto samples = golden_samples(read_golden(name), "t10");
    PolicyLoss kept_loss({}, {{}, samples}), again_loss({}, {{}, samples});
    const Gradient kept = gradient_of(*model, samples, kept_loss, 1.0, false);
    const Gradient again = gradient_of(*model, samples, again_loss, 1.0, true);
    EXPECT_EQ(again.logprobs, kept.logprobs);
    for (size_t p = 0; p < kept.tensors.size(); ++p)
      EXPECT_TRUE(at::equal(again.tensors[p], kept.tensors[p])) << name << " " << p;
  }
}

TEST(HeadLossTest, SampleWithoutAPromptIsAnError) {
  const auto model = golden_model("llama_tied");
  std::vector<TrainSample> samples(1);
  samples[0].tokens = {1, 2, 3};
  HeadLoss head(*model, 1.0);
  const std::vector<PackedSample> pack = {{samples.data(), 0}};
  EXPECT_THROW(head.score(at::zeros({3, 48}), pack, [](const auto&, int64_t, auto) {}), Error);
}

}  // namespace
}  // namespace tlt::train
