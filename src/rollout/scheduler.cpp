// SPDX-License-Identifier: Apache-2.0
#include "rollout/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tlt::rollout {

Scheduler::Scheduler(const EngineOptions& options, kv::PagePool& pool)
    : options_(options), pool_(pool), prefixes_(pool, options) {
  options_.check();
}

void Scheduler::submit(const std::shared_ptr<GroupState>& group, std::vector<Response> responses) {
  TLT_CHECK(group->prompt_tokens() > 0 && group->request.samples > 0 && group->max_new_tokens > 0);
  TLT_CHECK(group->pages_to_finish() <= pool_.total_pages(), group->pages_to_finish(), " pages of ",
            pool_.total_pages());
  TLT_CHECK(responses.empty() || std::ssize(responses) == group->request.samples, responses.size());
  for (int64_t i = 0; i < group->request.samples; ++i) {
    auto sequence = std::make_unique<Sequence>();
    sequence->group = group;
    sequence->sample = static_cast<uint32_t>(group->request.first_sample + i);
    sequence->age = arrived_++;
    if (!responses.empty()) sequence->resume(std::move(responses[static_cast<size_t>(i)]));
    group->unfinished.push_back(sequence.get());
    queue_.push(std::move(sequence));
  }
}

const StepPlan& Scheduler::plan() {
  plan_.clear();
  admit();
  int64_t least_rows = 0;  // one for each sequence and prompt of the step
  for (size_t i = 0; i < queue_.running().size(); ++i)
    if (queue_.running()[i]->group->prompt_ready() || first_of_group(i)) ++least_rows;
  spare_rows_ = options_.max_batch_tokens - least_rows;
  // Oldest first: preemption only affects younger sequences, which have not been planned yet.
  for (size_t i = 0; i < queue_.running().size(); ++i) {
    if (queue_.running()[i]->group->prompt_ready()) {
      plan_response(i);
    } else if (first_of_group(i)) {
      plan_prompt(i);
    }
  }
  TLT_CHECK(!plan_.empty() || waiting() == 0, "none of ", waiting(), " waiting sequences can run");
  peak_pages_ = std::max(peak_pages_, pool_.total_pages() - pool_.free_pages());
  return plan_;
}

// A sequence is admitted only when it and all running sequences can grow by a page, so that it is
// not preempted at once. A sequence alone always fits (submit).
void Scheduler::admit() {
  int64_t free = waiting() == 0 ? 0 : pool_.free_pages() - reserved_pages();
  const int64_t before = running();
  queue_.admit(options_.max_running, [&](const std::unique_ptr<Sequence>& next) {
    free -= pages_to_run(*next, running() == 0 || queue_.running().back()->group != next->group);
    return free >= 0;
  });
  for (const auto& sequence : queue_.running().subspan(static_cast<size_t>(before)))
    sequence->state = Sequence::State::kRunning;
}

// Pages that the running sequences will allocate soon.
int64_t Scheduler::reserved_pages() const {
  int64_t pages = 0;
  for (size_t i = 0; i < queue_.running().size(); ++i)
    pages += pages_to_run(*queue_.running()[i], first_of_group(i));
  return pages;
}

// Pages to allocate for the sequence's tokens and one page more; for the first of a group also the
// prompt's pages.
int64_t Scheduler::pages_to_run(const Sequence& sequence, bool first_of_group) const {
  const GroupState& group = *sequence.group;
  const int64_t at_end = ops::pages_for(group.prompt_tokens() + group.max_new_tokens - 1);
  const int64_t wanted = std::min(ops::pages_for(sequence.known()) + 1, at_end);
  if (first_of_group && !group.prompt_ready() && group.lone_resumed() == &sequence)
    if (const auto cached = prefixes_.pages_of_resumed(sequence); !cached.pages.empty())
      return std::max<int64_t>(wanted - cached.held, 0);
  const int64_t shared = group.prompt_tokens() / ops::kPageSlots;
  const int64_t own = wanted - (sequence.pages.empty() ? shared : std::ssize(sequence.pages));
  if (!first_of_group || group.prompt_ready()) return std::max<int64_t>(own, 0);
  const int64_t prompt = ops::pages_for(group.prompt_tokens()) - std::ssize(group.pages) -
                         prefixes_.held_pages_of(group);
  return std::max<int64_t>(own, 0) + std::max<int64_t>(prompt, 0);
}

bool Scheduler::first_of_group(size_t index) const {
  return index == 0 || queue_.running()[index - 1]->group != queue_.running()[index]->group;
}

void Scheduler::plan_prompt(size_t index) {
  GroupState& group = *queue_.running()[index]->group;
  prefixes_.begin_with_cached(group);
  if (group.prompt_ready()) return plan_response(index);
  const int32_t rows = take_rows(group.prompt_tokens() - group.computed);
  const int32_t end = group.computed + rows;
  if (!try_extend(group.pages, end, index)) return;
  plan_.batch.add(&group.request.tokens[static_cast<size_t>(group.computed)], rows, group.computed,
                  group.pages.data());
  plan_.segments.push_back(
      {&group, nullptr, std::clamp(group.max_computed - group.computed, 0, rows)});
  if (end < group.prompt_tokens()) return;
  for (Sequence* sequence : group.unfinished)  // waiting ones too: they keep their first token
    if (sequence->tokens.empty()) add_request(plan_.batch.rows() - 1, *sequence);
}

void Scheduler::plan_response(size_t index) {
  Sequence& sequence = *queue_.running()[index];
  GroupState& group = *sequence.group;
  const int32_t prompt = group.prompt_tokens();
  if (sequence.pages.empty()) share_prompt(sequence);
  const int32_t rows = take_rows(sequence.known() - sequence.computed);
  const int32_t end = sequence.computed + rows;
  if (!try_extend(sequence.pages, end, index)) return;
  if (sequence.computed == prompt && prompt % ops::kPageSlots != 0 && !group.pages.empty())
    plan_.copies.push_back(
        {group.pages.back(), sequence.pages[static_cast<size_t>(prompt / ops::kPageSlots)]});
  const int32_t* first = &sequence.tokens[static_cast<size_t>(sequence.computed - prompt)];
  plan_.segments.push_back(
      {&group, &sequence, std::clamp(sequence.max_computed - sequence.computed, 0, rows)});
  if (sequence.decodes() && try_plan_tree(sequence, *first)) return;
  plan_.batch.add(first, rows, sequence.computed, sequence.pages.data());
  if (end == sequence.known()) add_request(plan_.batch.rows() - 1, sequence);
}

// The row is in the latest segment.
void Scheduler::add_request(int64_t row, Sequence& sequence, bool is_tree) {
  plan_.sample_requests.push_back({.row = static_cast<int32_t>(row),
                                   .sequence = &sequence,
                                   .segment = plan_.segments.size() - 1,
                                   .is_tree = is_tree});
}

// Trees get leftover resources only: rows beyond one per sequence, and pages that need no
// preemption.
bool Scheduler::try_plan_tree(Sequence& sequence, int32_t root) {
  const drafter::DraftTree& draft = sequence.draft;
  if (draft.empty() || draft.size() > spare_rows_) return false;
  const int32_t depth = drafter::depth_of(draft.nodes());
  TLT_CHECK(depth < sequence.remaining(), "a draft of ", depth, " tokens where ",
            sequence.remaining(), " remain");
  const int64_t pages = ops::pages_for(sequence.known() + depth) - std::ssize(sequence.pages);
  if (pages > 0 && pages > pool_.free_pages() - running()) return false;
  for (int64_t i = 0; i < pages; ++i) sequence.pages.push_back(*pool_.try_take());
  add_request(plan_.batch.rows(), sequence, /*is_tree=*/true);
  plan_.batch.add_tree(root, sequence.computed, sequence.pages.data());
  for (const drafter::DraftNode& node : draft.nodes()) plan_.batch.add_node(node.token, node.depth);
  spare_rows_ -= draft.size();
  return true;
}

// Shares the prompt's full pages; the partly filled last one is copied when the sample writes to
// it. The last unfinished sample of a group takes all pages over instead.
void Scheduler::share_prompt(Sequence& sequence) {
  GroupState& group = *sequence.group;
  sequence.computed = group.prompt_tokens();
  sequence.cached = group.cached;
  sequence.pages.reserve(group.most_pages());
  const bool takes_over = group.unfinished.size() == 1;
  const auto end = takes_over ? group.pages.end()
                              : group.pages.begin() + group.prompt_tokens() / ops::kPageSlots;
  sequence.pages.assign(group.pages.begin(), end);
  if (takes_over) {
    group.pages.clear();
  } else {
    for (const ops::PageId page : sequence.pages) pool_.share(page);
  }
}

// One row for each, and more for the oldest that can use them, at most a chunk.
int32_t Scheduler::take_rows(int32_t wanted) {
  const int64_t more = std::min({int64_t{wanted} - 1, options_.prefill_chunk - 1, spare_rows_});
  spare_rows_ -= more;
  return static_cast<int32_t>(more + 1);
}

bool Scheduler::try_extend(std::vector<ops::PageId>& pages, int64_t positions, size_t index) {
  while (std::ssize(pages) < ops::pages_for(positions)) {
    if (const auto page = pool_.try_take()) {
      pages.push_back(*page);
    } else if (!try_reclaim(index)) {
      TLT_CHECK(index > 0, "the oldest sequence finds no page among ", pool_.total_pages());
      preempt_youngest();
      return false;
    }
  }
  return true;
}

bool Scheduler::try_reclaim(size_t index) {
  if (drop_idle_prompt()) return true;
  if (queue_.running().size() == index + 1) return false;
  preempt_youngest();
  return true;
}

// Releases a prompt whose samples all wait. Only the group at the front of the waiting queue can
// have one: the other groups released theirs with their last running sample.
bool Scheduler::drop_idle_prompt() {
  if (waiting() == 0) return false;
  GroupState& group = *queue_.waiting().front()->group;
  if (group.pages.empty() || has_youngest_running(group)) return false;
  release_prompt(group);
  return true;
}

void Scheduler::preempt_youngest() {
  Sequence& sequence = *queue_.preempt_youngest();
  release(sequence.pages);
  sequence.computed = 0;
  sequence.cached = {};
  sequence.draft.clear();  // with cached pages it may decode in the step that admits it again
  sequence.state = Sequence::State::kWaiting;
  if (!has_youngest_running(*sequence.group)) release_prompt(*sequence.group);
  ++preemptions_;
}

// The youngest running sequence is one of its samples.
bool Scheduler::has_youngest_running(const GroupState& group) const {
  return running() > 0 && queue_.running().back()->group.get() == &group;
}

void Scheduler::commit(std::span<const SampleResult> results) {
  TLT_CHECK(results.size() == plan_.sample_requests.size(), results.size(), " results for ",
            plan_.sample_requests.size());
  for (size_t i = 0; i < plan_.segments.size(); ++i) {
    const ScheduledSegment& segment = plan_.segments[i];
    if (plan_.batch.segments[i].is_tree()) continue;
    int32_t& computed = segment.sequence ? segment.sequence->computed : segment.group->computed;
    int32_t& max_computed =
        segment.sequence ? segment.sequence->max_computed : segment.group->max_computed;
    computed += plan_.batch.segments[i].rows;
    max_computed = std::max(max_computed, computed);
    if (segment.sequence)
      prefixes_.add_full_pages(*segment.sequence);
    else
      prefixes_.add_full_pages(*segment.group);
  }
  for (size_t i = 0; i < results.size(); ++i) append(plan_.sample_requests[i], results[i]);
}

// Sampled tokens after the last one of a response are dropped.
void Scheduler::append(const SampleRequest& request, const SampleResult& result) {
  Sequence& sequence = *request.sequence;
  ++sequence.target_forwards;
  std::optional<FinishReason> reason;
  size_t tokens = 0;
  for (; tokens < result.tokens.size() && !reason; ++tokens) {
    if (!result.top_logprobs.empty()) sequence.top_logprobs.push_back(result.top_logprobs[tokens]);
    reason = sequence.append(result.tokens[tokens]);
  }
  if (request.is_tree) {
    plan_.segments[request.segment].kept_path = result.path.first(tokens);
    sequence.computed += static_cast<int32_t>(tokens);
    sequence.max_computed = std::max(sequence.max_computed, sequence.computed);
  }
  if (reason) finish(sequence, *reason);
}

// The entries of an accepted path are in the slots of their positions now.
void Scheduler::end_step() {
  for (size_t i = 0; i < plan_.segments.size(); ++i) {
    Sequence* sequence = plan_.segments[i].sequence;
    if (plan_.batch.segments[i].is_tree() && sequence->state == Sequence::State::kRunning)
      prefixes_.add_full_pages(*sequence);
  }
  plan_.clear();
  remove_finished();
}

void Scheduler::finish(Sequence& sequence, FinishReason reason) {
  GroupState& group = *sequence.group;
  if (sequence.state == Sequence::State::kWaiting) waiting_finished_ = true;
  release(sequence.pages);  // `computed` is still read in this step
  std::erase(group.unfinished, &sequence);
  if (group.unfinished.empty()) release_prompt(group);
  finished_.push_back(sequence.finish(reason));
}

void Scheduler::remove_finished() {
  const auto is_finished = [](const auto& sequence) {
    return sequence->state == Sequence::State::kFinished;
  };
  queue_.erase_running_if(is_finished);
  if (std::exchange(waiting_finished_, false)) queue_.erase_waiting_if(is_finished);
}

bool Scheduler::cancel(uint32_t prompt_id, uint32_t sample) {
  const auto is_meant = [&](const auto& sequence) {
    return sequence->group->request.prompt_id == prompt_id && sequence->sample == sample;
  };
  plan_.clear();
  const auto running = std::ranges::find_if(queue_.running(), is_meant);
  const auto waiting = std::ranges::find_if(queue_.waiting(), is_meant);
  const bool is_running = running != queue_.running().end();
  if (!is_running && waiting == queue_.waiting().end()) return false;
  finish(is_running ? **running : **waiting, FinishReason::kCancelled);
  remove_finished();
  return true;
}

void Scheduler::cancel_all() {
  plan_.clear();
  for (const auto& sequence : queue_.running()) finish(*sequence, FinishReason::kCancelled);
  for (const auto& sequence : queue_.waiting()) finish(*sequence, FinishReason::kCancelled);
  remove_finished();
}

std::vector<Response> Scheduler::take_finished() { return std::exchange(finished_, {}); }

Unfinished Scheduler::unfinished() const {
  Unfinished sum;
  const auto add = [&](const Sequence& sequence) {
    ++sum.sequences;
    sum.tokens += sequence.known();
    sum.remaining = std::max(sum.remaining, sequence.remaining());
  };
  for (const auto& sequence : queue_.running()) add(*sequence);
  for (const auto& sequence : queue_.waiting()) add(*sequence);
  return sum;
}

// The last one first: a page that is kept without its prefix cannot be found.
void Scheduler::release(std::vector<ops::PageId>& pages) {
  for (; !pages.empty(); pages.pop_back()) pool_.release(pages.back());
}

void Scheduler::release_prompt(GroupState& group) {
  release(group.pages);
  group.computed = 0;
  group.cached = {};
}

void Scheduler::new_weights() {
  TLT_CHECK(running() == 0 && waiting() == 0, "new weights while ", running(), " run and ",
            waiting(), " wait");
  prefixes_.clear();
}

void Scheduler::check_invariants() const {
  std::vector<int64_t> holders(static_cast<size_t>(pool_.total_pages()));
  const GroupState* last_group = nullptr;
  int64_t last_age = -1;
  const auto visit = [&](const Sequence& sequence, Sequence::State state) {
    TLT_CHECK(sequence.state == state, "sample ", sequence.sample, " is in the wrong queue");
    TLT_CHECK(state == Sequence::State::kRunning || sequence.pages.empty(), "sample ",
              sequence.sample, " waits and holds pages");
    TLT_CHECK(std::exchange(last_age, sequence.age) < sequence.age, "sample ", sequence.sample,
              " is out of order");
    TLT_CHECK(std::ranges::count(sequence.group->unfinished, &sequence) == 1);
    for (const ops::PageId page : sequence.pages) ++holders[static_cast<size_t>(page)];
    if (std::exchange(last_group, sequence.group.get()) == sequence.group.get()) return;
    for (const ops::PageId page : sequence.group->pages) ++holders[static_cast<size_t>(page)];
  };
  for (const auto& sequence : queue_.running()) visit(*sequence, Sequence::State::kRunning);
  for (const auto& sequence : queue_.waiting()) visit(*sequence, Sequence::State::kWaiting);
  int64_t free = 0;
  for (int64_t page = 0; page < pool_.total_pages(); ++page) {
    const int64_t counted = holders[static_cast<size_t>(page)];
    TLT_CHECK(pool_.holders(static_cast<ops::PageId>(page)) == counted, "page ", page, " has ",
              pool_.holders(static_cast<ops::PageId>(page)), " holders, ", counted, " known");
    free += counted == 0 ? 1 : 0;
  }
  TLT_CHECK(free == pool_.free_pages(), free, " pages have no holder, ", pool_.free_pages(),
            " are free");
  prefixes_.check_invariants();
}

}  // namespace tlt::rollout
