// for_chunks: splits an elementwise loop over the device's threads. The chunks do not depend on the
// number of threads, so what is computed from each is the same however many there are.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/device.h"

namespace tlt::train {

inline constexpr int64_t kChunk = 1 << 16;

inline int64_t chunks(int64_t elements) { return (elements + kChunk - 1) / kChunk; }

// body(chunk, first, last) for every chunk of [0, elements).
template <class Body>
void for_chunks(const Device& device, int64_t elements, const Body& body) {
  device.pool().run(chunks(elements), [&](int64_t chunk) {
    body(chunk, chunk * kChunk, std::min(elements, (chunk + 1) * kChunk));
  });
}

}  // namespace tlt::train
