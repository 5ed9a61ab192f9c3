// SPDX-License-Identifier: Apache-2.0
#include <c10/core/Device.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>

#include "ops/cuda/kernels.h"
#include "runtime/cuda_plugin.h"

namespace tlt::ops {
namespace {

std::array<const DeviceKernels*, c10::COMPILE_TIME_MAX_DEVICE_TYPES>& tables() {
  static std::array<const DeviceKernels*, c10::COMPILE_TIME_MAX_DEVICE_TYPES> all = {};
  return all;
}

}  // namespace

const DeviceKernels* device_kernels(const c10::Device& device) {
  const DeviceKernels*& kernels = tables()[static_cast<size_t>(device.type())];
  if (!kernels && device.is_cuda())
    kernels = runtime::cuda_function<const DeviceKernels*()>("tlt_device_kernels")();
  if (kernels && kernels->use_stream) {
    const c10::impl::VirtualGuardImpl guard(device.type());
    kernels->use_stream(guard.getStreamNativeHandle(guard.getStream(device)));
  }
  return kernels;
}

void set_device_kernels(c10::DeviceType type, const DeviceKernels* kernels) {
  tables()[static_cast<size_t>(type)] = kernels;
}

}  // namespace tlt::ops
