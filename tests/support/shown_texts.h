// ShownTexts: sequences as a drafter learns of them, which is by requests: each change of a
// sequence is passed in a request without draft tokens.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <vector>

#include "drafter/drafter.h"

namespace tlt::tests {

class ShownTexts {
 public:
  explicit ShownTexts(drafter::Drafter& drafter) : drafter_(drafter) {}

  void begin(drafter::SequenceId id, std::vector<int32_t> prompt) {
    texts_[id] = {.prompt = std::move(prompt), .response = {}};
    draft(id, drafter::kOff);
  }
  void commit(drafter::SequenceId id, const std::vector<int32_t>& tokens) {
    std::vector<int32_t>& response = texts_.at(id).response;
    response.insert(response.end(), tokens.begin(), tokens.end());
    draft(id, drafter::kOff);
  }
  void end(drafter::SequenceId id) {
    drafter_.end(id, texts_.at(id).response);
    texts_.erase(id);
  }

  drafter::DraftTree draft(drafter::SequenceId id, const drafter::Strategy& strategy) {
    drafter::DraftTree tree;
    tree.add(drafter::DraftTree::kRoot, 1, 1);  // left from the step before
    const Text& text = texts_.at(id);
    const std::vector<drafter::DraftRequest> requests = {
        {id, text.prompt, text.response, strategy, &tree}};
    drafter_.propose(requests);
    tree.check();
    return tree;
  }

 private:
  struct Text {
    std::vector<int32_t> prompt, response;
  };
  drafter::Drafter& drafter_;
  std::map<drafter::SequenceId, Text> texts_;
};

}  // namespace tlt::tests
