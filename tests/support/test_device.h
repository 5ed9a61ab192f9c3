// The device that tests run on (test_device_name.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/device.h"
#include "tests/support/test_device_name.h"

namespace tlt::tests {

inline Device test_device(int threads = 1) { return Device::parse(test_device_name(), threads); }

}  // namespace tlt::tests
