// DraftTensors: the tensors of a drafter's folder, under the names its network has for them.
//
// Owns       the open files.
// Not here   which tensors a drafter may have besides (draft_folder.cpp, draft_eagle3_folder.cpp).
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

namespace tlt::model {

class DraftTensors {
 public:
  // `plain_name` makes the network's name of the file's. InputError when two tensors get the same.
  DraftTensors(const std::string& folder,
               const std::function<std::string(std::string)>& plain_name);

  // Sets all parameters. InputError names a tensor that is missing or has another shape; tensors
  // that are none of a parameter go to `check_other` first, under the network's name.
  void load(const Device& device, const std::vector<Parameter>& parameters,
            const std::function<void(const std::string& plain)>& check_other);

  bool has(const std::string& plain) const { return names_.contains(plain); }
  at::Tensor read(const std::string& plain) { return weights_.read(names_.at(plain)); }
  // nullptr: it has none.
  const TensorEntry* find(const std::string& plain) const {
    return has(plain) ? weights_.find(names_.at(plain)) : nullptr;
  }
  // The name in the file of each, by the network's.
  const std::map<std::string, std::string>& names() const { return names_; }

  // InputErrors about tensors the network has no place for. REQUIRES: there is one.
  void check_zero_bias(const std::string& plain);
  void check_embedding(const std::string& plain, const ModelConfig& config) const;
  [[noreturn]] void refuse(const std::string& plain, const std::string& reason) const;

 private:
  SafetensorsFolder weights_;
  std::map<std::string, std::string> names_;  // in the file, by the network's
};

}  // namespace tlt::model
