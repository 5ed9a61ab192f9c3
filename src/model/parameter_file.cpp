// SPDX-License-Identifier: Apache-2.0
#include "model/parameter_file.h"

#include <ATen/ATen.h>

#include "base/check.h"

namespace tlt::model {

void load_part(SafetensorsFolder& weights, const std::string& name, const Device& device,
               const Parameter& parameter, const Parameter::Part& part) {
  const TensorEntry& entry = *weights.find(name);
  const auto want = parameter.shape(part);
  TLT_CHECK_INPUT(entry.shape == want, weights.file_of(name), ": tensor ", name, " has shape ",
                  at::IntArrayRef(entry.shape), " and config.json requires ", at::IntArrayRef(want),
                  "; give weights and config.json of the same model");
  at::Tensor values = weights.read(name);
  TLT_CHECK_INPUT(at::isFloatingType(values.scalar_type()), weights.file_of(name), ": tensor ",
                  name, " has type ", data_type_name(entry.type),
                  "; weights must be F32, BF16 or F16");
  if (values.scalar_type() != parameter.round_to) values = values.to(at::kFloat);
  parameter.write(device, values.to(device.torch()), part.first_row);
}

std::vector<TensorSource> sources_of(const Device& device,
                                     const std::vector<Parameter>& parameters) {
  std::vector<TensorSource> sources;
  for (const Parameter& parameter : parameters)
    for (const Parameter::Part& part : parameter.parts)
      sources.push_back({part.name, parameter.round_to, parameter.shape(part),
                         [&device, &parameter, part] { return parameter.read(device, part); }});
  return sources;
}

std::vector<TensorSource> copy_values(const std::vector<TensorSource>& sources) {
  std::vector<TensorSource> copies;
  for (const TensorSource& source : sources)
    copies.push_back(TensorSource::of(source.name, source.values().cpu()));
  return copies;
}

}  // namespace tlt::model
