// SPDX-License-Identifier: Apache-2.0
#include "drafter/eagle/eagle_head.h"

#include <ATen/ATen.h>

#include "base/check.h"
#include "drafter/files/draft_hot_tokens.h"

namespace tlt::drafter {

EagleHead::EagleHead(const drafter::DraftNetwork& network, int64_t tokens) : network_(network) {
  const bool has_own = !network.head_tokens().empty();
  if (tokens == 0 || has_own || tokens >= network.head_rows()) return;
  TLT_CHECK_INPUT(!network.hot_tokens().empty(), "speculative.eagle.draft_vocab_size is ", tokens,
                  " and the draft model's folder has no hot_token_id.json, which lists these "
                  "tokens; train it with tlt draft, or set the option to 0");
  tokens_ = drafter::hottest(network.hot_tokens(), tokens);
  rows_ =
      ops::Weight(network.device(), std::ssize(tokens_), network.config().hidden, network.type());
  refresh();
}

void EagleHead::refresh() {
  if (tokens_.empty()) return;
  const Device& device = network_.device();
  at::Tensor values = device.empty({std::ssize(tokens_), network_.config().hidden}, rows_.type());
  network_.target().head_rows(tokens_, values);
  rows_.assign(device, values);
}

void EagleHead::logits(const at::Tensor& next, drafter::DraftActivations& activations,
                       at::Tensor& out) const {
  if (tokens_.empty()) return network_.logits(next, activations, out);
  ops::linear(network_.device(), next, rows_, out);
}

int64_t EagleHead::memory_bytes() const {
  return tokens_.empty() ? 0 : static_cast<int64_t>(rows_.storage().nbytes());
}

}  // namespace tlt::drafter
