// SPDX-License-Identifier: Apache-2.0
#include "base/tensorboard.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "base/metrics.h"

namespace tlt {
namespace {

// Field numbers of tensorflow/core/util/event.proto and framework/summary.proto.
constexpr int kEventWallTime = 1, kEventStep = 2, kEventFileVersion = 3, kEventSummary = 5,
              kEventSessionLog = 7;
constexpr int kSessionLogStatus = 1, kSessionLogStart = 1;
constexpr int kSummaryValue = 1, kValueTag = 1, kValueSimpleValue = 2;

template <class T>
void put_little_endian(std::string& out, T bits) {
  for (size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(bits >> (8 * i));
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void put_key(std::string& out, int field, int wire_type) {
  put_varint(out, static_cast<uint64_t>(field << 3 | wire_type));
}

void put_integer(std::string& out, int field, int64_t value) {
  put_key(out, field, 0);
  put_varint(out, static_cast<uint64_t>(value));
}

void put_double(std::string& out, int field, double value) {
  put_key(out, field, 1);
  put_little_endian(out, std::bit_cast<uint64_t>(value));
}

void put_float(std::string& out, int field, float value) {
  put_key(out, field, 5);
  put_little_endian(out, std::bit_cast<uint32_t>(value));
}

void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_key(out, field, 2);
  put_varint(out, bytes.size());
  out += bytes;
}

// CRC32C, rotated and shifted as TFRecord requires: a checksum of data that contains checksums
// would be weak.
uint32_t masked_checksum(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8u;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

std::string file_name(const std::string& folder) {
  static std::atomic<int> count = 0;
  return fmt::format("{}/events.out.tfevents.{:010d}.{}.{}.{}", folder,
                     static_cast<int64_t>(wall_seconds()), host_name(), ::getpid(),
                     count.fetch_add(1));
}

}  // namespace

namespace tensorboard_internal {

std::string frame(std::string_view message) {
  std::string record;
  put_little_endian(record, static_cast<uint64_t>(message.size()));
  put_little_endian(record, masked_checksum(record));
  record += message;
  put_little_endian(record, masked_checksum(message));
  return record;
}

std::string version_event(double wall_seconds) {
  std::string event;
  put_double(event, kEventWallTime, wall_seconds);
  put_bytes(event, kEventFileVersion, "brain.Event:2");
  return event;
}

std::string start_event(double wall_seconds, int64_t first_step) {
  std::string session_log;
  put_integer(session_log, kSessionLogStatus, kSessionLogStart);
  std::string event;
  put_double(event, kEventWallTime, wall_seconds);
  put_integer(event, kEventStep, first_step);
  put_bytes(event, kEventSessionLog, session_log);
  return event;
}

std::string scalars_event(double wall_seconds, int64_t step, const Metrics& metrics) {
  std::string summary;
  for (const auto& [name, value] : metrics) {
    std::string scalar;
    put_bytes(scalar, kValueTag, name);
    put_float(scalar, kValueSimpleValue, static_cast<float>(value));
    put_bytes(summary, kSummaryValue, scalar);
  }
  std::string event;
  put_double(event, kEventWallTime, wall_seconds);
  put_integer(event, kEventStep, step);
  put_bytes(event, kEventSummary, summary);
  return event;
}

}  // namespace tensorboard_internal

TensorboardWriter::TensorboardWriter(const std::string& folder, int64_t first_step) {
  using namespace tensorboard_internal;
  make_folder(folder);
  file_ = FileHandle(file_name(folder), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND);
  const double now = wall_seconds();
  // Also in the first file of a run: TensorBoard treats the second start that it reads, not the
  // first, as a restart.
  file_.write(frame(version_event(now)) + frame(start_event(now, first_step)));
}

void TensorboardWriter::write(double wall_seconds, int64_t step, const Metrics& metrics) {
  TLT_CHECK(step >= 0, "step ", step);
  using namespace tensorboard_internal;
  file_.write(frame(scalars_event(wall_seconds, step, metrics)));
}

}  // namespace tlt
