// The paths of saved weights, tinker://MODEL/weights/NAME and tinker://MODEL/sampler_weights/NAME,
// and their folders.
//
// Threading  any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace tlt::tinker {

// "a/b/c" is {a, b, c}.
std::vector<std::string> parts_of(const std::string& text);

std::string weights_path(const std::string& model, const std::string& name);
std::string sampler_weights_path(const std::string& model, const std::string& name);

// Its folder in `save_folder`, which it never leaves. InputError: it is no such path.
std::string folder_of(const std::string& save_folder, const std::string& path);

}  // namespace tlt::tinker
