// Declarations for ProcessGroupGloo.hpp of torch 2.11: see the README of gloo_shim.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace gloo {

// Used through pointers only.
class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
