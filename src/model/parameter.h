// Parameter: a trainable tensor of a network, and the names it has in a Hugging Face file.
//
// Owns       nothing: a parameter points into the network that lists it.
// Not here   which parameters there are (policy_model.h, draft_network.h); the optimizer (train/).
// Threading  engine thread only.
//
//   for (const Parameter& parameter : model.parameters())
//     parameter.write(device, parameter.read(device) * 0.5);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "ops/weight.h"

namespace tlt::model {

// The stages of a policy's backward pass (policy_model.h) that add to a gradient; by default it is
// complete at the end of the pass only.
struct BackwardStages {
  int64_t first = 0, last = std::numeric_limits<int64_t>::max();
};

// Projections that read the same input are fused (q, k, v; gate, up): one Parameter, several
// tensors of the file.
struct Parameter {
  struct Part {
    std::string name;  // "model.layers.0.self_attn.q_proj.weight"
    int64_t first_row = 0;
    int64_t rows = 0;
  };
  std::vector<Part> parts;
  ops::Weight* matrix = nullptr;  // [N, K], or …
  at::Tensor* tensor = nullptr;  // … norm weight or bias [N] (float32 holding compute-type values),
                                 // or an untied embedding [V, D]
  bool decays = false;           // weight decay applies: matrices and embeddings
  at::ScalarType round_to = at::kFloat;  // the compute type of the values in `tensor`
  BackwardStages stages = {};

  std::string name() const { return parts.front().name; }
  std::vector<int64_t> shape() const;
  std::vector<int64_t> shape(const Part& part) const;
  // Float32 copy of the values, in shape().
  at::Tensor read(const Device& device) const;
  // Copy of a part's values in the compute type, as in files.
  at::Tensor read(const Device& device, const Part& part) const;
  // Sets the values from float32 or compute-type values [rows of part or of all, …], rounding to the
  // compute type.
  void write(const Device& device, const at::Tensor& values, int64_t first_row = 0) const;
};

// The parameter with this name. REQUIRES: there is one.
const Parameter& find(const std::vector<Parameter>& parameters, const std::string& name);

// Receives the gradient of a matrix as its factors, dW = dy^T x, so that dW itself need not be
// computed: used if something smaller is trained instead of the matrix (train/lora.h).
class MatrixGradient {
 public:
  virtual ~MatrixGradient() = default;
  virtual void add(const at::Tensor& dy, const at::Tensor& x) = 0;  // [T, N], [T, K]
};

// Float32 gradients, in the order of the network's parameters().
struct Gradients {
  std::vector<at::Tensor> tensors;        // undefined: this gradient is not needed
  std::vector<MatrixGradient*> in_place;  // empty, or one for each parameter: null, or the receiver
                                          // that replaces tensors[i]
  void zero();
  at::Tensor& at(int64_t index) { return tensors[static_cast<size_t>(index)]; }
  // Null: there is no such parameter (index -1), or its gradient is not needed.
  at::Tensor* find(int64_t index);
  // The gradient of y = x W^T + bias.  dy [T, N], x [T, K]; bias: a parameter, -1: none.
  void add_linear(const Device& device, int64_t weight, const at::Tensor& dy, const at::Tensor& x,
                  int64_t bias = -1);
};

Gradients make_gradients(const Device& device, const std::vector<Parameter>& parameters);

// Random values for a training from scratch: embeddings 0.02, matrices fan_in^-1/2,
// residual-writing ones 0.3 of that; norms 1, biases 0.
void initialize(const Device& device, const std::vector<Parameter>& parameters, uint64_t seed);

// Lists a network's parameters. Each add_… returns the index of the parameter it adds.
class ParameterList {
 public:
  ParameterList(std::vector<Parameter>& parameters, at::ScalarType type)
      : parameters_(parameters), type_(type) {}

  int64_t add_matrix(const std::string& name, ops::Weight& weight);
  int64_t add_matrix(std::vector<Parameter::Part> parts, ops::Weight& weight);
  int64_t add_table(const std::string& name, at::Tensor& table);
  // Of the parameters that are added from now on.
  void set_stages(BackwardStages stages) { stages_ = stages; }
  // A norm's weight or a bias; returns -1 if it is undefined.
  int64_t add_vector(const std::string& name, at::Tensor& values);
  int64_t add_vector(std::vector<Parameter::Part> parts, at::Tensor& values);

 private:
  int64_t add(Parameter parameter);

  std::vector<Parameter>& parameters_;
  at::ScalarType type_;
  BackwardStages stages_;
};

}  // namespace tlt::model
