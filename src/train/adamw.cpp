// SPDX-License-Identifier: Apache-2.0
#include "train/adamw.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"
#include "train/chunks.h"

namespace tlt::train {
namespace {

// The numbers of one step that are the same for every element.
struct Coefficients {
  float clip;  // what the gradient is multiplied by
  float kept;  // 1 - lr * weight decay
  float beta1, beta2, epsilon;
  float step_size;     // lr / (1 - beta1^t)
  float square_scale;  // sqrt(1 - beta2^t)
};

void update_range(const Coefficients& c, const float* gradients, float* __restrict master,
                  float* __restrict average, float* __restrict square, int64_t first,
                  int64_t last) {
  for (int64_t i = first; i < last; ++i) {
    const float gradient = gradients[i] * c.clip;
    const float weight = master[i] * c.kept;
    average[i] += (gradient - average[i]) * (1 - c.beta1);
    square[i] = square[i] * c.beta2 + gradient * gradient * (1 - c.beta2);
    master[i] =
        weight - c.step_size * (average[i] / (std::sqrt(square[i]) / c.square_scale + c.epsilon));
  }
}

}  // namespace

double gradient_norm(const Device& device, const model::Gradients& gradients) {
  double total = 0;
  for (const at::Tensor& tensor : gradients.tensors) {
    const at::Tensor values = tensor.cpu();
    const float* data = values.data_ptr<float>();
    std::vector<double> partial(static_cast<size_t>(chunks(values.numel())));
    for_chunks(device, values.numel(), [&](int64_t chunk, int64_t first, int64_t last) {
      double sum = 0;
      for (int64_t i = first; i < last; ++i)
        sum += static_cast<double>(data[i]) * static_cast<double>(data[i]);
      partial[static_cast<size_t>(chunk)] = sum;
    });
    for (const double sum : partial) total += sum;
  }
  return std::sqrt(total);
}

AdamW::AdamW(const std::vector<model::Parameter>& parameters, const Device& device,
             const OptimOptions& options)
    : parameters_(parameters), device_(device), options_(options) {
  options.check();
  for (const model::Parameter& parameter : parameters) {
    const at::Tensor master = parameter.read(device).cpu().contiguous();
    states_.push_back({master, at::zeros_like(master), at::zeros_like(master)});
  }
}

double AdamW::step(const model::Gradients& gradients, double learning_rate) {
  const double norm = gradient_norm(device_, gradients);
  TLT_CHECK(std::isfinite(norm), "the norm of the gradient is ", norm);
  // As torch's clip_grad_norm_ does it.
  const double clip =
      options_.clip_grad > 0 ? std::min(1.0, options_.clip_grad / (norm + 1e-6)) : 1.0;
  const auto t = static_cast<double>(++steps_);
  Coefficients c{
      .clip = static_cast<float>(clip),
      .kept = 1,
      .beta1 = static_cast<float>(options_.betas[0]),
      .beta2 = static_cast<float>(options_.betas[1]),
      .epsilon = static_cast<float>(options_.eps),
      .step_size = static_cast<float>(learning_rate / (1 - std::pow(options_.betas[0], t))),
      .square_scale = static_cast<float>(std::sqrt(1 - std::pow(options_.betas[1], t)))};
  for (size_t p = 0; p < states_.size(); ++p) {
    const model::Parameter& parameter = parameters_[p];
    State& state = states_[p];
    c.kept =
        parameter.decays ? static_cast<float>(1 - learning_rate * options_.weight_decay) : 1.0F;
    const at::Tensor gradient = gradients.tensors[p].cpu();
    const float* from = gradient.data_ptr<float>();
    float *master = state.master.data_ptr<float>(), *average = state.average.data_ptr<float>(),
          *square = state.square.data_ptr<float>();
    for_chunks(device_, state.master.numel(), [&](int64_t, int64_t first, int64_t last) {
      update_range(c, from, master, average, square, first, last);
    });
    parameter.write(device_, state.master.to(device_.torch()));
  }
  return norm;
}

std::vector<std::pair<std::string, at::Tensor>> AdamW::state() const {
  std::vector<std::pair<std::string, at::Tensor>> state;
  for (size_t p = 0; p < states_.size(); ++p) {
    const std::string name = parameters_[p].name();
    state.emplace_back("master." + name, states_[p].master);
    state.emplace_back("first_moment." + name, states_[p].average);
    state.emplace_back("second_moment." + name, states_[p].square);
  }
  return state;
}

void AdamW::load(const std::vector<std::pair<std::string, at::Tensor>>& state, int64_t steps) {
  const auto own = this->state();
  TLT_CHECK_INPUT(state.size() == own.size(), "the optimizer state has ", state.size(),
                  " tensors, the model needs ", own.size(), "; it belongs to another model");
  std::map<std::string, at::Tensor> given(state.begin(), state.end());
  for (auto [name, tensor] : own) {  // all of it before anything changes
    const auto found = given.find(name);
    TLT_CHECK_INPUT(found != given.end(), "the optimizer state has no ", name,
                    "; it belongs to another model");
    TLT_CHECK_INPUT(
        found->second.sizes() == tensor.sizes() && found->second.scalar_type() == at::kFloat,
        "the optimizer state's ", name, " has shape ", found->second.sizes(), ", the model needs ",
        tensor.sizes(), "; it belongs to another model");
  }
  for (auto [name, tensor] : own) tensor.copy_(given.at(name));
  for (size_t p = 0; p < states_.size(); ++p)
    parameters_[p].write(device_, states_[p].master.to(device_.torch()));
  steps_ = steps;
}

}  // namespace tlt::train
