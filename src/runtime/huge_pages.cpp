// SPDX-License-Identifier: Apache-2.0
#include "runtime/huge_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/check.h"

namespace tlt::runtime {
namespace {

constexpr size_t kPage = size_t{2} << 20;
constexpr size_t kStretch = 16 * kPage;

size_t round_up(size_t x, size_t unit) { return (x + unit - 1) / unit * unit; }

}  // namespace

class HugePages::Stretch {
 public:
  explicit Stretch(size_t bytes) : bytes_(round_up(bytes, kPage)) {
    // A page more, cut off again around the first boundary of a page.
    void* mapped = mmap(nullptr, bytes_ + kPage, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TLT_CHECK_INPUT(mapped != MAP_FAILED, "the system has no ", bytes_, " bytes of memory left; ",
                    "lower rollout.kv_memory_bytes or take a smaller model");
    auto* first = static_cast<char*>(mapped);
    const auto address = reinterpret_cast<uintptr_t>(first);
    const size_t skip = round_up(address, kPage) - address;
    start_ = first + skip;
    if (skip > 0) munmap(first, skip);
    munmap(start_ + bytes_, kPage - skip);
    madvise(start_, bytes_, MADV_HUGEPAGE);  // a wish
  }
  ~Stretch() { munmap(start_, bytes_); }
  Stretch(const Stretch&) = delete;
  Stretch& operator=(const Stretch&) = delete;

  bool has(size_t bytes) const { return bytes_ - used_ >= bytes; }
  char* cut(size_t bytes) { return start_ + std::exchange(used_, used_ + bytes); }

 private:
  char* start_ = nullptr;
  size_t bytes_;
  size_t used_ = 0;
};

std::shared_ptr<void> HugePages::take(size_t bytes) {
  bytes = round_up(bytes, 64);
  if (bytes >= kStretch) {
    auto own = std::make_shared<Stretch>(bytes);
    return {own, own->cut(bytes)};
  }
  if (!current_ || !current_->has(bytes)) current_ = std::make_shared<Stretch>(kStretch);
  return {current_, current_->cut(bytes)};
}

}  // namespace tlt::runtime
