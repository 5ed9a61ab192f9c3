// SuffixReplay: the drafts that suffix lookup has in the responses of a run, by position.
//
// Speculation changes no token, so a draft token is accepted where it is the response's next one,
// whether or not the run speculated there. Drafts follow each other: where one is accepted whole,
// the next one mostly is as well. So speculation passes such places in few steps, and the drafts
// that it verifies are not the mean of all.
//
// Threading  constant after construction.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "simulate/acceptance.h"

namespace tlt::simulate {

// A chain of draft tokens. All 0: suffix lookup found nothing.
struct SuffixDraft {
  uint8_t confidence = 0;  // class of the first token's probability, from 1
  uint8_t tokens = 0;
  uint8_t accepted = 0;  // of the tokens, if all are verified
};

class SuffixReplay {
 public:
  SuffixReplay() = default;  // empty
  // A file of `tlt bench suffix --out`. InputError: it is not.
  explicit SuffixReplay(const std::string& path);

  bool is_empty() const { return responses_.empty(); }
  size_t responses() const { return responses_.size(); }
  // The drafts of a response, by the number of its tokens before them. Responses are in the order
  // of their files and lines.
  std::span<const SuffixDraft> drafts(size_t response) const { return responses_[response]; }
  // How often drafts of this class are accepted. REQUIRES: not 0.
  const Acceptance& acceptance(uint8_t confidence) const { return classes_[confidence - 1U]; }

 private:
  std::vector<Acceptance> classes_;
  std::vector<std::vector<SuffixDraft>> responses_;
};

}  // namespace tlt::simulate
