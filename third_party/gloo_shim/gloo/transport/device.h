// Declarations for ProcessGroupGloo.hpp of torch 2.11: see the README of gloo_shim.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace gloo::transport {

class Device;
class UnboundBuffer;

}  // namespace gloo::transport
