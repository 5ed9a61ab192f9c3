// SPDX-License-Identifier: Apache-2.0
#include "drafter_training/acceptance_probe.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace tlt::drafter_training {
namespace {

constexpr int64_t kHeadRows = 256;    // token rows per call of the LM head
constexpr int64_t kMaxChains = 2048;  // extended at once
constexpr int64_t kChainPages = 2;    // pages that a chain's tokens can touch

int64_t pages_of(int64_t rows) { return (rows + ops::kPageSlots - 1) / ops::kPageSlots; }

}  // namespace

AcceptanceProbe::AcceptanceProbe(const drafter::DraftNetwork& network, int64_t steps)
    : network_(network), steps_(steps), activations_(network, kHeadRows) {
  TLT_CHECK(steps >= 1 && steps <= ops::kPageSlots, steps);
}

std::vector<int32_t> AcceptanceProbe::best_tokens(const at::Tensor& states) {
  std::vector<int32_t> best;
  const Device& device = network_.device();
  for (int64_t first = 0; first < states.size(0); first += kHeadRows) {
    const at::Tensor rows =
        states.narrow(0, first, std::min(kHeadRows, states.size(0) - first)).contiguous();
    at::Tensor logits = device.empty({rows.size(0), network_.head_rows()}, at::kFloat);
    network_.logits(rows, activations_, logits);
    const at::Tensor tokens = logits.argmax(-1).to(at::kInt).cpu();
    for (const int32_t row :
         std::span(tokens.data_ptr<int32_t>(), static_cast<size_t>(tokens.numel())))
      best.push_back(network_.token_of(row));
  }
  return best;
}

void AcceptanceProbe::keep_accepted(const DraftSample& sample, const at::Tensor& states,
                                    int64_t step, std::vector<Chain>& chains,
                                    std::vector<int64_t>& right) {
  const std::vector<int32_t> best = best_tokens(states);
  std::erase_if(chains, [&](const Chain& chain) {
    const int64_t place = chain.start + 1 + step;  // index of the drafted token
    return place >= std::ssize(sample.tokens) ||
           best[static_cast<size_t>(chain.row)] != sample.tokens[static_cast<size_t>(place)];
  });
  for (const Chain& chain : chains) right[static_cast<size_t>(chain.start)] = step;
}

void AcceptanceProbe::reserve_pages(int64_t pairs) {
  const int64_t own = pages_of(pairs), needed = own + kChainPages * std::min(pairs, kMaxChains);
  own_pages_.resize(static_cast<size_t>(own));
  std::iota(own_pages_.begin(), own_pages_.end(), 0);
  if (cache_ && cache_->pages() >= needed) return;
  cache_.reset();
  cache_ = std::make_unique<kv::KvCache>(network_.device(), network_.kv_shape(), needed);
}

void AcceptanceProbe::give_pages(std::vector<Chain>& chains) {
  auto next = static_cast<ops::PageId>(own_pages_.size());
  for (Chain& chain : chains) {
    const int64_t position = chain.start + 1, shared = position / ops::kPageSlots;
    chain.pages.assign(own_pages_.begin(), own_pages_.begin() + shared);
    if (position % ops::kPageSlots != 0)
      cache_->copy_page(own_pages_[static_cast<size_t>(shared)], next);
    for (int64_t i = 0; i < kChainPages; ++i) chain.pages.push_back(next++);
  }
}

void AcceptanceProbe::extend(const DraftSample& sample, const at::Tensor& states,
                             std::vector<Chain> chains, std::vector<int64_t>& right) {
  give_pages(chains);
  at::Tensor last = states;
  for (int64_t step = 2; step <= steps_ && !chains.empty(); ++step) {
    ops::Batch batch;
    std::vector<int64_t> rows;
    for (Chain& chain : chains) {
      const int64_t position = chain.start + step - 1;  // of the previous draft token
      batch.add(&sample.tokens[static_cast<size_t>(position) + 1], 1,
                static_cast<int32_t>(position), chain.pages.data());
      rows.push_back(chain.row);
      chain.row = std::ssize(rows) - 1;
    }
    const at::Tensor inputs = last.index_select(0, at::tensor(rows, at::kLong).to(last.device()));
    last = network_.forward(batch, inputs, *cache_, activations_).clone();
    keep_accepted(sample, last, step, chains, right);
  }
}

std::vector<int64_t> AcceptanceProbe::accepted_tokens(const DraftSample& sample) {
  const int64_t pairs = sample.pairs();
  reserve_pages(pairs);
  const at::Tensor shown = feature_part(sample.states(), network_)
                               .narrow(0, 0, pairs)
                               .contiguous()
                               .to(network_.device().torch());
  const at::Tensor& features = network_.features(shown, activations_);
  ops::Batch batch;
  batch.add(sample.tokens.data() + 1, static_cast<int32_t>(pairs), 0, own_pages_.data());
  const at::Tensor states = network_.forward(batch, features, *cache_, activations_).clone();

  std::vector<int64_t> right(static_cast<size_t>(pairs), 0);
  std::vector<Chain> chains;
  for (int64_t pair = 0; pair < pairs; ++pair) chains.push_back({pair, pair, {}});
  keep_accepted(sample, states, /*step=*/1, chains, right);
  for (size_t first = 0; first < chains.size(); first += kMaxChains) {
    const auto begin = chains.begin() + static_cast<std::ptrdiff_t>(first);
    const auto count = std::min<std::ptrdiff_t>(kMaxChains, chains.end() - begin);
    extend(sample, states, {begin, begin + count}, right);
  }
  return right;
}

Acceptance AcceptanceProbe::measure(std::span<const DraftSample> samples, cluster::Comm& comm) {
  std::vector<double> sums(static_cast<size_t>(steps_) + 2);
  for (size_t i = static_cast<size_t>(comm.rank()); i < samples.size();
       i += static_cast<size_t>(comm.size())) {
    const std::vector<int64_t> right = accepted_tokens(samples[i]);
    // Prefill of the prompt commits the response's first token; from pair r on x_{r+1} is the last.
    const int64_t last = samples[i].pairs();  // index of the sample's last token
    for (int64_t pair = std::max(0, samples[i].response_begin - 1); pair + 1 < last;) {
      const int64_t accepted = right[static_cast<size_t>(pair)];
      const int64_t committed = std::min(accepted + 1, last - (pair + 1));
      sums[0] += 1;
      sums[1] += static_cast<double>(committed);
      for (int64_t k = 0; k < accepted; ++k) sums[static_cast<size_t>(k) + 2] += 1;
      pair += committed;
    }
  }
  sums = comm.all_reduce_sum(sums);
  return {sums[0], sums[1], {sums.begin() + 2, sums.end()}};
}

}  // namespace tlt::drafter_training
