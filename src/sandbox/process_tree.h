// ProcessTree: the memory of a process and all its descendants, from /proc. Reading one's own
// processes needs no privilege.
//
// Not here   what follows from it (sandbox.h).
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

namespace tlt::sandbox {

class ProcessTree {
 public:
  // The current tree. Processes that start or exit meanwhile may be included or not.
  explicit ProcessTree(pid_t root);

  const std::vector<pid_t>& processes() const { return processes_; }

  // Memory and swap. Up to `enough` as the sum over processes, where shared pages count for each;
  // above that by the kernel's proportional shares (PSS), where these are readable.
  int64_t memory_bytes(int64_t enough) const;

  // Files and folders on the file system that its processes see under this name, where it differs
  // from ours; the most, if they see several; nullopt: none differs, or is readable.
  std::optional<int64_t> files_on(const std::string& folder) const;

  // Whether the kernel lists a process's children (CONFIG_PROC_CHILDREN).
  static bool kernel_lists_children();

 private:
  std::vector<pid_t> processes_;
};

}  // namespace tlt::sandbox
