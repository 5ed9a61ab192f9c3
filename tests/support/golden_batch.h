// The golden files of tests/golden/grpo as samples and options.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/files.h"
#include "model/hf_folder.h"
#include "train/loss_options.h"
#include "train/sample.h"

namespace tlt::train {

inline const std::string kGolden = std::string(TLT_SOURCE_DIR) + "/tests/golden/";
inline const std::vector<std::string> kGoldenModels = {"qwen2_tied", "qwen3_tied_head32",
                                                       "llama_tied"};

inline nlohmann::json read_golden(const std::string& name) {
  return nlohmann::json::parse(read_file(kGolden + "grpo/" + name + ".json", int64_t{1} << 26));
}

inline std::unique_ptr<model::PolicyModel> golden_model(const std::string& name, int threads = 1) {
  return model::load_policy(kGolden + "models/" + name, Device::cpu(threads), at::kFloat);
}

// `batch`: "t10", "t07" or "extreme".
inline std::vector<TrainSample> golden_samples(const nlohmann::json& golden,
                                               const std::string& batch) {
  std::vector<TrainSample> samples;
  const nlohmann::json& numbers = golden.at("batches").at(batch);
  for (size_t i = 0; i < golden.at("samples").size(); ++i) {
    const nlohmann::json& from = golden.at("samples")[i];
    TrainSample& sample = samples.emplace_back();
    sample.tokens = from.at("prompt").get<std::vector<int32_t>>();
    sample.response_begin = static_cast<int32_t>(sample.tokens.size());
    for (const auto& token : from.at("response")) sample.tokens.push_back(token.get<int32_t>());
    sample.rollout_logprobs = numbers.at("old_logprobs")[i].get<std::vector<float>>();
    sample.reference_logprobs = numbers.at("ref_logprobs")[i].get<std::vector<float>>();
    sample.advantages.assign(sample.rollout_logprobs.size(), from.at("advantage").get<float>());
    sample.id = static_cast<int64_t>(i);
  }
  return samples;
}

inline LossOptions golden_options(const nlohmann::json& setting) {
  LossOptions options;
  options.clip_ratio_low = setting.at("clip_ratio_low");
  options.clip_ratio_high = setting.at("clip_ratio_high");
  options.clip_ratio_c = setting.at("clip_ratio_c");
  if (setting.contains("loss_mode")) options.policy_loss.loss_mode = setting.at("loss_mode");
  PolicyLossOptions& loss = options.policy_loss;
  if (loss.loss_mode == "clip_cov") {
    loss.clip_cov_ratio = 1;
    loss.clip_cov_lb = setting.at("clip_cov_lb");
    loss.clip_cov_ub = setting.at("clip_cov_ub");
  }
  if (loss.loss_mode == "kl_cov") {
    loss.kl_cov_ratio = setting.at("kl_cov_ratio");
    loss.ppo_kl_coef = setting.at("ppo_kl_coef");
  }
  if (loss.loss_mode == "sapo") {
    options.tau_pos = setting.at("tau_pos");
    options.tau_neg = setting.at("tau_neg");
  }
  options.loss_agg_mode = setting.at("loss_agg_mode");
  options.use_kl_loss = setting.at("kl_loss_type") != "none";
  if (options.use_kl_loss) options.kl_loss_type = setting.at("kl_loss_type");
  options.kl_loss_coef = setting.at("kl_loss_coef");
  options.entropy_coeff = setting.at("entropy_coeff");
  return options;
}

}  // namespace tlt::train
