// Counts the allocations of a thread, tensors included. Include it in one file of a test program,
// since it replaces operator new; other tests of the program are not affected.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdlib>
#include <new>

namespace tlt::tests {

inline thread_local int64_t allocations = 0;

}  // namespace tlt::tests

[[gnu::noinline]] void* operator new(size_t bytes) {
  ++tlt::tests::allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
