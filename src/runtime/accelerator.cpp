// SPDX-License-Identifier: Apache-2.0
#include "runtime/accelerator.h"

#include <array>

#include "base/check.h"

namespace tlt::runtime {
namespace {

using Accelerators =
    std::array<Accelerator*, static_cast<size_t>(at::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES)>;

Accelerators& accelerators() {
  static Accelerators all{};
  return all;
}

}  // namespace

Accelerator& accelerator(const Device& device) {
  Accelerator* found = accelerators()[static_cast<size_t>(device.torch().type())];
  TLT_CHECK(found != nullptr, "no accelerator for ", device.name());
  return *found;
}

void register_accelerator(at::DeviceType type, Accelerator& accelerator) {
  accelerators()[static_cast<size_t>(type)] = &accelerator;
}

}  // namespace tlt::runtime
