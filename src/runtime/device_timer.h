// DeviceTimer: the seconds that a device needs for the work launched between start() and stop(). A
// clock of the host would measure the launches: the device works on while the host continues.
//
//   timer.start();
//   … launch …
//   timer.stop();
//   … a copy to the host, or device.synchronize() …
//   timer.seconds()
//
// Not for the CPU, whose work has ended when the call returns: use a Stopwatch.
//
// Owns       two events of the device.
// Threading  the thread that drives the device.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "runtime/device.h"

namespace tlt::runtime {

class DeviceTimer {
 public:
  // REQUIRES: the device is not the CPU.
  explicit DeviceTimer(const Device& device);
  DeviceTimer(const DeviceTimer&) = delete;
  DeviceTimer& operator=(const DeviceTimer&) = delete;
  ~DeviceTimer();

  void start();
  void stop();
  // REQUIRES: the host has waited for that work.
  double seconds() const;

 private:
  struct Events;

  at::Device device_;
  std::unique_ptr<Events> events_;
};

}  // namespace tlt::runtime
