// Machine: what this computer says of itself, for benchmarks and `tlt doctor`.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "runtime/thread_pool.h"

namespace tlt::apps {

struct Machine {
  std::string cpu;                    // "AMD EPYC"
  std::vector<std::string> features;  // those that matter here: avx2, avx512f, …
  int cores = 0;                      // this process may use
  int64_t memory_bytes = 0;
  int64_t available_bytes = 0;  // without swapping
};

Machine read_machine();

// "AMD EPYC, 2 cores, avx512bf16": benchmarks of different ones are not compared.
std::string machine_name();

// The most memory this process has had at once since it started, or since forget_peak_memory().
int64_t peak_memory_bytes();
// A system that cannot forget keeps the older peak, and a warning says so.
void forget_peak_memory();

// Processor seconds of this process, of all its threads: a busy machine does not stretch them.
const Clock& processor_clock();

// Bytes a second that the pool's threads can read from memory: the best of some passes over a
// buffer larger than most caches.
double read_bandwidth(runtime::ThreadPool& pool);

}  // namespace tlt::apps
