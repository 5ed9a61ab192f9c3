// The device of the environment variable TLT_TEST_DEVICE, which the ctest entries with the labels
// `cuda` and `far` set (tests/support/far_device.h); otherwise the CPU.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string>

namespace tlt::tests {

// Set in the environment of a program with the device "far": ATen's bodies run instead of emulated
// kernels, with which a run of many steps takes minutes.
inline constexpr const char* kWithoutKernels = "TLT_FAR_WITHOUT_KERNELS";

inline std::string test_device_name() {
  const char* name = std::getenv("TLT_TEST_DEVICE");
  return name ? name : "cpu";
}

inline bool tests_the_cpu() { return test_device_name() == "cpu"; }

}  // namespace tlt::tests
