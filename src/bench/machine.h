// Machine: properties of this computer, for benchmarks and `tlt doctor`.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "runtime/thread_pool.h"

namespace tlt::bench {

struct Machine {
  std::string cpu;                    // "AMD EPYC"
  std::vector<std::string> features;  // relevant to kernels: avx2, avx512f, …
  int cores = 0;                      // usable by this process
  int64_t memory_bytes = 0;
  int64_t available_bytes = 0;  // without swapping
};

Machine read_machine();

// "AMD EPYC, 2 cores, avx512bf16". `tlt bench compare` refuses results of different names.
std::string machine_name();

// Peak resident memory of this process since its start or since forget_peak_memory().
int64_t peak_memory_bytes();
// Resets the peak. If the system cannot, the older peak stays, with a warning.
void forget_peak_memory();

// Clock of the processor time of all threads of this process; independent of other load.
const Clock& processor_clock();

// Memory read bandwidth in bytes/s with the pool's threads: the best of several passes over a
// buffer larger than most caches.
double read_bandwidth(runtime::ThreadPool& pool);

}  // namespace tlt::bench
