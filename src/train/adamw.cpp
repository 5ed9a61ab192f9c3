// SPDX-License-Identifier: Apache-2.0
#include "train/adamw.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/check.h"

namespace tlt::train {
namespace {

// Where parts of an update may end: rows of a weight come in panels, which are written faster
// whole.
constexpr int64_t kRows = ops::Weight::kPanel;

int64_t row_size(const at::Tensor& tensor) { return tensor.dim() == 2 ? tensor.size(1) : 1; }

}  // namespace

void AdamW::update_range(const Coefficients& c, const float* gradients, float* __restrict master,
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

void add_squares(const Device& device, const at::Tensor& values, double& total) {
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

double gradient_norm(const Device& device, const model::Gradients& gradients) {
  double total = 0;
  for (const at::Tensor& tensor : gradients.tensors) add_squares(device, tensor.cpu(), total);
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
  begin_step(norm, learning_rate);
  while (try_update(gradients, std::numeric_limits<int64_t>::max())) {
  }
  end_step();
  return norm;
}

void AdamW::begin_step(double norm, double learning_rate) {
  TLT_CHECK(!is_in_step(), "the step before has not ended");
  TLT_CHECK(std::isfinite(norm), "the norm of the gradient is ", norm);
  // As torch's clip_grad_norm_ does it.
  const double clip =
      options_.clip_grad > 0 ? std::min(1.0, options_.clip_grad / (norm + 1e-6)) : 1.0;
  const auto t = static_cast<double>(steps_ + 1);
  step_ = {.clip = static_cast<float>(clip),
           .kept = static_cast<float>(1 - learning_rate * options_.weight_decay),
           .beta1 = static_cast<float>(options_.betas[0]),
           .beta2 = static_cast<float>(options_.betas[1]),
           .epsilon = static_cast<float>(options_.eps),
           .step_size = static_cast<float>(learning_rate / (1 - std::pow(options_.betas[0], t))),
           .square_scale = static_cast<float>(std::sqrt(1 - std::pow(options_.betas[1], t)))};
  place_ = Place{};
}

bool AdamW::try_update(const model::Gradients& gradients, int64_t elements) {
  TLT_CHECK(is_in_step(), "no step was begun");
  return walk(
      *place_, states_.size(), elements, [&](size_t p) { return states_[p].master.numel(); },
      [&](size_t p) { return kRows * row_size(states_[p].master); },
      [&](size_t p, int64_t first, int64_t last) { update(gradients, p, first, last); });
}

void AdamW::end_step() {
  TLT_CHECK(is_in_step(), "no step was begun");
  place_.reset();
  ++steps_;
}

void AdamW::update(const model::Gradients& gradients, size_t parameter, int64_t first,
                   int64_t last) {
  const model::Parameter& written = parameters_[parameter];
  State& state = states_[parameter];
  Coefficients c = step_;
  if (!written.decays) c.kept = 1;
  const at::Tensor gradient =
      gradients.tensors[parameter].view(-1).narrow(0, first, last - first).cpu();
  const float* from = gradient.data_ptr<float>();
  float *master = state.master.data_ptr<float>() + first,
        *average = state.average.data_ptr<float>() + first,
        *square = state.square.data_ptr<float>() + first;
  for_chunks(device_, last - first, [&](int64_t, int64_t begin, int64_t end) {
    update_range(c, from, master, average, square, begin, end);
  });
  const int64_t row = row_size(state.master);
  const at::Tensor rows = state.master.narrow(0, first / row, (last - first) / row);
  written.write(device_, rows.to(device_.torch()), first / row);
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
  place_.reset();
}

}  // namespace tlt::train
