// Parameters and the safetensors files they are read from and written to.
//
// Not here   which names a folder must have (hf_folder.h, draft_folder.h).
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "model/parameter.h"
#include "model/safetensors.h"

namespace tlt::model {

// Sets a part from the tensor that the folder has under `name`, rounding. InputError names the file
// and the tensor when its shape is another or its type none of weights. REQUIRES: there is one.
void load_part(SafetensorsFolder& weights, const std::string& name, const Device& device,
               const Parameter& parameter, const Parameter::Part& part);

// All parts, to be written in the compute type. REQUIRES: the network lives and does not change
// until the result has been used; or take copy_values() of it.
std::vector<TensorSource> sources_of(const Device& device,
                                     const std::vector<Parameter>& parameters);

// The same with the values of now, on the CPU.
std::vector<TensorSource> copy_values(const std::vector<TensorSource>& sources);

}  // namespace tlt::model
