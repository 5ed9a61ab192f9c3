// for_chunks: splits an elementwise loop over the device's threads. The chunks do not depend on the
// number of threads, so neither does the result.
//
// walk: goes over the elements of several tensors in parts.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/device.h"

namespace tlt::train {

inline constexpr int64_t kChunk = 1 << 16;

inline int64_t chunks(int64_t elements) { return (elements + kChunk - 1) / kChunk; }

// Calls body(chunk, first, last) for every chunk of [0, elements).
template <class Body>
void for_chunks(const Device& device, int64_t elements, const Body& body) {
  device.pool().run(chunks(elements), [&](int64_t chunk) {
    body(chunk, chunk * kChunk, std::min(elements, (chunk + 1) * kChunk));
  });
}

// Progress of a walk.
struct Place {
  size_t tensor = 0;
  int64_t element = 0;
};

// Of a tensor in a walk. A part has a multiple of `unit` elements, except at the tensor's end.
struct Extent {
  int64_t elements = 0;
  int64_t unit = kChunk;
};

// Calls body(tensor, first, last) for about the next `elements` elements of `tensors` tensors, each
// of extent_of(tensor), and advances `place`. Each call covers part of one tensor. Returns false if
// none was left.
template <class ExtentOf, class Body>
bool walk(Place& place, size_t tensors, int64_t elements, const ExtentOf& extent_of,
          const Body& body) {
  bool did = false;
  while (place.tensor < tensors && elements > 0) {
    const Extent extent = extent_of(place.tensor);
    const int64_t left = extent.elements - place.element, step = extent.unit;
    const int64_t part =
        elements >= left ? left : std::min(left, (elements + step - 1) / step * step);
    if (part > 0) body(place.tensor, place.element, place.element + part);
    did |= part > 0;
    elements -= part;
    place.element += part;
    if (part == left) place = {place.tensor + 1, 0};
  }
  return did;
}

}  // namespace tlt::train
