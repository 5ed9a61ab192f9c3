// SPDX-License-Identifier: Apache-2.0
#include "drafter/eagle/eagle_drafter.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/check.h"
#include "base/clock.h"

namespace tlt::drafter {
namespace {

// Rows per pass: bounds the memory of activations; enough for full matmul speed.
constexpr int64_t kRows = 256;
// Memory of the logits buffer: 110 rows of a vocabulary of 152,000.
constexpr int64_t kLogitsBytes = int64_t{64} << 20;

}  // namespace

EagleDrafter::EagleDrafter(const std::shared_ptr<const drafter::DraftNetwork>& network,
                           const EagleDrafterOptions& options)
    : EagleDrafter(*network, options, network) {}

EagleDrafter::EagleDrafter(const drafter::DraftNetwork& network, const EagleDrafterOptions& options)
    : EagleDrafter(network, options, nullptr) {}

EagleDrafter::EagleDrafter(const drafter::DraftNetwork& network, const EagleDrafterOptions& options,
                           std::shared_ptr<const drafter::DraftNetwork> owned)
    : owned_(std::move(owned)),
      network_(network),
      options_((options.check(), options)),
      head_(network, options.draft_vocab_size),
      head_rows_(head_.rows()),
      columns_(network.feature_columns()),
      hidden_(network.config().hidden),
      cache_(network.device(), network.kv_shape(), options.kv_memory_bytes),
      activations_(network, kRows) {
  TLT_CHECK(options.window >= 1, "window is ", options.window);
}

// Adds the sequence when it is new.
EagleDrafter::Sequence& EagleDrafter::find(SequenceId id) {
  const auto [place, is_new] = running_.try_emplace(id, options_.window);
  Sequence& sequence = place->second;
  if (!is_new) return sequence;
  sequence.prompt = &prompts_.try_emplace(id.prompt_id, options_.window).first->second;
  if (++sequence.prompt->running == 1) cache_.remember(&sequence.prompt->context);
  sequence.prompt->has_begun = true;
  sequence.prompt->touched = ++touch_;
  if (!spare_.empty()) {
    sequence.states = std::move(spare_.back());
    spare_.pop_back();
  }
  cache_.remember(&sequence.context);
  return sequence;
}

EagleDrafter::Sequence& EagleDrafter::find(const DraftRequest& request) {
  Sequence& sequence = find(request.id);
  sequence.prompt_pairs = std::ssize(request.prompt) - 1;
  TLT_CHECK(!request.prompt.empty() && std::ssize(request.response) >= sequence.states.count(),
            request.response.size(), " tokens were sampled from ", sequence.states.count(),
            " states");
  return sequence;
}

void EagleDrafter::read_prompt(uint32_t prompt_id, int32_t position, const at::Tensor& hidden,
                               std::span<const int32_t> tokens) {
  TLT_CHECK(hidden.size(0) == std::ssize(tokens) && hidden.size(1) == columns_, "states ",
            hidden.sizes(), " for ", tokens.size(), " tokens");
  Prompt& prompt = prompts_.try_emplace(prompt_id, options_.window).first->second;
  prompt.touched = ++touch_;
  if (position == 0 || position != prompt.states.count()) {
    prompt.states.clear();
    cache_.release(prompt.context);
    prompt.has_begun = prompt.running > 0;
    if (position > 0) prompt.states.skip_to(position);  // no rows, or evicted
  }
  prompt_bytes_ -= prompt.states.memory_bytes();
  prompt.states.append(hidden);
  prompt_bytes_ += prompt.states.memory_bytes();
  evict_prompts();
}

// Evicts prompts whose sequences have ended first, then the least recently used.
void EagleDrafter::evict_prompts() {
  while (prompt_bytes_ > options_.prompt_memory_bytes) {
    auto oldest = prompts_.end();
    for (auto it = prompts_.begin(); it != prompts_.end(); ++it) {
      if (it->second.states.memory_bytes() == 0) continue;
      const auto order = [](const Prompt& prompt) {
        return std::pair(!prompt.is_done(), prompt.touched);
      };
      if (oldest == prompts_.end() || order(it->second) < order(oldest->second)) oldest = it;
    }
    prompt_bytes_ -= oldest->second.states.memory_bytes();
    if (oldest->second.running > 0)
      oldest->second.states = HiddenRows(options_.window);
    else
      prompts_.erase(oldest);
  }
}

void EagleDrafter::read_states(SequenceId id, int64_t first, const at::Tensor& hidden,
                               std::span<const int32_t> rows) {
  HiddenRows& states = find(id).states;
  TLT_CHECK(first >= states.count(), "token ", first,
            " was sampled from a state before the last of ", states.count());
  if (first > states.count()) states.skip_to(first);
  states.append(hidden, rows);
}

void EagleDrafter::end(SequenceId id, std::span<const int32_t> /*response*/) {
  const auto place = running_.find(id);
  if (place == running_.end()) return;
  Sequence& sequence = place->second;
  cache_.forget(&sequence.context);
  sequence.states.clear();
  spare_.push_back(std::move(sequence.states));
  if (--sequence.prompt->running == 0) {
    cache_.forget(&sequence.prompt->context);
    if (sequence.prompt->states.memory_bytes() == 0) prompts_.erase(id.prompt_id);
  }
  running_.erase(place);
}

int64_t EagleDrafter::first_known(const Sequence& sequence) const {
  if (sequence.states.first() > 0) return sequence.prompt_pairs + sequence.states.first();
  const HiddenRows& prompt = sequence.prompt->states;
  return prompt.count() == sequence.prompt_pairs + 1
             ? std::min(prompt.first(), sequence.prompt_pairs)
             : sequence.prompt_pairs;
}

void EagleDrafter::propose(std::span<const DraftRequest> requests) {
  cache_.begin_step();
  for (const DraftRequest& request : requests) cache_.ask(find(request).context);
  if (beams_.size() < requests.size()) beams_.resize(requests.size());
  for (size_t first = 0, end = 0; first < requests.size(); first = end) {
    for (int64_t rows = 0; end < requests.size() && rows < kRows; ++end)
      rows += requests[end].strategy.width;
    draft(requests.subspan(first, end - first), cache_.pool().total_pages() / std::ssize(requests));
  }
}

void EagleDrafter::draft(std::span<const DraftRequest> requests, int64_t share) {
  start_beams(requests, share);
  read_prompts();
  if (active_ == 0) return;
  read_pairs();
  grow(roots_.view());
  while (batch_.rows() > 0) grow(run(features_.view()));
  for (size_t i = 0; i < active_; ++i) {
    beams_[i].nodes.finish();
    beams_[i].lanes.finish(cache_);
  }
}

void EagleDrafter::start_beams(std::span<const DraftRequest> requests, int64_t share) {
  active_ = 0;
  prompts_read_.clear();
  copies_.clear();
  for (const DraftRequest& request : requests) {
    request.tree->clear();
    Beam& beam = beams_[active_];
    beam.request = &request;
    beam.sequence = &running_.at(request.id);
    beam.strategy = request.strategy;
    beam.strategy.width = std::min(beam.strategy.width, head_rows_);
    const bool has_all_states = beam.sequence->states.count() == std::ssize(request.response);
    if (beam.strategy.is_off() || !has_all_states ||
        beam.sequence->pairs() == first_known(*beam.sequence))
      continue;
    if (!try_start(beam, share)) {
      ++stats_.refused;
      continue;
    }
    beam.nodes.start(beam.strategy, request.tree);
    beam.written = 0;
    ++active_;
  }
}

// A context starts with at most half of its share of the pages, so that it need not restart soon.
bool EagleDrafter::try_start(Beam& beam, int64_t share) {
  Sequence& sequence = *beam.sequence;
  EagleContext& context = sequence.context;
  const int64_t levels = beam.strategy.depth - 1;
  const int64_t tails =
      EagleLanes::pages_needed(ops::kPageSlots - 1, beam.strategy.width, levels) + 1;
  const int64_t start_pairs =
      std::clamp((share - tails) / 2 * ops::kPageSlots, ops::kPageSlots, options_.window);
  const bool can_continue = !context.pages.empty() && context.read >= first_known(sequence) &&
                            sequence.pairs() - context.read <= options_.window;
  if (can_continue) {
    // Requested again without new tokens: the last pair is read again.
    context.read = std::min(context.read, sequence.pairs() - 1);
    if (try_take_pages(beam)) return true;
  }
  const size_t copies = copies_.size();
  restart_context(beam, start_pairs);
  if (try_take_pages(beam)) return true;
  copies_.resize(copies);
  cache_.release(context);
  return false;
}

void EagleDrafter::restart_context(Beam& beam, int64_t pairs) {
  ++stats_.starts;
  Sequence& sequence = *beam.sequence;
  cache_.release(sequence.context);
  sequence.context.origin = std::max(first_known(sequence), sequence.pairs() - pairs);
  sequence.context.read = sequence.context.origin;
  share_prompt(beam, pairs);
}

// Starts after the prompt, with the prompt's pages, when all states after the prompt are known and
// the response is short.
void EagleDrafter::share_prompt(Beam& beam, int64_t pairs) {
  Sequence& sequence = *beam.sequence;
  EagleContext& context = sequence.context;
  const EagleContext& prompt = sequence.prompt->context;
  if (sequence.prompt->running < 2 || sequence.states.count() > ops::kPageSlots ||
      first_known(sequence) >= sequence.prompt_pairs || !try_start_prompt(beam, pairs))
    return;
  const int64_t positions = sequence.prompt_pairs - prompt.origin;
  const auto full = static_cast<size_t>(positions / ops::kPageSlots);
  for (size_t page = 0; page < full; ++page) cache_.share(context, prompt.pages[page]);
  if (positions % ops::kPageSlots > 0) {
    if (!cache_.try_reserve(context, positions)) return cache_.release(context);
    copies_.push_back({prompt.pages[full], context.pages[full]});
  }
  context.origin = prompt.origin;
  context.read = sequence.prompt_pairs;
}

// Makes sure that the prompt's context is read before the sequences are. False: no pages.
bool EagleDrafter::try_start_prompt(Beam& beam, int64_t pairs) {
  const Sequence& sequence = *beam.sequence;
  Prompt& prompt = *sequence.prompt;
  EagleContext& context = prompt.context;
  cache_.ask(context);
  if (!context.pages.empty()) return true;
  context.origin = std::max(first_known(sequence), sequence.prompt_pairs - pairs);
  context.read = context.origin;
  if (!cache_.try_reserve(context, sequence.prompt_pairs - context.origin)) {
    cache_.release(context);
    return false;
  }
  prompts_read_.push_back({beam.request, &sequence, &context, sequence.prompt_pairs});
  return true;
}

bool EagleDrafter::try_take_pages(Beam& beam) {
  const int64_t base = beam.sequence->pairs() - beam.sequence->context.origin;
  const int64_t levels = beam.strategy.depth - 1;
  return cache_.try_reserve(beam.sequence->context, base + levels) &&
         beam.lanes.try_start(cache_, beam.sequence->context, base, beam.strategy.width, levels);
}

void EagleDrafter::read_prompts() {
  for (size_t next = 0; next < prompts_read_.size();) {
    int64_t rows = 0;
    for (size_t i = next; i < prompts_read_.size(); ++i)
      rows += prompts_read_[i].end - prompts_read_[i].context->read;
    rows = std::min(rows, kRows);
    states_.resize(network_.device(), rows, columns_, network_.type());
    batch_.clear();
    while (batch_.rows() < rows) {
      add_pairs(prompts_read_[next], rows - batch_.rows());
      if (prompts_read_[next].context->read == prompts_read_[next].end) ++next;
    }
    run(network_.features(states_.view(), activations_));
    stats_.rows_read += rows;
  }
  cache_.kv_cache().copy_pages(copies_);
}

// Reads all new pairs; the feature of a beam's last pair is its root's.
void EagleDrafter::read_pairs() {
  roots_.resize(network_.device(), static_cast<int64_t>(active_), hidden_, network_.type());
  int64_t pending = 0;
  for (size_t i = 0; i < active_; ++i)
    pending += beams_[i].sequence->pairs() - beams_[i].sequence->context.read;
  stats_.rows_read += pending;
  for (size_t next = 0; pending > 0;) {
    const int64_t rows = std::min(pending, kRows);
    states_.resize(network_.device(), rows, columns_, network_.type());
    batch_.clear();
    roots_read_.clear();
    while (batch_.rows() < rows) {
      Sequence& sequence = *beams_[next].sequence;
      add_pairs({beams_[next].request, &sequence, &sequence.context, sequence.pairs()},
                rows - batch_.rows());
      if (sequence.context.read == sequence.pairs())
        roots_read_.push_back({.beam = next++, .row = batch_.rows() - 1});
    }
    const at::Tensor& read = run(network_.features(states_.view(), activations_));
    for (const RootRead& root : roots_read_)
      copy_row(read, root.row, roots_.view(), static_cast<int64_t>(root.beam));
    pending -= rows;
  }
}

// Adds the next pairs of a context to the pass, at most `limit`.
void EagleDrafter::add_pairs(const Reading& reading, int64_t limit) {
  const Sequence& sequence = *reading.sequence;
  EagleContext& context = *reading.context;
  const DraftRequest& request = *reading.request;
  const int64_t rows = std::min(limit, reading.end - context.read);
  add_segment(rows, context.positions(), context.pages.data());
  for (int64_t end = context.read + rows; context.read < end; ++context.read) {
    const int64_t index = context.read - sequence.prompt_pairs;
    const HiddenRows& states = index < 0 ? sequence.prompt->states : sequence.states;
    states.copy(index < 0 ? context.read : index, states_.view(), batch_.rows());
    add_row(index < 0 ? request.prompt[static_cast<size_t>(context.read + 1)]
                      : request.response[static_cast<size_t>(index)],
            context.positions());
  }
}

void EagleDrafter::add_segment(int64_t rows, int64_t position, const kv::PageId* pages) {
  batch_.segments.push_back({.first_row = static_cast<int32_t>(batch_.rows()),
                             .rows = static_cast<int32_t>(rows),
                             .first_position = static_cast<int32_t>(position),
                             .pages = pages});
}

void EagleDrafter::add_row(int32_t token, int64_t position) {
  batch_.tokens.push_back(token);
  batch_.positions.push_back(static_cast<int32_t>(position));
}

const at::Tensor& EagleDrafter::run(const at::Tensor& features) {
  const Stopwatch watch;
  const at::Tensor& out = network_.forward(batch_, features, cache_.kv_cache(), activations_);
  ++stats_.passes;
  stats_.forward_seconds += watch.seconds();
  return out;
}

// Expands a level of all trees. `hidden` [R, D] has the features of the beams' frontiers, one after
// the other. Prepares batch_ and features_ for the next level's pass.
void EagleDrafter::grow(const at::Tensor& hidden) {
  list_expansions();
  choose_children(hidden);
  int64_t rows = 0;
  for (size_t i = 0, first = 0; i < active_; ++i) {
    Beam& beam = beams_[i];
    const size_t count = static_cast<size_t>(beam.rows() * beam.strategy.width);
    if (count == 0) continue;
    beam.nodes.expand(std::span(tokens_).subspan(first, count),
                      std::span(probabilities_).subspan(first, count));
    first += count;
    rows += beam.rows();
  }
  batch_.clear();
  if (rows == 0) return;
  features_.resize(network_.device(), rows, hidden_, network_.type());
  for (size_t i = 0; i < active_; ++i)
    if (beams_[i].rows() > 0) add_frontier(beams_[i], hidden);
  stats_.rows_drafted += rows;
}

void EagleDrafter::list_expansions() {
  expansions_.clear();
  int64_t first = 0;
  for (size_t i = 0; i < active_; ++i) {
    Beam& beam = beams_[i];
    beam.first_row = std::ssize(expansions_);
    const SharedUniforms draws =
        options_.common_random_numbers ? beam.request->draws.after(beam.written) : SharedUniforms();
    for (int64_t row = 0; row < beam.rows(); ++row, first += beam.strategy.width)
      expansions_.push_back({.first = first, .width = beam.strategy.width, .draws = draws});
  }
  tokens_.resize(static_cast<size_t>(first));
  probabilities_.resize(static_cast<size_t>(first));
}

void EagleDrafter::choose_children(const at::Tensor& hidden) {
  const int64_t most =
      std::max<int64_t>(1, kLogitsBytes / (head_rows_ * static_cast<int64_t>(sizeof(float))));
  for (int64_t first = 0; first < hidden.size(0); first += most) {
    const int64_t rows = std::min(most, hidden.size(0) - first);
    const Stopwatch watch;
    logits_.resize(network_.device(), rows, head_rows_, at::kFloat);
    head_.logits(rows == hidden.size(0) ? hidden : hidden.narrow(0, first, rows), activations_,
                 logits_.view());
    network_.device().synchronize();  // what follows waits for it anyway
    stats_.forward_seconds += watch.seconds();
    choose_tokens(first, rows);
  }
}

void EagleDrafter::choose_tokens(int64_t first, int64_t rows) {
  const Device& device = network_.device();
  top_.clear();
  for (int64_t row = first; row < first + rows; ++row) {
    const Expansion& expansion = expansions_[static_cast<size_t>(row)];
    const auto at = static_cast<size_t>(expansion.first),
               count = static_cast<size_t>(expansion.width);
    top_.push_back({.tokens = std::span(tokens_).subspan(at, count),
                    .probabilities = std::span(probabilities_).subspan(at, count),
                    .draws = expansion.draws});
  }
  if (const int64_t most = TopKSoftmax::most_of(top_, head_rows_);
      ops::finds_top_tokens(device, most)) {
    inverse_temperatures_.clear();
    for (const TopK& row : top_) inverse_temperatures_.push_back(inverse_temperature_of(row));
    ops::find_top_tokens(device, {logits_.view(), most, inverse_temperatures_}, found_);
    top_k_.choose(found_, top_);
  } else {
    const at::Tensor host = logits_.view().cpu();
    top_k_.choose(device, {host.const_data_ptr<float>(), static_cast<size_t>(rows * head_rows_)},
                  top_);
  }
  for (const TopK& row : top_)
    for (int32_t& token : row.tokens) token = head_.token_of(token);
}

// Adds a row for each node of the beam's frontier: its token, and its parent's feature in `hidden`.
void EagleDrafter::add_frontier(Beam& beam, const at::Tensor& hidden) {
  const std::span<const int32_t> nodes = beam.nodes.frontier(), parents = beam.nodes.lanes();
  beam.lanes.move(cache_, parents, beam.written);
  const int64_t position = beam.sequence->context.positions() + beam.written++;
  for (size_t lane = 0; lane < nodes.size(); ++lane) {
    copy_row(hidden, beam.first_row + parents[lane], features_.view(), batch_.rows());
    add_segment(1, position, beam.lanes.table(static_cast<int64_t>(lane)));
    add_row((*beam.request->tree)[nodes[lane]].token, position);
  }
}

int64_t EagleDrafter::memory_bytes() const {
  int64_t bytes = head_.memory_bytes() + prompt_bytes_ + cache_.memory_bytes() +
                  states_.memory_bytes() + features_.memory_bytes() + roots_.memory_bytes() +
                  logits_.memory_bytes();
  for (const auto& [id, sequence] : running_)
    bytes += sequence.states.memory_bytes() +
             std::ssize(sequence.context.pages) * static_cast<int64_t>(sizeof(kv::PageId));
  for (const HiddenRows& states : spare_) bytes += states.memory_bytes();
  return bytes;
}

}  // namespace tlt::drafter
