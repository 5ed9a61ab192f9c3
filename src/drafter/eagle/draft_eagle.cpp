// SPDX-License-Identifier: Apache-2.0
#include "drafter/eagle/draft_eagle.h"

#include <ATen/ATen.h>

#include "base/check.h"
#include "drafter/eagle/draft_tape.h"
#include "drafter/files/draft_config.h"

namespace tlt::drafter {
namespace {

constexpr const char* kLayer = "layers.0.";

const model::ModelConfig& checked(const model::ModelConfig& config,
                                  const model::PolicyModel& target) {
  check_fits_target(config, target.config(), "drafter");
  return config;
}

}  // namespace

model::ModelConfig EagleNetwork::config_for(const model::ModelConfig& target,
                                            model::Family family) {
  model::ModelConfig config = target;
  config.family = family;
  config.layers = 1;
  config.tied = false;
  config.attention_bias = family == model::Family::kQwen2;
  config.source = draft_config_json(config, target.source);
  return config;
}

EagleNetwork::EagleNetwork(const model::PolicyModel& target, const model::ModelConfig& config)
    : DraftNetwork(target, checked(config, target), /*input_columns=*/config.hidden),
      fc_(target.device(), config.hidden, 2 * config.hidden, target.type()) {
  model::ParameterList list(parameters_, type());
  fc_index_ = list.add_matrix("fc.weight", fc_);
  layer_.list_parameters(kLayer, list);
}

void EagleNetwork::initialize(uint64_t seed) { model::initialize(device(), parameters_, seed); }

std::unique_ptr<DraftNetwork> EagleNetwork::copy() const {
  auto copy = std::make_unique<EagleNetwork>(target_, config_);
  copy->copy_weights(*this);
  return copy;
}

void EagleNetwork::initialize_from_target(uint64_t seed) {
  TLT_CHECK_INPUT(
      config_.family == target_.config().family,
      "the draft model's layer is of another family than the target's and cannot start "
      "from it; give the draft model the target's family, or start from random weights");
  initialize(seed);
  // FC = [random, identity]: an embedding is a few hundredths, a normed h_t about one.
  const int64_t size = config_.hidden;
  const model::Parameter& fc = parameters_[static_cast<size_t>(fc_index_)];
  at::Tensor values = fc.read(device());
  values.narrow(1, size, size).copy_(at::eye(size, values.options()));
  fc.write(device(), values);

  const std::string last = "model.layers." + std::to_string(target_.config().layers - 1) + ".";
  for (const model::Parameter& parameter : parameters_) {
    if (!parameter.name().starts_with(kLayer)) continue;
    const std::string name = last + parameter.name().substr(std::string_view(kLayer).size());
    const model::Parameter& source = model::find(target_.parameters(), name);
    TLT_CHECK_INPUT(source.shape() == parameter.shape(), "the draft model's ", parameter.name(),
                    " is ", at::IntArrayRef(parameter.shape()), " and the target's ", name, " ",
                    at::IntArrayRef(source.shape()),
                    "; give the draft model the target's sizes, or start from random weights");
    parameter.write(device(), source.read(device()));
  }
}

const at::Tensor& EagleNetwork::project(const at::Tensor& states, model::RowBuffer&) const {
  return states;
}

void EagleNetwork::project_backward(const at::Tensor&, const at::Tensor&, model::Gradients&) const {
}

void EagleNetwork::enter(const ops::Batch& batch, const at::Tensor& features,
                         DraftPass& pass) const {
  const int64_t rows = batch.rows(), size = config_.hidden;
  TLT_CHECK(features.dim() == 2 && features.size(0) == rows && features.size(1) == size,
            "features ", features.sizes(), " for ", rows, " pairs of ", size);
  pass.embedding.resize(device(), rows, size, type());
  pass.joined.resize(device(), rows, 2 * size, type());
  pass.stream.resize(device(), rows, size, type());
  target_.embed(batch, pass.embedding.view());
  ops::put_columns(device(), pass.embedding.view(), pass.joined.view(), 0);
  ops::put_columns(device(), features, pass.joined.view(), size);
  ops::linear(device(), pass.joined.view(), fc_, pass.stream.view());
}

const at::Tensor& EagleNetwork::input(DraftPass& pass) const { return pass.stream.view(); }

void EagleNetwork::enter_backward(DraftPass& pass, DraftScratch& s, at::Tensor& d_stream,
                                  model::Gradients& gradients, at::Tensor* d_features) const {
  ops::linear_backward_weight(device(), d_stream, pass.joined.view(),
                              gradient(gradients, fc_index_));
  if (!d_features) return;
  ops::linear_backward_input(device(), d_stream, fc_, s.d_input.view());
  d_features->copy_(s.d_input.view().narrow(1, config_.hidden, config_.hidden));
}

const at::Tensor& EagleNetwork::read(const at::Tensor& next, model::RowBuffer&) const {
  return next;
}

void EagleNetwork::read_backward(const at::Tensor& d_read, const at::Tensor&, at::Tensor& d_next,
                                 model::Gradients&) const {
  d_next.add_(d_read);
}

void EagleNetwork::head(const at::Tensor& read, at::Tensor& out) const {
  target_.logits(read, out);
}

void EagleNetwork::head_backward(const at::Tensor&, const at::Tensor& d_logits, at::Tensor& d_read,
                                 model::Gradients&) const {
  target_.logits_backward_input(d_logits, d_read);
}

}  // namespace tlt::drafter
