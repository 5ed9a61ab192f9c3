// DraftTensors: the tensors of a draft model's folder, under the names of its network.
//
// Owns       the open files.
// Not here   which other tensors are allowed (draft_folder.cpp, draft_eagle3_folder.cpp).
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>

#include "model/model_config.h"
#include "model/parameter.h"
#include "model/safetensors.h"

namespace tlt::drafter {

class DraftTensors {
 public:
  // `plain_name` maps a name in the file to the network's. Throws InputError if two tensors map to
  // the same name.
  DraftTensors(const std::string& folder,
               const std::function<std::string(std::string)>& plain_name);

  // Sets all parameters. Throws InputError for a tensor that is missing or has another shape; first
  // calls `check_other`, with the network's name, for tensors that belong to no parameter.
  void load(const Device& device, const std::vector<model::Parameter>& parameters,
            const std::function<void(const std::string& plain)>& check_other);

  bool has(const std::string& plain) const { return names_.contains(plain); }
  at::Tensor read(const std::string& plain) { return weights_.read(names_.at(plain)); }
  // nullptr: no such tensor.
  const model::TensorEntry* find(const std::string& plain) const {
    return has(plain) ? weights_.find(names_.at(plain)) : nullptr;
  }
  // Names in the file by the network's names.
  const std::map<std::string, std::string>& names() const { return names_; }

  // Throw InputError about tensors that the network does not use. REQUIRES: has(plain).
  void check_zero_bias(const std::string& plain);
  void check_embedding(const std::string& plain, const model::ModelConfig& config) const;
  [[noreturn]] void refuse(const std::string& plain, const std::string& reason) const;

 private:
  model::SafetensorsFolder weights_;
  std::map<std::string, std::string> names_;  // in the file, by the network's name
};

}  // namespace tlt::drafter
