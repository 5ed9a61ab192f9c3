// for_chunks: splits an elementwise loop over the device's threads. The chunks do not depend on the
// number of threads, so neither does the result.
//
// walk: goes over the elements of several tensors in parts. next_buckets: groups these parts.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

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

// Elements first … last-1 of one of several tensors.
struct TensorSpan {
  size_t tensor = 0;
  int64_t first = 0, last = 0;

  int64_t size() const { return last - first; }
};
// What is worked on at a time: spans of tensors in their order.
using Bucket = std::vector<TensorSpan>;

// Elements of a bucket on the CPU, for each thread: 1 MiB of float32 stays in its cache.
inline constexpr int64_t kBucketOfThread = 4 * kChunk;
// Elements of one that is copied to or from another device while the host works on the one before:
// 16 MiB of float32, whose copy takes much longer than its launch.
inline constexpr int64_t kCopiedBucket = int64_t{1} << 22;

inline int64_t bucket_elements(const Device& device) {
  return device.is_cpu() ? kBucketOfThread * device.pool().threads() : kCopiedBucket;
}

// Progress of a walk.
struct Place {
  size_t tensor = 0;
  int64_t element = 0;
};

// What a walk covers of a tensor: `elements` from `first` on. A part has a multiple of `unit` of
// them, except at their end.
struct Extent {
  int64_t elements = 0;
  int64_t unit = kChunk;
  int64_t first = 0;
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
    const int64_t first = extent.first + place.element;
    if (part > 0) body(place.tensor, first, first + part);
    did |= part > 0;
    elements -= part;
    place.element += part;
    if (part == left) place = {place.tensor + 1, 0};
  }
  return did;
}

// The next buckets of a walk, with about `elements` elements together and about `size` each.
template <class ExtentOf>
std::vector<Bucket> next_buckets(Place& place, size_t tensors, int64_t elements, int64_t size,
                                 const ExtentOf& extent_of) {
  std::vector<Bucket> buckets;
  for (Bucket bucket; elements > 0; buckets.push_back(std::move(bucket)), bucket = {}) {
    const auto add = [&](size_t tensor, int64_t first, int64_t last) {
      bucket.push_back({tensor, first, last});
      elements -= last - first;
    };
    if (!walk(place, tensors, std::min(elements, size), extent_of, add)) break;
  }
  return buckets;
}

}  // namespace tlt::train
