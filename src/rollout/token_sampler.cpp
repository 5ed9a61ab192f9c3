// SPDX-License-Identifier: Apache-2.0
#include "rollout/token_sampler.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

namespace tlt::rollout {
namespace {

// Memory of the logits buffer: 110 rows of a vocabulary of 152,000.
constexpr int64_t kLogitsBytes = int64_t{64} << 20;

// Offset of the positions whose uniforms only FastRL's rule uses, apart from the tokens' own.
constexpr size_t kRestPositions = size_t{1} << 31;

int64_t rows_of(const SampleRequest& request) {
  return 1 + (request.is_tree ? request.sequence->draft.size() : 0);
}

}  // namespace

TokenSampler::TokenSampler(const model::PolicyModel& model, int64_t max_rows, ModelRunner* runner)
    : model_(model), runner_(runner) {
  const int64_t vocabulary = model.config().vocabulary;
  const int64_t bound = kLogitsBytes / (vocabulary * static_cast<int64_t>(sizeof(float)));
  const int64_t rows = std::clamp<int64_t>(bound, 1, max_rows);
  hidden_ = model.device().empty({rows, model.config().hidden}, model.type());
  logits_ = model.device().empty({rows, vocabulary}, at::kFloat);
}

std::span<const SampleResult> TokenSampler::sample(const at::Tensor& hidden,
                                                   std::span<const SampleRequest> requests) {
  if (tokens_.size() < requests.size()) {
    tokens_.resize(requests.size());
    paths_.resize(requests.size());
    tops_.resize(requests.size());
  }
  results_.resize(requests.size());
  for (size_t first = 0, end = 0; first < requests.size(); first = end) {
    int64_t rows = 0;
    while (end < requests.size() &&
           (end == first || rows + rows_of(requests[end]) <= logits_.size(0)))
      rows += rows_of(requests[end++]);
    if (rows > logits_.size(0)) grow(rows);
    walks_.clear();
    rows_.clear();
    for (size_t i = first; i < end; ++i) {
      walks_.push_back({.request = i, .first_logits = std::ssize(rows_)});
      for (int64_t row = 0; row < rows_of(requests[i]); ++row)
        rows_.push_back(requests[i].row + row);
      tokens_[i].clear();
      paths_[i].clear();
      tops_[i].clear();
    }
    sample_some(hidden, requests);
  }
  for (size_t i = 0; i < requests.size(); ++i) results_[i] = {tokens_[i], paths_[i], tops_[i]};
  return results_;
}

void TokenSampler::grow(int64_t rows) {
  hidden_ = model_.device().empty({rows, hidden_.size(1)}, model_.type());
  logits_ = model_.device().empty({rows, logits_.size(1)}, at::kFloat);
}

// A row that several tokens are sampled from (a prompt's last one) goes through the LM head once
// for each: one row more per response, and a single way to sample.
void TokenSampler::sample_some(const at::Tensor& hidden, std::span<const SampleRequest> requests) {
  at::Tensor logits = logits_.narrow(0, 0, std::ssize(rows_));
  const at::Tensor rows = gather(hidden);
  runner_ ? runner_->logits(rows, logits) : model_.logits(rows, logits);
  const at::Tensor host = logits.cpu();  // one copy for all rounds
  while (!walks_.empty()) advance(requests, host);
}

at::Tensor TokenSampler::gather(const at::Tensor& hidden) {
  const int64_t count = std::ssize(rows_);
  // Usually all rows are sampled from, in order: no copy.
  bool in_order = hidden.size(0) == count;
  for (int64_t i = 0; in_order && i < count; ++i) in_order = rows_[static_cast<size_t>(i)] == i;
  if (in_order) return hidden;
  at::Tensor gathered = hidden_.narrow(0, 0, count);
  if (hidden.is_cpu() && hidden.is_contiguous()) {  // a tenth of the time of index_select()
    const auto bytes = static_cast<size_t>(hidden.size(1)) * hidden.element_size();
    for (int64_t i = 0; i < count; ++i)
      std::memcpy(static_cast<char*>(gathered.data_ptr()) + static_cast<size_t>(i) * bytes,
                  static_cast<const char*>(hidden.const_data_ptr()) +
                      static_cast<size_t>(rows_[static_cast<size_t>(i)]) * bytes,
                  bytes);
    return gathered;
  }
  // Not by index_select(), whose rows would be a copy to the device: by runs of consecutive rows.
  for (int64_t first = 0, end = 0; first < count; first = end) {
    const int64_t row = rows_[static_cast<size_t>(first)];
    for (end = first + 1; end < count && rows_[static_cast<size_t>(end)] == row + end - first;)
      ++end;
    gathered.narrow(0, first, end - first).copy_(hidden.narrow(0, row, end - first));
  }
  return gathered;
}

void TokenSampler::advance(std::span<const SampleRequest> requests, const at::Tensor& logits) {
  sample_rows_.clear();
  for (const Walk& walk : walks_) {
    const Sequence& sequence = *requests[walk.request].sequence;
    sample_rows_.push_back({.row = walk.first_logits + 1 + walk.node,  // the root is node -1
                            .rule = sequence.rule(),
                            .uniform = sequence.uniform_at(tokens_[walk.request].size()),
                            .tokens = model_.tokens()});
    if (const int64_t count = sequence.group->request.top_logprobs; count > 0) {
      sample_rows_.back().top = &tops_[walk.request].emplace_back();
      sample_rows_.back().top_count = count;
    }
  }
  if (target_only_) add_draft_tokens(requests);
  sampled_.resize(sample_rows_.size());
  ops::sample_rows(model_.device(), logits, model_.config().vocabulary, sample_rows_, sampled_);
  size_t kept = 0;
  for (size_t i = 0; i < walks_.size(); ++i) {
    Walk walk = walks_[i];
    const SampleRequest& request = requests[walk.request];
    tokens_[walk.request].push_back(sampled_[i]);
    if (!request.is_tree) continue;
    paths_[walk.request].push_back(1 + walk.node);
    walk.node = request.sequence->draft.find_child(walk.node, sampled_[i].token);
    if (walk.node != drafter::DraftTree::kNone) walks_[kept++] = walk;
  }
  walks_.resize(kept);
}

// Children in the order of falling probability: the last one first, as DraftTree::arrange orders
// them.
void TokenSampler::add_draft_tokens(std::span<const SampleRequest> requests) {
  draft_tokens_.clear();
  std::vector<size_t> ends;
  for (const Walk& walk : walks_) {
    if (requests[walk.request].is_tree) {
      const drafter::DraftTree& tree = requests[walk.request].sequence->draft;
      for (int32_t node = tree.size() - 1; node > walk.node; --node)
        if (tree[node].parent == walk.node) draft_tokens_.push_back(tree[node].token);
    }
    ends.push_back(draft_tokens_.size());
  }
  for (size_t i = 0, first = 0; i < sample_rows_.size(); first = ends[i++]) {
    if (first == ends[i]) continue;  // no draft tokens: as without speculation
    const Sequence& sequence = *requests[walks_[i].request].sequence;
    sample_rows_[i].target_only = &*target_only_;
    sample_rows_[i].draft_tokens = std::span(draft_tokens_).subspan(first, ends[i] - first);
    sample_rows_[i].rest_uniform =
        sequence.uniform_at(tokens_[walks_[i].request].size() + kRestPositions);
  }
}

}  // namespace tlt::rollout
