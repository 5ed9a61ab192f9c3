// The device that tests run on: the CPU, or that of TLT_TEST_DEVICE, which the ctest entries with
// the labels `cuda` and `far` set (tests/support/far_device.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string>

#include "runtime/device.h"

namespace tlt::tests {

inline std::string test_device_name() {
  const char* name = std::getenv("TLT_TEST_DEVICE");
  return name ? name : "cpu";
}

inline bool tests_the_cpu() { return test_device_name() == "cpu"; }

inline Device test_device(int threads = 1) { return Device::parse(test_device_name(), threads); }

}  // namespace tlt::tests
