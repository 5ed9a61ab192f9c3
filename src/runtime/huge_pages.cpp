// SPDX-License-Identifier: Apache-2.0
#include "runtime/huge_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
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
    // One page more than needed; what is outside the first page boundary is unmapped again.
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
    madvise(start_, bytes_, MADV_HUGEPAGE);  // best effort
  }
  ~Stretch() { munmap(start_, bytes_); }
  Stretch(const Stretch&) = delete;
  Stretch& operator=(const Stretch&) = delete;

  // A piece, which holds the stretch; null when the stretch is full.
  static std::shared_ptr<void> try_cut(const std::shared_ptr<Stretch>& from, size_t bytes) {
    const std::lock_guard lock(from->mutex_);
    if (from->bytes_ - from->used_ < bytes) return nullptr;
    const size_t begin = std::exchange(from->used_, from->used_ + bytes);
    char* start = from->start_ + begin;
    if (begin < from->written_) std::memset(start, 0, std::min(bytes, from->written_ - begin));
    from->written_ = std::max(from->written_, from->used_);
    return {start, [from, begin, bytes](void*) { from->release(begin, bytes); }};
  }

 private:
  void release(size_t begin, size_t bytes) {
    const std::lock_guard lock(mutex_);
    free_[begin + bytes] = begin;
    for (auto last = free_.find(used_); last != free_.end(); last = free_.find(used_)) {
      used_ = last->second;
      free_.erase(last);
    }
  }

  char* start_ = nullptr;
  const size_t bytes_;

  std::mutex mutex_;
  size_t used_ = 0;                // protected by mutex_, as all below
  size_t written_ = 0;             // nothing after this offset was ever used
  std::map<size_t, size_t> free_;  // released before used_: end of each piece -> its begin
};

bool HugePages::try_release(void* piece, size_t bytes) {
  // A large piece has a mapping of its own.
  return bytes >= kStretch && madvise(piece, round_up(bytes, kPage), MADV_DONTNEED) == 0;
}

void HugePages::release_inside(void* part, size_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(part);
  const size_t skip = round_up(address, kPage) - address;
  if (bytes < skip + kPage) return;
  // Memory that stays does no harm.
  (void)madvise(static_cast<char*>(part) + skip, (bytes - skip) / kPage * kPage, MADV_DONTNEED);
}

std::shared_ptr<void> HugePages::take(size_t bytes) {
  bytes = round_up(bytes, 64);
  if (bytes >= kStretch) return Stretch::try_cut(std::make_shared<Stretch>(bytes), bytes);
  std::shared_ptr<void> piece = current_ ? Stretch::try_cut(current_, bytes) : nullptr;
  if (piece) return piece;
  current_ = std::make_shared<Stretch>(kStretch);
  return Stretch::try_cut(current_, bytes);
}

}  // namespace tlt::runtime
