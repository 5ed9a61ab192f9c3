// SPDX-License-Identifier: Apache-2.0
#include "drafter/files/draft_tensors.h"

#include <ATen/ATen.h>

#include <set>

#include "base/check.h"
#include "model/parameter_file.h"

namespace tlt::drafter {

DraftTensors::DraftTensors(const std::string& folder,
                           const std::function<std::string(std::string)>& plain_name)
    : weights_(folder) {
  for (const std::string& name : weights_.names()) {
    const auto [other, is_new] = names_.emplace(plain_name(name), name);
    TLT_CHECK_INPUT(is_new, weights_.file_of(name), ": tensors ", other->second, " and ", name,
                    " are the same one; remove one of them");
  }
}

void DraftTensors::load(const Device& device, const std::vector<model::Parameter>& parameters,
                        const std::function<void(const std::string& plain)>& check_other) {
  std::set<std::string> expected;
  for (const model::Parameter& parameter : parameters)
    for (const model::Parameter::Part& part : parameter.parts) expected.insert(part.name);
  for (const std::string& name : expected)
    TLT_CHECK_INPUT(has(name), weights_.path(), ": no tensor ", name, " (nor model.", name,
                    "); the weights do not belong to this config.json, or a file is missing");
  for (const auto& [plain, name] : names_)
    if (!expected.contains(plain)) check_other(plain);
  for (const model::Parameter& parameter : parameters)
    for (const model::Parameter::Part& part : parameter.parts)
      model::load_part(weights_, names_.at(part.name), device, parameter, part);
}

// SGLang's classes have a bias in FC, and trained networks have none (EAGLE): a zero bias is
// equivalent.
void DraftTensors::check_zero_bias(const std::string& plain) {
  if (at::count_nonzero(read(plain)).item<int64_t>() == 0) return;
  refuse(
      plain,
      " is not zero, and this draft model's fc has no bias, so that it would predict other tokens "
      "than it was trained to; train it without, or set the bias to zero");
}

void DraftTensors::check_embedding(const std::string& plain,
                                   const model::ModelConfig& config) const {
  const std::string& name = names_.at(plain);
  const model::TensorEntry& entry = *weights_.find(name);
  const std::vector<int64_t> want = {config.vocabulary, config.hidden};
  TLT_CHECK_INPUT(entry.shape == want, weights_.file_of(name), ": tensor ", name, " has shape ",
                  at::IntArrayRef(entry.shape),
                  " and the target's embedding, which is used instead, ", at::IntArrayRef(want),
                  "; give a draft model that was made for this target");
}

void DraftTensors::refuse(const std::string& plain, const std::string& reason) const {
  const std::string& name = names_.at(plain);
  throw InputError(weights_.file_of(name) + ": tensor " + name + reason);
}

}  // namespace tlt::drafter
