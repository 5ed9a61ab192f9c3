// Loading parameters from safetensors files and describing them for writing.
//
// Not here   the names in a folder (hf_folder.h, draft_folder.h).
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "model/parameter.h"
#include "model/safetensors.h"

namespace tlt::model {

// Sets a part from the folder's tensor `name`, rounded. Throws InputError that names file and
// tensor if its shape differs or its type is not one of weights. REQUIRES: the tensor exists.
void load_part(SafetensorsFolder& weights, const std::string& name, const Device& device,
               const Parameter& parameter, const Parameter::Part& part);

// All parts, to be written in the compute type. REQUIRES: the network lives and does not change
// until the result has been used; otherwise use copy_values() of it.
std::vector<TensorSource> sources_of(const Device& device,
                                     const std::vector<Parameter>& parameters);

// The same with copies of the present values, on the CPU.
std::vector<TensorSource> copy_values(const std::vector<TensorSource>& sources);

}  // namespace tlt::model
