// The golden files of tests/golden/draft (tests/tools/make_draft_goldens.py) as samples and
// weights.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "drafter/eagle/draft_eagle.h"
#include "drafter_training/draft_sample.h"
#include "tests/support/golden_batch.h"

namespace tlt::drafter_training {

using train::golden_model;

inline nlohmann::json read_draft_golden(const std::string& name) {
  return nlohmann::json::parse(
      read_file(train::kGolden + "draft/" + name + ".json", int64_t{1} << 26));
}

// middle + scale * sin(step * i + shift) for element i: the script's wave().
inline at::Tensor wave(at::IntArrayRef shape, double step, double shift, double scale,
                       double middle = 0) {
  at::Tensor values = at::empty(shape, at::kFloat);
  for (int64_t i = 0; i < values.numel(); ++i)
    values.data_ptr<float>()[i] =
        static_cast<float>(middle + scale * std::sin(step * static_cast<double>(i) + shift));
  return values;
}

// Fills the draft model with the script's weights.
inline void fill_with_waves(const drafter::DraftNetwork& network) {
  const std::string prefix = "layers.0.";
  for (const model::Parameter& parameter : network.parameters())
    for (const auto& part : parameter.parts) {
      const std::string name =
          part.name.starts_with(prefix) ? part.name.substr(prefix.size()) : part.name;
      int64_t letters = 0;
      for (const char letter : name) letters += letter;
      std::vector<int64_t> shape = parameter.shape();
      shape[0] = part.rows;
      const bool is_norm = name.find("layernorm") != std::string::npos;
      parameter.write(network.device(),
                      wave(shape, 0.73, static_cast<double>(letters % 100),
                           is_norm || shape.size() == 2 ? 0.1 : 0.05, is_norm ? 1.0 : 0.0),
                      part.first_row);
    }
}

struct GoldenDrafter {
  explicit GoldenDrafter(const std::string& name, int threads = 1)
      : target(golden_model(name, threads)),
        network(*target, drafter::EagleNetwork::config_for(target->config())) {
    fill_with_waves(network);
  }
  std::unique_ptr<model::PolicyModel> target;
  drafter::EagleNetwork network;
};

inline std::vector<DraftSample> golden_draft_samples(const nlohmann::json& golden,
                                                     const model::ModelConfig& config) {
  std::vector<DraftSample> samples;
  for (const auto& row : golden.at("samples")) {
    const auto s = static_cast<int64_t>(samples.size());
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < row[0].get<int64_t>(); ++i)
      tokens.push_back(static_cast<int32_t>((7 * i + 11 * s + 3) % config.vocabulary));
    const at::Tensor states =
        wave({std::ssize(tokens), config.hidden}, 0.61, static_cast<double>(s), 1.5);
    samples.push_back(make_sample(tokens, states, row[1].get<int32_t>(), static_cast<uint32_t>(s)));
  }
  return samples;
}

}  // namespace tlt::drafter_training
