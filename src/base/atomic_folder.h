// AtomicFolder: a folder that appears under its name as a whole, in commit(), or not at all, as
// AtomicFile is for a file. Until then its files are in PATH.writing, which a killed process leaves:
// the next one of this name begins by removing it, as remove_unfinished() does.
//
// Threading  one thread at a time.
//
//   AtomicFolder policy("runs/a/policy");
//   save_policy(model, policy.path());
//   policy.commit();                     // without it the old folder stays as it is
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tlt {

class AtomicFolder {
 public:
  explicit AtomicFolder(const std::string& path);
  // Removes what was not committed.
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  // Where to write.
  const std::string& path() const { return unfinished_; }

  // Waits for the disk, then puts the folder in the place of the old one. A crash in between leaves
  // no folder of that name. REQUIRES: each file in it waited for the disk, as AtomicFile does.
  void commit();

 private:
  const std::string final_, unfinished_;
};

// Removes what killed processes left in `folder` of an AtomicFile or AtomicFolder. Nothing if there
// is no such folder. REQUIRES: no process writes there.
void remove_unfinished(const std::string& folder);

}  // namespace tlt
