// OnDevice: the batch of an operation on its device: the one that the caller uploaded, or one of the
// operation's own.
//
// Borrows    the caller's DeviceBatch, where there is one.
// Threading  the thread that drives the device.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "ops/attention.h"
#include "ops/device_batch.h"

namespace tlt::ops {

class OnDevice {
 public:
  explicit OnDevice(const AttentionRows& rows) : given_(rows.on_device) {
    if (!given_) own_.emplace(rows.batch, rows.cache.storage.device());
  }
  const DeviceBatch& operator*() const { return given_ ? *given_ : *own_; }
  const DeviceBatch* operator->() const { return &**this; }

 private:
  const DeviceBatch* given_;
  std::optional<DeviceBatch> own_;
};

}  // namespace tlt::ops
