// Counts what a thread allocates, tensors too, in a test program that includes it: in one of its
// files, since it replaces operator new. The program's other tests do not mind.
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
