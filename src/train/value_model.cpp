// SPDX-License-Identifier: Apache-2.0
#include "train/value_model.h"

#include <ATen/ATen.h>

#include <filesystem>

#include "base/check.h"
#include "model/hf_folder.h"
#include "model/safetensors.h"
#include "runtime/thread_pool.h"

namespace tlt::train {
namespace {

constexpr const char* kHeadName = "score.weight";  // as in transformers

std::span<const float> row_of(const at::Tensor& rows, int64_t i) {
  return {rows.const_data_ptr<float>() + i * rows.size(1), static_cast<size_t>(rows.size(1))};
}

}  // namespace

ValueModel::ValueModel(std::unique_ptr<model::PolicyModel> network)
    : network_(std::move(network)),
      score_(network_->device().zeros({1, network_->config().hidden}, at::kFloat)) {
  const std::vector<model::Parameter>& all = network_->parameters();
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].name() == "lm_head.weight") continue;
    parameters_.push_back(all[i]);
    index_of_.push_back(i);
  }
  model::ParameterList list(parameters_, at::kFloat);
  list.set_stages({0, 0});  // as an LM head's
  list.add_table(kHeadName, score_);
}

model::Gradients ValueModel::route(const model::Gradients& gradients) const {
  TLT_CHECK(gradients.tensors.size() == parameters_.size());
  model::Gradients routed;
  routed.tensors.resize(network_->parameters().size() + 1);
  for (size_t i = 0; i < index_of_.size(); ++i) routed.tensors[index_of_[i]] = gradients.tensors[i];
  routed.tensors.back() = gradients.tensors.back();
  return routed;
}

void ValueModel::load_head(const std::string& folder) {
  const std::string path = folder + kValueHeadFile;
  if (!std::filesystem::exists(path)) return;
  const at::Tensor values = model::SafetensorsFile(path).read(kHeadName);
  TLT_CHECK_INPUT(values.sizes() == score_.sizes() && values.scalar_type() == at::kFloat, path,
                  ": ", kHeadName, " has shape ", values.sizes(), " and the model needs float32 ",
                  score_.sizes(), "; it belongs to another model");
  score_.copy_(values.to(score_.device()));
}

std::function<void(const std::string& folder)> ValueModel::snapshot(
    const std::string& source_folder) const {
  const auto network = std::make_shared<model::PolicySnapshot>(model::snapshot_policy(*network_));
  return [network, source_folder,
          head = score_.to(at::kCPU, at::kFloat, false, /*copy=*/true)](const std::string& folder) {
    model::save_policy(*network, folder, source_folder);
    model::write_safetensors(folder + kValueHeadFile, {model::TensorSource::of(kHeadName, head)});
  };
}

// A value is one sum in the order of d, so it does not depend on the pack and the threads.
ValueHead::Rows ValueHead::rows_of(const at::Tensor& hidden, const PackedSample& packed) const {
  const TrainSample& sample = *packed.sample;
  TLT_CHECK(sample.response_begin >= 1, "sample ", sample.id, " has no prompt");
  Rows rows{.first = packed.first_row + sample.response_begin - 1, .hidden = {}, .values = {}};
  const int64_t count = sample.response_size();
  rows.hidden = hidden.narrow(0, rows.first, count).cpu().to(at::kFloat).contiguous();
  rows.values.resize(static_cast<size_t>(count));
  const at::Tensor score = critic_.score().cpu().contiguous();
  const std::span<const float> weights = row_of(score, 0);
  critic_.network().device().pool().run(count, [&](int64_t i) {
    const std::span<const float> row = row_of(rows.hidden, i);
    double sum = 0;
    for (size_t d = 0; d < weights.size(); ++d) sum += double{row[d]} * weights[d];
    rows.values[static_cast<size_t>(i)] = static_cast<float>(sum);
  });
  return rows;
}

void ValueHead::score(const at::Tensor& hidden, std::span<const PackedSample> pack,
                      const See& see) {
  for (const PackedSample& packed : pack) {
    if (packed.sample->response_size() == 0) continue;
    see(*packed.sample, 0, rows_of(hidden, packed).values);
  }
}

void ValueHead::measure(const at::Tensor& hidden, std::span<const PackedSample> pack,
                        TokenLoss& loss, const See& see) {
  score(hidden, pack, [&](const TrainSample& sample, int64_t first, std::span<const float> values) {
    see(sample, first, values);
    std::vector<float> unused(values.size());
    loss.add({.sample = sample, .first = first, .logprobs = values, .entropies = {}},
             {.d_logprob = unused, .d_entropy = {}});
  });
}

const at::Tensor& ValueHead::backward(const at::Tensor& hidden, std::span<const PackedSample> pack,
                                      TokenLoss& loss, model::Gradients& gradients,
                                      const See& see) {
  d_hidden_ = at::zeros_like(hidden);
  const at::Tensor score = critic_.score().cpu();
  at::Tensor d_score = at::zeros(critic_.score().sizes(), at::kDouble);
  const std::span<double> sums(d_score.data_ptr<double>(), static_cast<size_t>(d_score.numel()));
  for (const PackedSample& packed : pack) {
    if (packed.sample->response_size() == 0) continue;
    const Rows rows = rows_of(hidden, packed);
    see(*packed.sample, 0, rows.values);
    std::vector<float> d_values(rows.values.size());
    loss.add({.sample = *packed.sample, .first = 0, .logprobs = rows.values, .entropies = {}},
             {.d_logprob = d_values, .d_entropy = {}});
    for (size_t i = 0; i < d_values.size(); ++i) {
      const std::span<const float> row = row_of(rows.hidden, static_cast<int64_t>(i));
      for (size_t d = 0; d < row.size(); ++d) sums[d] += double{d_values[i]} * row[d];
    }
    const at::Tensor d_rows = at::tensor(d_values, at::kFloat).unsqueeze(1) * score;
    d_hidden_.narrow(0, rows.first, d_rows.size(0))
        .copy_(d_rows.to(hidden.scalar_type()).to(hidden.device()));
  }
  at::Tensor& total = gradients.tensors.back();
  total.add_(d_score.to(at::kFloat).to(total.device()));
  return d_hidden_;
}

}  // namespace tlt::train
