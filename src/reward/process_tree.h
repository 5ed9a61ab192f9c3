// ProcessTree: the memory that a process and all that come of it take together, as the kernel tells
// it under /proc. No privilege is needed for one's own processes.
//
// Not here   what is done about it (sandbox.h).
// Threading  any.
//
//   const ProcessTree tree(pid);
//   if (tree.memory_bytes(limit) > limit) …
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tlt::reward {

class ProcessTree {
 public:
  // As it is now. Who comes or goes meanwhile may be in it or not.
  explicit ProcessTree(pid_t root);

  const std::vector<pid_t>& processes() const { return processes_; }

  // In memory or swapped out. Up to `enough` by what each has, pages that several share counted for
  // each; beyond that by the kernel's shares of them (PSS), where it lets us look.
  int64_t memory_bytes(int64_t enough) const;

  // Files and folders on the file system that its processes see under this name, where it is not
  // the one that we see; nullopt: it is, or it is not to be looked at.
  std::optional<int64_t> files_on(const std::string& folder) const;

  // The kernel tells of a process's children (CONFIG_PROC_CHILDREN).
  static bool kernel_tells_children();

 private:
  std::vector<pid_t> processes_;
};

}  // namespace tlt::reward
