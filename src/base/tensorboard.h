// TensorboardWriter: writes an event file for TensorBoard. The file is a TFRecord of
// `tensorflow.Event` messages; the few fields of a scalar are encoded here, so that no protobuf
// library is needed.
//
// Threading  one thread at a time.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/files.h"

namespace tlt {

class Metrics;

class TensorboardWriter {
 public:
  // Starts a new file <folder>/events.out.tfevents.<second>.<host>.<process>.<count>, which makes
  // TensorBoard discard `first_step` and later steps of older files in the folder.
  TensorboardWriter(const std::string& folder, int64_t first_step);

  // All metrics of a step in one record. REQUIRES: step >= 0.
  void write(double wall_seconds, int64_t step, const Metrics& metrics);

  const std::string& path() const { return file_.path(); }

 private:
  FileHandle file_;
};

namespace tensorboard_internal {

// One record: length, its checksum, the message, its checksum.
std::string frame(std::string_view message);

std::string version_event(double wall_seconds);
std::string start_event(double wall_seconds, int64_t first_step);
std::string scalars_event(double wall_seconds, int64_t step, const Metrics& metrics);

}  // namespace tensorboard_internal
}  // namespace tlt
