// SPDX-License-Identifier: Apache-2.0
#include "sandbox/process_tree.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

namespace tlt::sandbox {
namespace {

constexpr int64_t kMegabyte = int64_t{1} << 20;
constexpr size_t kHeld =
    64 << 20;  // bytes that a child writes to, and shares with its own children

// A child with two children of its own, one of them in another process group.
class Family {
 public:
  Family() {
    EXPECT_EQ(pipe(ready_.data()), 0);
    pid_ = fork();
    if (pid_ == 0) live();
    char all_there = 0;
    for (int i = 0; i < 3; ++i) EXPECT_EQ(read(ready_[0], &all_there, 1), 1);
  }
  ~Family() {
    const ProcessTree all(pid_);
    for (const pid_t process : all.processes()) kill(process, SIGKILL);
    waitpid(pid_, nullptr, 0);
    close(ready_[0]), close(ready_[1]);
  }
  pid_t pid() const { return pid_; }

 private:
  [[noreturn]] void live() {
    mmap(nullptr, kHeld, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
         /*fd=*/-1, /*offset=*/0);
    if (fork() == 0) {
      setsid();
    } else if (fork() < 0) {
      _exit(1);
    }
    if (write(ready_[1], "x", 1) != 1) _exit(1);
    while (true) pause();
  }

  std::array<int, 2> ready_ = {};
  pid_t pid_ = -1;
};

TEST(ProcessTreeTest, HasAllDescendants) {
  ASSERT_TRUE(ProcessTree::kernel_lists_children());
  pid_t pid = 0;
  {
    const Family family;
    pid = family.pid();
    EXPECT_EQ(ProcessTree(pid).processes().size(), 3U);
  }
  const ProcessTree gone(pid);
  EXPECT_EQ(gone.processes(), std::vector{pid});
  EXPECT_EQ(gone.memory_bytes(0), 0);
  EXPECT_EQ(gone.files_on("/tmp"), std::nullopt);
}

TEST(ProcessTreeTest, SharedPagesCountOnceAboveTheLimit) {
  const Family family;
  const ProcessTree tree(family.pid());
  EXPECT_GE(tree.memory_bytes(INT64_MAX), 3 * 64 * kMegabyte);
  const int64_t exact = tree.memory_bytes(0);
  EXPECT_GE(exact, 63 * kMegabyte);
  EXPECT_LT(exact, 128 * kMegabyte);
}

}  // namespace
}  // namespace tlt::sandbox
