// json_fault: what an exception of nlohmann/json says, for a sentence to the user: without the
// names and numbers of the library.
//
//   } catch (const nlohmann::json::exception& error) {
//     throw InputError(path + ": not a state (" + json_fault(error) + "); delete it");
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <string>

namespace tlt {

// Of another exception: its text as it is.
std::string json_fault(const std::exception& error);

}  // namespace tlt
