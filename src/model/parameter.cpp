// SPDX-License-Identifier: Apache-2.0
#include "model/parameter.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/random.h"
#include "ops/linear.h"

namespace tlt::model {

std::vector<int64_t> Parameter::shape() const {
  return matrix ? std::vector<int64_t>{matrix->rows(), matrix->columns()} : tensor->sizes().vec();
}

std::vector<int64_t> Parameter::shape(const Part& part) const {
  std::vector<int64_t> sizes = shape();
  sizes[0] = part.rows;
  return sizes;
}

at::Tensor Parameter::read(const Device& device) const {
  return matrix ? matrix->values(device).to(at::kFloat) : tensor->to(at::kFloat).clone();
}

at::Tensor Parameter::read(const Device& device, const Part& part) const {
  return matrix ? matrix->values(device, part.first_row, part.rows)
                : tensor->narrow(0, part.first_row, part.rows)
                      .to(round_to, /*non_blocking=*/false, /*copy=*/true);
}

void Parameter::write(const Device& device, const at::Tensor& values, int64_t first_row) const {
  if (matrix) return matrix->assign(device, values, first_row);
  // Norm weights and biases stay float32 tensors, but hold values of the compute type: hence
  // round_to.
  at::Tensor rows = tensor->narrow(0, first_row, values.size(0));
  rows.copy_(round_to == tensor->scalar_type() ? values : values.to(round_to));
}

const Parameter& find(const std::vector<Parameter>& parameters, const std::string& name) {
  const auto found = std::find_if(parameters.begin(), parameters.end(),
                                  [&](const Parameter& p) { return p.name() == name; });
  TLT_CHECK(found != parameters.end(), "no parameter ", name);
  return *found;
}

void Gradients::zero() {
  for (at::Tensor& tensor : tensors)
    if (tensor.defined()) tensor.zero_();
}

at::Tensor* Gradients::find(int64_t index) {
  return index >= 0 && at(index).defined() ? &at(index) : nullptr;
}

void Gradients::add_linear(const Device& device, int64_t weight, const at::Tensor& dy,
                           const at::Tensor& x, int64_t bias) {
  if (!in_place.empty())
    if (MatrixGradient* taker = in_place[static_cast<size_t>(weight)]) taker->add(dy, x);
  ops::linear_backward_weight(device, dy, x, at(weight), find(bias));
}

Gradients make_gradients(const Device& device, const std::vector<Parameter>& parameters) {
  Gradients gradients;
  for (const Parameter& parameter : parameters)
    gradients.tensors.push_back(device.zeros(parameter.shape(), at::kFloat));
  return gradients;
}

void initialize(const Device& device, const std::vector<Parameter>& parameters, uint64_t seed) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    at::Tensor values = at::empty(parameter.shape(), at::kFloat);
    RandomStream random(seed, {.prompt = static_cast<uint32_t>(i)});
    const std::string& name = parameter.parts.front().name;
    const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
    double scale = 1.0 / std::sqrt(static_cast<double>(values.size(-1)));
    if (has("embed_tokens") || has("lm_head")) scale = 0.02;
    if (has("o_proj") || has("down_proj")) scale *= 0.3;
    if (has("norm")) {
      values.fill_(1);
    } else if (has(".bias")) {
      values.zero_();
    } else {
      float* data = values.data_ptr<float>();
      for (int64_t j = 0; j < values.numel(); ++j)
        data[j] = static_cast<float>(scale * random.normal());
    }
    parameter.write(device, values.to(device.torch()));
  }
}

int64_t ParameterList::add_matrix(const std::string& name, ops::Weight& weight) {
  return add_matrix({{name, 0, weight.rows()}}, weight);
}

int64_t ParameterList::add_matrix(std::vector<Parameter::Part> parts, ops::Weight& weight) {
  return add({.parts = std::move(parts), .matrix = &weight, .decays = true});
}

int64_t ParameterList::add_table(const std::string& name, at::Tensor& table) {
  return add({.parts = {{name, 0, table.size(0)}}, .tensor = &table, .decays = true});
}

int64_t ParameterList::add_vector(const std::string& name, at::Tensor& values) {
  return values.defined() ? add_vector({{name, 0, values.size(0)}}, values) : -1;
}

int64_t ParameterList::add_vector(std::vector<Parameter::Part> parts, at::Tensor& values) {
  return values.defined() ? add({.parts = std::move(parts), .tensor = &values}) : -1;
}

int64_t ParameterList::add(Parameter parameter) {
  parameter.round_to = type_;
  parameter.stages = stages_;
  parameters_.push_back(std::move(parameter));
  return static_cast<int64_t>(parameters_.size()) - 1;
}

}  // namespace tlt::model
