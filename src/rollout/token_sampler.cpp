// SPDX-License-Identifier: Apache-2.0
#include "rollout/token_sampler.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "ops/elementwise.h"

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
  const bool on_device = samples_on_device(requests);
  if (on_device) reserve_sampled(requests);
  int64_t launched = 0;
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
    on_device ? launch(hidden, requests, launched) : sample_some(hidden, requests);
    launched += rows;
  }
  if (on_device && launched > 0) finish(requests, launched);
  for (size_t i = 0; i < requests.size(); ++i) results_[i] = {tokens_[i], paths_[i], tops_[i]};
  return results_;
}

void TokenSampler::grow(int64_t rows) {
  hidden_ = model_.device().empty({rows, hidden_.size(1)}, model_.type());
  logits_ = model_.device().empty({rows, logits_.size(1)}, at::kFloat);
}

void TokenSampler::reserve_sampled(std::span<const SampleRequest> requests) {
  int64_t rows = 0;
  for (const SampleRequest& request : requests) rows += rows_of(request);
  if (!sampled_on_device_.defined() || sampled_on_device_.size(0) < rows)
    sampled_on_device_ = model_.device().empty({rows, ops::kSampledWords}, at::kInt);
}

// A row that several tokens are sampled from (a prompt's last one) goes through the LM head once
// for each: one row more per response, and a single way to sample.
void TokenSampler::sample_some(const at::Tensor& hidden, std::span<const SampleRequest> requests) {
  at::Tensor logits = logits_.narrow(0, 0, std::ssize(rows_));
  compute_logits(gather(hidden), logits);
  at::Tensor host;  // one copy for all rounds
  while (!walks_.empty()) advance(requests, logits, host);
}

void TokenSampler::compute_logits(const at::Tensor& rows, at::Tensor& logits) const {
  runner_ ? runner_->logits(rows, logits) : model_.logits(rows, logits);
}

at::Tensor TokenSampler::gather(const at::Tensor& hidden) {
  const int64_t count = std::ssize(rows_);
  // Usually all rows are sampled from, in order: no copy.
  bool in_order = hidden.size(0) == count;
  for (int64_t i = 0; in_order && i < count; ++i) in_order = rows_[static_cast<size_t>(i)] == i;
  if (in_order) return hidden;
  at::Tensor gathered = hidden_.narrow(0, 0, count);
  ops::gather_rows(model_.device(), hidden, rows_, gathered);
  return gathered;
}

ops::SampleRow TokenSampler::row_to_sample(const Sequence& sequence, int64_t row,
                                           size_t more) const {
  return {.row = row,
          .rule = sequence.rule(),
          .uniform = sequence.uniform_at(more),
          .tokens = model_.tokens()};
}

// A row's uniform belongs to its position, so all rows of all trees can be sampled without knowing
// which the walks will reach.
void TokenSampler::list_all_rows(std::span<const SampleRequest> requests) {
  sample_rows_.clear();
  for (const Walk& walk : walks_) {
    const SampleRequest& request = requests[walk.request];
    const drafter::DraftTree& tree = request.sequence->draft;
    for (int64_t row = 0; row < rows_of(request); ++row) {
      const size_t depth =
          row == 0 ? 0 : static_cast<size_t>(tree[static_cast<int32_t>(row - 1)].depth);
      sample_rows_.push_back(row_to_sample(*request.sequence, walk.first_logits + row, depth));
    }
  }
}

bool TokenSampler::samples_on_device(std::span<const SampleRequest> requests) {
  if (model_.device().is_cpu() || target_only_) return false;
  sample_rows_.clear();
  for (const SampleRequest& request : requests) {
    if (request.sequence->group->request.top_logprobs > 0) return false;
    sample_rows_.push_back({.rule = request.sequence->rule()});
  }
  return ops::samples_on_device(model_.device(), sample_rows_);
}

void TokenSampler::launch(const at::Tensor& hidden, std::span<const SampleRequest> requests,
                          int64_t first) {
  const int64_t count = std::ssize(rows_);
  at::Tensor logits = logits_.narrow(0, 0, count);
  compute_logits(gather(hidden), logits);
  list_all_rows(requests);
  ops::launch_sample_rows(model_.device(), {logits, model_.config().vocabulary, sample_rows_},
                          sampled_on_device_.narrow(0, first, count));
}

// One copy for all passes, then all walks.
void TokenSampler::finish(std::span<const SampleRequest> requests, int64_t rows) {
  sampled_.resize(static_cast<size_t>(rows));
  ops::read_sampled(sampled_on_device_.narrow(0, 0, rows), sampled_);
  size_t root = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    int32_t node = drafter::DraftTree::kRoot;
    do {
      tokens_[i].push_back(sampled_[root + static_cast<size_t>(1 + node)]);
      if (!requests[i].is_tree) break;
      paths_[i].push_back(1 + node);
      node = requests[i].sequence->draft.find_child(node, tokens_[i].back().token);
    } while (node != drafter::DraftTree::kNone);
    root += static_cast<size_t>(rows_of(requests[i]));
  }
}

void TokenSampler::advance(std::span<const SampleRequest> requests, const at::Tensor& logits,
                           at::Tensor& host) {
  sample_rows_.clear();
  for (const Walk& walk : walks_) {
    const Sequence& sequence = *requests[walk.request].sequence;
    sample_rows_.push_back(row_to_sample(sequence, walk.first_logits + 1 + walk.node,  // root: -1
                                         tokens_[walk.request].size()));
    if (const int64_t count = sequence.group->request.top_logprobs; count > 0) {
      sample_rows_.back().top = &tops_[walk.request].emplace_back();
      sample_rows_.back().top_count = count;
    }
  }
  if (target_only_) add_draft_tokens(requests);
  sampled_.resize(sample_rows_.size());
  ops::sample_rows(model_.device(), {logits, model_.config().vocabulary, sample_rows_, &host},
                   sampled_);
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
