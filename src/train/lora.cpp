// SPDX-License-Identifier: Apache-2.0
#include "train/lora.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"
#include "base/checksum.h"
#include "base/random.h"
#include "ops/linear.h"

namespace tlt::train {
namespace {

// Separates the random numbers of A from those of samples (base/random.h).
constexpr uint32_t kPurpose = uint32_t{0x10ca} << 16;

// "model.layers.0.self_attn.q_proj" for that name with ".weight".
std::string module_of(const std::string& weight) { return weight.substr(0, weight.rfind('.')); }

// "q_proj" for that module name, or for any suffix of it.
std::string projection_of(const std::string& module) {
  return module.substr(module.rfind('.') + 1);
}

bool is_known(const std::string& projection) {
  return std::ranges::find(kLoraProjections, projection) != std::end(kLoraProjections);
}

std::string name_in_peft(const std::string& weight, const char* factor) {
  return "base_model.model." + module_of(weight) + "." + factor + ".weight";
}

// Decides which modules are targets, and checks that each target matches one.
class Choice {
 public:
  explicit Choice(const LoraConfig& config) : config_(config) {}

  bool takes(const std::string& module) {
    if (!is_known(projection_of(module))) return false;
    bool taken = config_.is_all_linear();
    for (const std::string& target : config_.targets)
      if (module == target || module.ends_with("." + target)) taken = used_[target] = true;
    return taken;
  }
  void check() const {
    for (const std::string& target : config_.targets)
      TLT_CHECK_INPUT(config_.is_all_linear() || used_.contains(target), "target_modules has '",
                      target, "', and the model has no such module");
  }

 private:
  const LoraConfig& config_;
  std::map<std::string, bool> used_;
};

// A as PEFT initializes it: kaiming_uniform_(a = sqrt 5), which is uniform in ±1 / sqrt(K).
at::Tensor initial_a(int64_t rank, int64_t columns, uint64_t seed, uint32_t module) {
  at::Tensor values = at::empty({rank, columns}, at::kFloat);
  RandomStream random(seed, {.prompt = module, .sample = kPurpose});
  const double bound = 1 / std::sqrt(static_cast<double>(columns));
  float* data = values.data_ptr<float>();
  for (int64_t i = 0; i < values.numel(); ++i)
    data[i] = static_cast<float>(bound * (2 * random.uniform() - 1));
  return values;
}

std::string_view bytes_of(const at::Tensor& values) {
  return {static_cast<const char*>(values.data_ptr()), values.nbytes()};
}

}  // namespace

double LoraConfig::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha / (use_rslora ? std::sqrt(r) : r);
}

void LoraConfig::check(const std::string& where) const {
  TLT_CHECK_INPUT(rank >= 1, where, ": the rank is ", rank, "; give at least 1");
  TLT_CHECK_INPUT(std::isfinite(alpha) && alpha > 0, where, ": lora_alpha is ", alpha,
                  "; give a positive number");
  TLT_CHECK_INPUT(!targets.empty(), where, ": target_modules is empty; use all-linear");
  for (const std::string& target : targets)
    TLT_CHECK_INPUT(is_all_linear() || is_known(projection_of(target)), where,
                    ": target_modules has '", target,
                    "'; use all-linear, or some of q_proj, k_proj, v_proj, o_proj, gate_proj, "
                    "up_proj and down_proj");
}

// The additions to one matrix of the model: one for each of its parts that is a target.
class LoraAdapter::Target final : public model::MatrixGradient {
 public:
  Target(const Device& device, const model::Parameter& parameter, const LoraConfig& config)
      : device_(device), parameter_(parameter), scale_(config.scale()) {}

  void add_factor(const model::Parameter::Part& part, const at::Tensor& a) {
    const int64_t rank = a.size(0), even = rank + rank % 2;  // a Weight's columns are even
    const at::ScalarType type = parameter_.round_to;
    factors_.push_back({.part = part,
                        .a = a.to(device_.torch()),
                        .b = device_.zeros({part.rows, rank}, at::kFloat),
                        .base = parameter_.read(device_, part),
                        .down = ops::Weight(device_, rank, a.size(1), type),
                        .up = ops::Weight(device_, part.rows, even, type),
                        .d_a = {},
                        .d_b = {}});
  }
  bool empty() const { return factors_.empty(); }

  // REQUIRES: no factor is added afterwards.
  void list_parameters(model::ParameterList& list) {
    for (Factor& factor : factors_) {
      list.add_table(name_in_peft(factor.part.name, "lora_A"), factor.a);
      list.add_table(name_in_peft(factor.part.name, "lora_B"), factor.b);
    }
  }

  // Takes the next gradients in the order of list_parameters().
  void collect_into(const model::Gradients& gradients, size_t& next) {
    for (Factor& factor : factors_) {
      factor.d_a = gradients.tensors.at(next++);
      factor.d_b = gradients.tensors.at(next++);
    }
  }

  void add(const at::Tensor& dy, const at::Tensor& x) override {
    for (Factor& factor : factors_)
      add(factor, dy.narrow(1, factor.part.first_row, factor.part.rows).contiguous(), x);
  }

  void merge() {
    for (Factor& factor : factors_) merge(factor);
  }

  // The base values of a part; undefined: the part has no factor.
  at::Tensor base(const model::Parameter::Part& part) const {
    for (const Factor& factor : factors_)
      if (factor.part.name == part.name) return factor.base;
    return {};
  }

 private:
  struct Factor {
    model::Parameter::Part part;
    at::Tensor a, b;       // [R, K], [n, R] float32
    at::Tensor base;       // [n, K] in the compute type
    ops::Weight down, up;  // s A [R, K] and s B [n, R, + 1 if R is odd] in the compute type
    at::Tensor d_a, d_b;   // where gradients are added
  };

  void add(Factor& factor, const at::Tensor& dy, const at::Tensor& x) {
    const int64_t rows = x.size(0), rank = factor.a.size(0);
    const at::ScalarType type = parameter_.round_to;
    at::Tensor through = device_.empty({rows, rank}, type);
    ops::linear(device_, x, factor.down, through);
    ops::linear_backward_weight(device_, dy, through, factor.d_b);
    at::Tensor back = device_.empty({rows, factor.up.columns()}, type);
    ops::linear_backward_input(device_, dy, factor.up, back);
    ops::linear_backward_weight(device_, back.narrow(1, 0, rank).contiguous(), x, factor.d_a);
  }

  void merge(Factor& factor) {
    const at::Tensor b = factor.b * scale_;
    factor.down.assign(device_, factor.a * scale_);
    factor.up.assign(device_, at::constant_pad_nd(b, {0, factor.up.columns() - b.size(1)}));
    if (!b.any().item<bool>())  // adding zero would turn a base's -0 into +0
      return parameter_.write(device_, factor.base, factor.part.first_row);
    at::Tensor values = factor.base.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
    // values += B A: the sum over "rows" of a gradient is the sum over R here.
    ops::linear_backward_weight(device_, b.t().contiguous(), factor.a, values);
    parameter_.write(device_, values, factor.part.first_row);
  }

  const Device& device_;
  const model::Parameter& parameter_;
  const double scale_;
  std::vector<Factor> factors_;
};

LoraAdapter::LoraAdapter(const model::PolicyModel& model, const LoraConfig& config, uint64_t seed)
    : model_(model), config_(config) {
  config.check("adapter");
  Choice choice(config_);
  uint32_t module = 0;
  model::ParameterList list(parameters_, at::kFloat);
  for (const model::Parameter& parameter : model.parameters()) {
    auto target = std::make_unique<Target>(model.device(), parameter, config);
    for (const model::Parameter::Part& part : parameter.parts)
      if (parameter.matrix && choice.takes(module_of(part.name)))
        target->add_factor(part,
                           initial_a(config.rank, parameter.matrix->columns(), seed, module++));
    if (target->empty()) target.reset();
    list.set_stages(parameter.stages);
    if (target) target->list_parameters(list);
    targets_.push_back(std::move(target));
  }
  choice.check();
  merge();
}

LoraAdapter::~LoraAdapter() = default;

model::Gradients LoraAdapter::route(const model::Gradients& gradients) {
  TLT_CHECK(gradients.tensors.size() == parameters_.size());
  model::Gradients routed;
  routed.tensors.resize(targets_.size());
  size_t next = 0;
  for (const auto& target : targets_) {
    if (target) target->collect_into(gradients, next);
    routed.in_place.push_back(target.get());
  }
  return routed;
}

void LoraAdapter::merge() {
  for (const auto& target : targets_)
    if (target) target->merge();
}

std::string LoraAdapter::base_checksum() const {
  Sha256 hash;
  for (size_t i = 0; i < targets_.size(); ++i) {
    const model::Parameter& parameter = model_.parameters()[i];
    for (const model::Parameter::Part& part : parameter.parts) {
      at::Tensor values = targets_[i] ? targets_[i]->base(part) : at::Tensor();
      if (!values.defined()) values = parameter.read(model_.device(), part);
      hash.update(part.name);
      hash.update(bytes_of(values.cpu().contiguous()));
    }
  }
  return hash.hex();
}

const char* LoraAdapter::base_type() const {
  return model_.type() == at::kFloat ? "float32" : "bfloat16";
}

}  // namespace tlt::train
