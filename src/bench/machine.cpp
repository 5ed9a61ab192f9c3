// SPDX-License-Identifier: Apache-2.0
#include "bench/machine.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <sstream>

#include "base/check.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "ops/cpu.h"
#include "runtime/device.h"

namespace tlt::bench {
namespace {

// The value of the first line "key : value" of a file of /proc; empty if there is none.
std::string field(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

// "24576000 kB" -> bytes.
int64_t kilobytes(const std::string& text) { return std::atoll(text.c_str()) * 1024; }

std::vector<std::string> known_features(const std::string& flags) {
  constexpr std::string_view kKnown[] = {"avx2",        "fma",      "f16c",     "avx512f",
                                         "avx512bw",    "avx512vl", "avx512dq", "avx512_bf16",
                                         "avx512_vnni", "amx_bf16"};
  std::vector<std::string> found;
  std::istringstream words(flags);
  for (std::string word; words >> word;)
    if (std::find(std::begin(kKnown), std::end(kKnown), word) != std::end(kKnown))
      found.push_back(word);
  return found;
}

class ProcessorClock final : public Clock {
 public:
  double seconds() const override {
    timespec time{};
    TLT_CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) == 0);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  }
};

constexpr int64_t kProbeWords = int64_t{1} << 25;  // 256 MiB

uint64_t sum(const uint64_t* words, int64_t count) {
  std::array<uint64_t, 8> sums{};
  for (int64_t i = 0; i < count; i += 8)
    for (size_t j = 0; j < 8; ++j) sums[j] += words[i + static_cast<int64_t>(j)];
  uint64_t total = 0;
  for (const uint64_t part : sums) total += part;
  return total;
}

}  // namespace

Machine read_machine() {
  const std::string cpu = read_file("/proc/cpuinfo", /*max_bytes=*/1 << 26);
  const std::string memory = read_file("/proc/meminfo", /*max_bytes=*/1 << 20);
  return {.cpu = field(cpu, "model name"),
          .features = known_features(field(cpu, "flags")),
          .cores = runtime::available_cores(),
          .memory_bytes = kilobytes(field(memory, "MemTotal")),
          .available_bytes = kilobytes(field(memory, "MemAvailable"))};
}

std::string machine_name() {
  const Machine machine = read_machine();
  return fmt::format("{}, {} cores, {}", machine.cpu, machine.cores, ops::cpu_capability());
}

int64_t peak_memory_bytes() {
  return kilobytes(field(read_file("/proc/self/status", /*max_bytes=*/1 << 20), "VmHWM"));
}

void forget_peak_memory() {
  try {
    FileHandle("/proc/self/clear_refs", O_WRONLY).write("5");  // proc(5)
  } catch (const Error& error) {
    warn_once("clear_refs", "peak_memory_bytes counts from the program's start: {}", error.what());
  }
}

const Clock& processor_clock() {
  static const ProcessorClock clock;
  return clock;
}

double read_bandwidth(runtime::ThreadPool& pool) {
  constexpr int kPasses = 5;
  constexpr int64_t kPieces = 64, kPiece = kProbeWords / kPieces;
  const auto words = std::make_unique<uint64_t[]>(kProbeWords);
  std::fill_n(words.get(), kProbeWords,
              1);  // unwritten pages all map to one page of zeros
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    std::array<uint64_t, kPieces> sums{};
    const Stopwatch stopwatch;
    pool.run(kPieces, [&](int64_t piece) {
      sums[static_cast<size_t>(piece)] = sum(words.get() + piece * kPiece, kPiece);
    });
    best =
        std::max(best, static_cast<double>(kProbeWords) * sizeof(uint64_t) / stopwatch.seconds());
    for (const uint64_t part : sums) TLT_CHECK(part == uint64_t{kPiece});
  }
  return best;
}

}  // namespace tlt::bench
