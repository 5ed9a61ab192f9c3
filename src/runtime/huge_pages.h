// HugePages: zeroed memory in pages of 2 MB, for what stays and is read over and over: weights,
// keys and values.
//
// Decoding one sequence does little but read the weights. A page of 4 KB costs a look-up each; with
// pages of 2 MB a model of 50M parameters decodes 1.2 times as fast. Where the system has none, the
// memory is the same in small pages.
//
// Owns       nothing: a piece lives as long as its holder. Its memory is cut again once all pieces
//            behind it are gone too; large stretches of memory are given back to the system when
//            the last piece cut from them is gone.
// Threading  one caller at a time (the device's thread); pieces may be dropped anywhere.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

namespace tlt::runtime {

class HugePages {
 public:
  // Zeros, aligned to 64 bytes; takes real memory only where it is written. InputError when the
  // system has no more.
  std::shared_ptr<void> take(size_t bytes);

 private:
  class Stretch;
  std::shared_ptr<Stretch> current_;  // small pieces are cut from it one after the other
};

}  // namespace tlt::runtime
