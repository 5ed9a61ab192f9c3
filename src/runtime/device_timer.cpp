// SPDX-License-Identifier: Apache-2.0
#include "runtime/device_timer.h"

#include <c10/core/Event.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "base/check.h"

namespace tlt::runtime {

struct DeviceTimer::Events {
  explicit Events(at::DeviceType type)
      : start(type, c10::EventFlag::BACKEND_DEFAULT), stop(type, c10::EventFlag::BACKEND_DEFAULT) {}

  c10::Event start, stop;
};

namespace {

c10::Stream stream_of(at::Device device) {
  return c10::impl::getDeviceGuardImpl(device.type())->getStream(device);
}

}  // namespace

DeviceTimer::DeviceTimer(const Device& device)
    : device_(device.torch()), events_(std::make_unique<Events>(device.torch().type())) {
  TLT_CHECK(!device.is_cpu(), "the CPU has no events");
}

DeviceTimer::~DeviceTimer() = default;

void DeviceTimer::start() { events_->start.record(stream_of(device_)); }

void DeviceTimer::stop() { events_->stop.record(stream_of(device_)); }

double DeviceTimer::seconds() const {
  constexpr double kSecondsPerMillisecond = 1e-3;
  return kSecondsPerMillisecond * events_->start.elapsedTime(events_->stop);
}

}  // namespace tlt::runtime
