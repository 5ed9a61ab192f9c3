// SPDX-License-Identifier: Apache-2.0
#include "rollout/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "base/check.h"
#include "base/random.h"

namespace tlt::rollout {
namespace {

constexpr int32_t kEos = 0;
constexpr uint32_t kPromptSample = UINT32_MAX;

// The token of a position, instead of a model's; one in 60 is kEos.
int32_t token_at(uint32_t prompt_id, uint32_t sample, int64_t position) {
  return static_cast<int32_t>(
      philox(9, {prompt_id, sample, static_cast<uint32_t>(position), 0})[0] % 60);
}

std::vector<int32_t> prompt_of(uint32_t prompt_id, int64_t length) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < length; ++i) tokens.push_back(1 + token_at(prompt_id, kPromptSample, i));
  return tokens;
}

std::vector<int32_t> response_of(uint32_t prompt_id, uint32_t sample, int64_t max_new_tokens) {
  std::vector<int32_t> tokens;
  do {
    tokens.push_back(token_at(prompt_id, sample, std::ssize(tokens)));
  } while (tokens.back() != kEos && std::ssize(tokens) < max_new_tokens);
  return tokens;
}

std::shared_ptr<GroupState> make_group(uint32_t prompt_id, int64_t prompt_tokens, int64_t samples,
                                       int64_t max_new_tokens) {
  auto group = std::make_shared<GroupState>();
  group->request.prompt_id = prompt_id;
  group->request.tokens = prompt_of(prompt_id, prompt_tokens);
  group->request.samples = samples;
  group->stop_tokens = {kEos};
  group->max_new_tokens = max_new_tokens;
  return group;
}

// A number for each position that depends on all tokens up to it and on the weights, as KV entries
// do.
std::vector<uint32_t> entries_of(const std::vector<int32_t>& tokens, uint32_t version) {
  std::vector<uint32_t> entries;
  uint32_t before = version;
  for (const int32_t token : tokens)
    entries.push_back(before = philox(7, {before, static_cast<uint32_t>(token), 0, 0})[0]);
  return entries;
}

// Runs plans on a fake KV cache that keeps the entry of every slot of every page, and checks before
// each row that all earlier positions of its sequence are present.
class FakeRunner {
 public:
  FakeRunner(const EngineOptions& options, int64_t pages)
      : options_(options),
        pool_(pages),
        scheduler_(options, pool_),
        memory_(static_cast<size_t>(pages)) {}

  void submit(uint32_t prompt_id, int64_t prompt_tokens, int64_t samples, int64_t max_new_tokens) {
    scheduler_.submit(make_group(prompt_id, prompt_tokens, samples, max_new_tokens));
  }
  void submit(uint32_t prompt_id, const std::vector<int32_t>& prompt, int64_t samples,
              int64_t max_new_tokens) {
    const auto group = make_group(prompt_id, 1, samples, max_new_tokens);
    group->request.tokens = prompt;
    scheduler_.submit(group);
  }
  // The next turn of an episode of this prompt.
  void resume(const std::vector<int32_t>& prompt, Response response, int64_t max_new_tokens) {
    const auto group = make_group(response.prompt_id, 1, 1, max_new_tokens);
    group->request.tokens = prompt;
    std::vector<Response> responses;
    responses.push_back(std::move(response));
    scheduler_.submit(group, std::move(responses));
  }
  void new_weights() {
    scheduler_.new_weights();
    ++version;
  }

  bool step() {
    const StepPlan& plan = scheduler_.plan();
    if (plan.empty()) return false;
    EXPECT_LE(plan.batch.rows(), options_.max_batch_tokens);
    EXPECT_LE(scheduler_.running(), options_.max_running);
    EXPECT_EQ(plan.segments.size(), plan.batch.segments.size());
    for (const PageCopy& copy : plan.copies)
      if (!forget_copies)
        memory_[static_cast<size_t>(copy.to)] = memory_[static_cast<size_t>(copy.from)];
    for (size_t i = 0; i < plan.segments.size(); ++i) run_segment(plan, i);
    std::vector<ops::Sampled> sampled;
    for (const SampleRequest& request : plan.sample_requests) {
      const Sequence& sequence = *request.sequence;
      EXPECT_EQ(plan.segments[request.segment].group, sequence.group.get());
      const ops::Segment& rows = plan.batch.segments[request.segment];
      EXPECT_EQ(request.row, rows.first_row + rows.rows - 1);
      sampled.push_back({token_at(sequence.group->request.prompt_id, sequence.sample,
                                  std::ssize(sequence.tokens)),
                         0});
    }
    tokens += std::ssize(sampled);
    ++steps;
    std::vector<SampleResult> results;
    for (const ops::Sampled& one : sampled) results.push_back({.tokens = {&one, 1}, .path = {}});
    scheduler_.commit(results);
    scheduler_.end_step();
    scheduler_.check_invariants();
    for (Response& response : scheduler_.take_finished()) done.push_back(std::move(response));
    return true;
  }

  // Runs all sequences to their end; all pages are free afterwards.
  void run() {
    while (step()) {
    }
    EXPECT_EQ(pool_.free_pages(), pool_.total_pages());
  }

  Scheduler& scheduler() { return scheduler_; }
  kv::PagePool& pool() { return pool_; }

  bool forget_copies = false;  // a planted fault
  uint32_t version = 0;        // of the weights
  int64_t steps = 0, rows = 0, repeated_rows = 0, tokens = 0, stale_slots = 0;
  std::vector<Response> done;

 private:
  void run_segment(const StepPlan& plan, size_t index) {
    const ScheduledSegment& work = plan.segments[index];
    const ops::Segment& segment = plan.batch.segments[index];
    std::vector<int32_t> known = work.group->request.tokens;
    if (work.sequence)
      known.insert(known.end(), work.sequence->tokens.begin(), work.sequence->tokens.end());
    const std::vector<uint32_t> entries = entries_of(known, version);
    const auto slot = [&](int32_t position) -> uint32_t& {
      return memory_[static_cast<size_t>(segment.pages[position / 16])]
                    [static_cast<size_t>(position % 16)];
    };
    for (int32_t position = 0; position < segment.first_position; ++position)
      stale_slots += slot(position) != entries[static_cast<size_t>(position)];
    for (int32_t i = 0; i < segment.rows; ++i) {
      const int32_t position = segment.first_position + i;
      const auto row = static_cast<size_t>(segment.first_row + i);
      EXPECT_EQ(plan.batch.positions[row], position);
      EXPECT_EQ(plan.batch.tokens[row], known[static_cast<size_t>(position)]);
      slot(position) = entries[static_cast<size_t>(position)];
    }
    EXPECT_EQ(segment.first_position,
              work.sequence ? work.sequence->computed : work.group->computed);
    rows += segment.rows;
    repeated_rows += work.repeated_rows;
  }

  const EngineOptions options_;
  kv::PagePool pool_;
  Scheduler scheduler_;
  std::vector<std::array<uint32_t, 16>> memory_;
};

EngineOptions small_options() {
  EngineOptions options;
  options.max_running = 8;
  options.max_batch_tokens = 64;
  options.prefill_chunk = 32;
  return options;
}

TEST(SchedulerTest, PlanIsEmptyWithoutSequences) {
  FakeRunner runner(small_options(), 4);
  EXPECT_FALSE(runner.step());
  EXPECT_EQ(runner.scheduler().free_slots(), 8);
}

TEST(SchedulerTest, PromptIsComputedOnceForAllSamples) {
  FakeRunner runner(small_options(), 64);
  runner.submit(/*prompt_id=*/1, /*prompt_tokens=*/40, /*samples=*/4, /*max_new_tokens=*/10);
  runner.run();
  ASSERT_EQ(std::ssize(runner.done), 4);
  int64_t rows = 40;
  for (const Response& response : runner.done) rows += std::ssize(response.tokens) - 1;
  EXPECT_EQ(runner.rows, rows);
  EXPECT_EQ(runner.stale_slots, 0);
}

TEST(SchedulerTest, SamplesShareFullPagesAndCopyTheLastOne) {
  FakeRunner runner(small_options(), 64);
  runner.submit(1, 40, 4, 10);
  while (runner.scheduler().plan().sample_requests.empty()) ASSERT_TRUE(runner.step());
  ASSERT_TRUE(runner.step());
  ASSERT_EQ(std::ssize(runner.done), 0);
  EXPECT_EQ(std::ssize(runner.scheduler().plan().copies), 4);
  EXPECT_EQ(runner.pool().total_pages() - runner.pool().free_pages(), 3 + 4);
}

TEST(SchedulerTest, PromptOfFullPagesNeedsNoCopy) {
  FakeRunner runner(small_options(), 64);
  runner.submit(1, 32, 4, 10);
  ASSERT_TRUE(runner.step());
  EXPECT_TRUE(runner.scheduler().plan().copies.empty());
  EXPECT_EQ(runner.pool().total_pages() - runner.pool().free_pages(), 2 + 4);
  runner.run();
  EXPECT_EQ(runner.stale_slots, 0);
}

TEST(SchedulerTest, OnlySampleTakesOverThePromptPages) {
  FakeRunner runner(small_options(), 64);
  runner.submit(1, 40, 1, 10);
  while (runner.scheduler().plan().sample_requests.empty()) ASSERT_TRUE(runner.step());
  ASSERT_TRUE(runner.step());
  EXPECT_TRUE(runner.scheduler().plan().copies.empty());
  EXPECT_EQ(runner.pool().total_pages() - runner.pool().free_pages(), 3);
}

TEST(SchedulerTest, OneRowGivesAllSamplesTheirFirstToken) {
  FakeRunner runner(small_options(), 64);
  runner.submit(1, 20, /*samples=*/20, 10);
  const StepPlan& plan = runner.scheduler().plan();
  ASSERT_EQ(std::ssize(plan.sample_requests), 20);
  for (const SampleRequest& request : plan.sample_requests) EXPECT_EQ(request.row, 19);
  EXPECT_EQ(runner.scheduler().running(), 8);
}

TEST(SchedulerTest, DecodingContinuesDuringChunkedPrefill) {
  EngineOptions options = small_options();
  options.prefill_chunk = 8;
  FakeRunner runner(options, 64);
  runner.submit(1, 4, 4, 100);
  ASSERT_TRUE(runner.step());
  runner.submit(2, 40, 1, 4);
  const int64_t decoding = runner.scheduler().running();
  const StepPlan& plan = runner.scheduler().plan();
  EXPECT_EQ(std::ssize(plan.segments), decoding + 1);
  EXPECT_EQ(plan.batch.rows(), decoding + 8);
}

TEST(SchedulerTest, FreeSlotsCountSequencesThatCouldStart) {
  FakeRunner runner(small_options(), 64);
  runner.submit(1, 4, 3, 100);
  EXPECT_EQ(runner.scheduler().free_slots(), 5);
  runner.scheduler().plan();
  EXPECT_EQ(runner.scheduler().free_slots(), 5);
  runner.submit(2, 4, 9, 100);
  EXPECT_EQ(runner.scheduler().free_slots(), 0);
  runner.scheduler().plan();
  EXPECT_EQ(runner.scheduler().free_slots(), 0);
}

TEST(SchedulerTest, NoFreeSlotsWhileASequenceWaitsForPages) {
  FakeRunner runner(small_options(), 9);
  runner.submit(1, 40, 3, 60);
  runner.submit(2, 40, 1, 60);
  runner.scheduler().plan();
  EXPECT_LT(runner.scheduler().running(), 4);
  EXPECT_EQ(runner.scheduler().free_slots(), 0);
}

TEST(SchedulerTest, OneTokenResponsesFinishWithoutRunning) {
  FakeRunner runner(small_options(), 2);
  for (uint32_t prompt = 0; prompt < 50; ++prompt)
    runner.submit(prompt, 17, 5, /*max_new_tokens=*/1);
  runner.run();
  EXPECT_EQ(std::ssize(runner.done), 250);
  EXPECT_EQ(runner.rows, 50 * 17);
}

TEST(SchedulerTest, GroupThatFitsAloneFinishesInJustItsPages) {
  for (const int64_t prompt : {1, 15, 16, 17, 31, 32, 33, 48}) {
    for (const int64_t samples : {1, 2, 5}) {
      for (const int64_t length : {1, 2, 16, 17, 40}) {
        const auto group = make_group(1, prompt, samples, length);
        FakeRunner runner(small_options(), group->pages_to_finish());
        runner.submit(1, prompt, samples, length);
        runner.submit(2, prompt, samples, length);
        runner.run();
        ASSERT_EQ(std::ssize(runner.done), 2 * samples)
            << prompt << " " << samples << " " << length;
        EXPECT_EQ(runner.stale_slots, 0) << prompt << " " << samples << " " << length;
      }
    }
  }
}

TEST(SchedulerTest, GroupThatCanNeverFinishIsRefused) {
  FakeRunner runner(small_options(), 4);
  EXPECT_THROW(runner.submit(1, 40, 1, 40), Error);
}

// So a queue of n sequences finishes after a bounded number of steps, however few pages there are.
TEST(SchedulerTest, OldestSequenceRunsInEveryStep) {
  FakeRunner runner(small_options(), 9);
  for (uint32_t prompt = 0; prompt < 6; ++prompt) runner.submit(prompt, 30 + prompt, 3, 60);
  while (true) {
    const StepPlan& plan = runner.scheduler().plan();
    if (plan.empty()) break;
    std::vector<int> left(6, 3);
    for (const Response& response : runner.done) --left[response.prompt_id];
    const auto oldest = std::ranges::find_if(left, [](int n) { return n > 0; }) - left.begin();
    EXPECT_EQ(plan.segments.front().group->request.prompt_id, oldest);
    runner.step();
  }
  EXPECT_EQ(std::ssize(runner.done), 18);
  EXPECT_EQ(runner.stale_slots, 0);  // though every step was planned twice
  EXPECT_GT(runner.scheduler().preemptions(), 0);
}

TEST(SchedulerTest, FewPagesCauseBoundedRecomputation) {
  FakeRunner runner(small_options(), 24);
  for (uint32_t prompt = 0; prompt < 20; ++prompt) runner.submit(prompt, 30, 4, 100);
  runner.run();
  EXPECT_EQ(runner.stale_slots, 0);
  EXPECT_GT(runner.repeated_rows, 0);
  EXPECT_LT(runner.repeated_rows, runner.rows / 2);
  int64_t rows = 20 * 30;
  for (const Response& response : runner.done) rows += std::ssize(response.tokens) - 1;
  EXPECT_EQ(runner.rows - runner.repeated_rows, rows);
}

// A group keeps its prompt's pages in vain when its running sample was cancelled and its others
// find no free pages.
TEST(SchedulerTest, IdlePromptReleasesItsPages) {
  const auto with_long_response = [](uint32_t prompt_id) {
    while (std::ssize(response_of(prompt_id, 0, 150)) < 150) ++prompt_id;
    return prompt_id;
  };
  const uint32_t older = with_long_response(0), younger = with_long_response(older + 1);
  EngineOptions options = small_options();
  options.max_running = 2;
  FakeRunner runner(options, /*pages=*/11);
  runner.submit(older, /*prompt_tokens=*/1, /*samples=*/1, /*max_new_tokens=*/150);
  runner.submit(younger, /*prompt_tokens=*/128, /*samples=*/2, /*max_new_tokens=*/40);
  while (runner.pool().free_pages() > 0) ASSERT_TRUE(runner.step());
  ASSERT_TRUE(runner.scheduler().cancel(younger, 0));
  ASSERT_TRUE(runner.step());
  ASSERT_EQ(runner.scheduler().running(), 1);
  ASSERT_LT(runner.pool().free_pages(), 2);  // the prompt's 8 are still held
  runner.run();
  EXPECT_EQ(std::ssize(runner.done), 3);
  EXPECT_EQ(runner.repeated_rows, 128);
  EXPECT_EQ(runner.scheduler().preemptions(), 0);
}

TEST(SchedulerTest, CancelEndsAWaitingAndARunningSequence) {
  FakeRunner runner(small_options(), 64);
  runner.submit(1, 20, 12, 50);
  runner.step();
  runner.step();
  EXPECT_TRUE(runner.scheduler().cancel(1, 0));
  EXPECT_TRUE(runner.scheduler().cancel(1, 11));
  EXPECT_FALSE(runner.scheduler().cancel(1, 11));
  EXPECT_FALSE(runner.scheduler().cancel(2, 0));
  runner.scheduler().check_invariants();
  runner.run();
  std::map<uint32_t, FinishReason> finish;
  for (const Response& response : runner.done) finish[response.sample] = response.finish;
  ASSERT_EQ(std::ssize(finish), 12);
  EXPECT_EQ(finish[0], FinishReason::kCancelled);
  EXPECT_EQ(finish[11], FinishReason::kCancelled);
  EXPECT_NE(finish[1], FinishReason::kCancelled);
}

TEST(SchedulerTest, CancelAllFreesEveryPageAtOnce) {
  FakeRunner runner(small_options(), 64);
  for (uint32_t prompt = 0; prompt < 5; ++prompt) runner.submit(prompt, 20, 5, 50);
  runner.step();
  runner.step();
  runner.scheduler().cancel_all();
  EXPECT_EQ(runner.pool().free_pages(), 64);
  EXPECT_FALSE(runner.step());
}

EngineOptions with_prefix_cache(EngineOptions options = small_options()) {
  options.prefix_cache = true;
  return options;
}

std::vector<int32_t> joined(std::vector<int32_t> first, const std::vector<int32_t>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

TEST(SchedulerTest, PromptBeginsWithThePagesOfAnEarlierOne) {
  FakeRunner runner(with_prefix_cache(), 64);
  runner.submit(1, joined(prompt_of(9, 40), prompt_of(1, 10)), 1, 4);
  runner.run();
  EXPECT_EQ(runner.scheduler().prefix_cache_stats().hits, 0);
  const int64_t before = runner.rows;
  runner.submit(2, joined(prompt_of(9, 40), prompt_of(2, 10)), 3, 4);
  runner.run();
  EXPECT_EQ(runner.scheduler().prefix_cache_stats().queries, 100);
  EXPECT_EQ(runner.scheduler().prefix_cache_stats().hits, 32) << "the two full pages";
  int64_t rows = 50 - 32;
  for (const Response& response : runner.done)
    if (response.prompt_id == 2) rows += std::ssize(response.tokens) - 1;
  EXPECT_EQ(runner.rows - before, rows);
  EXPECT_EQ(runner.done[0].cached_tokens, 0);
  EXPECT_EQ(runner.done[1].cached_tokens, 32);
  EXPECT_EQ(runner.stale_slots, 0);
}

TEST(SchedulerTest, LastTokenOfACachedPromptIsComputed) {
  for (const int64_t length : {16, 17, 31, 32, 33}) {
    FakeRunner runner(with_prefix_cache(), 64);
    for (uint32_t id = 0; id < 3; ++id) {
      runner.submit(id, prompt_of(9, length), 2, 4);
      runner.run();
    }
    EXPECT_EQ(runner.scheduler().prefix_cache_stats().hits, 2 * ((length - 1) / 16 * 16)) << length;
    EXPECT_EQ(runner.stale_slots, 0) << length;
  }
}

TEST(SchedulerTest, NextTurnBeginsWithThePagesOfTheResponse) {
  FakeRunner runner(with_prefix_cache(), 64);
  uint32_t id = 0;  // with a long response
  while (std::ssize(response_of(id, 0, 40)) < 40) ++id;
  const std::vector<int32_t> prompt = prompt_of(id, 10);
  runner.submit(id, prompt, 1, 40);
  runner.run();
  runner.submit(99, joined(joined(prompt, runner.done[0].tokens), {5, 5, 5}), 1, 4);
  runner.run();
  EXPECT_EQ(runner.done[1].cached_tokens, 48) << "of the 49 positions that were computed";
  EXPECT_EQ(runner.stale_slots, 0);
}

// The second prompt starts in the same step, with a page of its own; it takes the first one's pages
// as soon as they are computed.
TEST(SchedulerTest, PromptContinuesWithPagesThatAnotherHasComputed) {
  EngineOptions options = with_prefix_cache();
  options.max_batch_tokens = 33;  // rows for one of them
  FakeRunner runner(options, 64);
  for (uint32_t id = 0; id < 2; ++id)
    runner.submit(id, joined(prompt_of(9, 128), prompt_of(id, 8)), 1, 4);
  runner.step();
  EXPECT_EQ(runner.pool().total_pages() - runner.pool().free_pages(), 2 + 1);
  runner.run();
  EXPECT_EQ(runner.stale_slots, 0);
  EXPECT_GE(runner.scheduler().prefix_cache_stats().hits, 100);
}

TEST(SchedulerTest, PlannedPagesAreNotSharedBeforeTheyAreComputed) {
  FakeRunner runner(with_prefix_cache(), 64);
  runner.submit(1, prompt_of(9, 30), 1, 4);
  EXPECT_FALSE(runner.scheduler().plan().empty());
  runner.scheduler().cancel(1, 0);  // the plan is never run
  runner.submit(2, prompt_of(9, 30), 1, 4);
  runner.run();
  EXPECT_EQ(runner.scheduler().prefix_cache_stats().hits, 0);
  EXPECT_EQ(runner.stale_slots, 0);
}

TEST(SchedulerTest, SequencesOfOnePrefixHoldItsPagesOnce) {
  const auto most_running = [](bool is_cached) {
    EngineOptions options = small_options();
    options.prefix_cache = is_cached;
    FakeRunner runner(options, /*pages=*/20);
    runner.submit(50, prompt_of(9, 129), 1, 1);
    runner.run();
    for (uint32_t id = 0; id < 4; ++id)  // 9 or 10 pages each, 8 of them common
      runner.submit(id, joined(prompt_of(9, 128), prompt_of(id, 4)), 1, 20);
    int64_t most = 0;
    while (runner.step()) most = std::max(most, runner.scheduler().running());
    EXPECT_EQ(std::ssize(runner.done), 5);
    EXPECT_EQ(runner.stale_slots, 0);
    return most;
  };
  EXPECT_LE(most_running(false), 2);
  EXPECT_EQ(most_running(true), 4);
}

// Pages without a holder go before a sequence is preempted, and do not make one wait.
TEST(SchedulerTest, CachedPagesNeverCostASequenceItsPages) {
  const auto run = [](bool is_cached) {
    EngineOptions options = small_options();
    options.prefix_cache = is_cached;
    FakeRunner runner(options, /*pages=*/32);
    for (uint32_t id = 0; id < 30; ++id) {
      runner.submit(id, prompt_of(id, 40), 2, 60);
      if (id % 3 == 2) runner.run();
    }
    EXPECT_EQ(runner.stale_slots, 0);
    EXPECT_EQ(runner.pool().kept_free_pages() > 0, is_cached);
    return std::pair(runner.steps, runner.scheduler().preemptions());
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(SchedulerTest, NewWeightsEmptyThePrefixCache) {
  FakeRunner runner(with_prefix_cache(), 64);
  runner.submit(1, prompt_of(9, 40), 1, 4);
  EXPECT_THROW(runner.new_weights(), Error) << "a sequence is unfinished";
  runner.run();
  runner.new_weights();
  EXPECT_EQ(runner.pool().kept_free_pages(), 0);
  runner.submit(2, prompt_of(9, 40), 1, 4);
  runner.run();
  EXPECT_EQ(runner.scheduler().prefix_cache_stats().hits, 0);
  EXPECT_EQ(runner.stale_slots, 0);
}

TEST(SchedulerTest, ForgottenNewWeightsAreNoticed) {
  FakeRunner runner(with_prefix_cache(), 64);
  runner.submit(1, prompt_of(9, 40), 1, 4);
  runner.run();
  ++runner.version;
  runner.submit(2, prompt_of(9, 40), 1, 4);
  runner.run();
  EXPECT_GT(runner.stale_slots, 0);
}

// A plain map: which pages of tokens have been computed, as long as there is memory for all of them.
TEST(SchedulerTest, HitsAreThoseOfAPlainMap) {
  RandomStream random(3, {});
  FakeRunner runner(with_prefix_cache(), /*pages=*/4000);
  std::map<std::vector<int32_t>, bool> computed;  // whole prefixes of full pages
  std::vector<std::vector<int32_t>> texts = {{}};
  int64_t hits = 0, queries = 0;
  for (uint32_t id = 0; id < 120; ++id) {
    if (random.below(20) == 0) {
      runner.new_weights();
      computed.clear();
    }
    std::vector<int32_t> prompt = texts[random.below(texts.size())];
    prompt.resize(random.below(prompt.size() + 1));
    prompt = joined(prompt, prompt_of(id % 5, 1 + static_cast<int64_t>(random.below(40))));
    for (size_t end = 16;
         end < prompt.size() &&
         computed.contains({prompt.begin(), prompt.begin() + static_cast<long>(end)});
         end += 16)
      hits += 16;
    queries += std::ssize(prompt);
    runner.submit(id, prompt, 1 + static_cast<int64_t>(random.below(3)),
                  1 + static_cast<int64_t>(random.below(60)));
    const size_t first = runner.done.size();
    runner.run();
    ASSERT_EQ(runner.scheduler().prefix_cache_stats().hits, hits) << id;
    ASSERT_EQ(runner.scheduler().prefix_cache_stats().queries, queries) << id;
    for (size_t i = first; i < runner.done.size(); ++i) {
      texts.push_back(joined(prompt, runner.done[i].tokens));
      for (size_t end = 16; end < texts.back().size(); end += 16)  // not the last token's
        computed[{texts.back().begin(), texts.back().begin() + static_cast<long>(end)}] = true;
    }
  }
  EXPECT_EQ(runner.stale_slots, 0);
  EXPECT_GT(hits, 1000);
  EXPECT_EQ(runner.scheduler().preemptions(), 0);
}

// Adds tokens that an environment gave.
void observe(Response& response, const std::vector<int32_t>& tokens) {
  const auto begin = static_cast<int32_t>(response.tokens.size());
  response.tokens = joined(std::move(response.tokens), tokens);
  response.logprobs.resize(response.tokens.size());
  response.entropies.resize(response.tokens.size());
  response.observed.push_back({begin, static_cast<int32_t>(response.tokens.size())});
}

// Prompts of all lengths around page boundaries: a turn computes the new tokens, the last one of
// the turn before, which was not computed yet, and what is not in a full page.
TEST(SchedulerTest, NextTurnComputesNewTokensOnly) {
  for (int64_t length = 1; length < 50; ++length) {
    FakeRunner runner(with_prefix_cache(), 256);
    const std::vector<int32_t> prompt = prompt_of(5, length);
    runner.submit(5, prompt, /*samples=*/1, /*max_new_tokens=*/1000);
    runner.run();
    for (int turn = 1; turn < 6; ++turn) {
      Response response = runner.done.back();
      ASSERT_EQ(response.finish, FinishReason::kStop);
      const int64_t computed = length + std::ssize(response.tokens) - 1, before = runner.rows;
      const int64_t cached = computed / 16 * 16;
      observe(response, prompt_of(100, 3 * turn));
      runner.resume(prompt, std::move(response), 1000);
      runner.run();
      const bool has_prompt = cached >= length;  // in full pages
      EXPECT_EQ(runner.done.back().cached_tokens, has_prompt ? cached : (length - 1) / 16 * 16);
      const int64_t tokens = length + std::ssize(runner.done.back().tokens) - 1;
      EXPECT_EQ(runner.rows - before, tokens - runner.done.back().cached_tokens)
          << length << ", turn " << turn;
    }
    EXPECT_EQ(runner.stale_slots, 0);
  }
}

// The samples of a prompt hold its pages once, also in later turns; and without cached prompts.
TEST(SchedulerTest, TurnsOfAGroupShareThePromptsPages) {
  EngineOptions options = with_prefix_cache();
  options.caches_prompts = false;
  FakeRunner runner(options, 256);
  const std::vector<int32_t> prompt = prompt_of(5, 64);
  runner.submit(5, prompt, 4, 1000);
  runner.submit(6, prompt, 1, 1);
  runner.run();
  EXPECT_EQ(runner.scheduler().prefix_cache_stats().queries, 0);
  EXPECT_EQ(runner.scheduler().prefix_cache_stats().hits, 0) << "of a prompt";
  int64_t known = 0, pages = 4;
  for (Response& response : std::exchange(runner.done, {})) {
    if (response.prompt_id != 5) continue;
    const int64_t cached = (63 + std::ssize(response.tokens)) / 16 * 16;
    observe(response, {7, 7, 7});
    known += 64 + std::ssize(response.tokens);
    pages += (63 + std::ssize(response.tokens)) / 16 + 1 - 4;
    EXPECT_GE(cached, 64);
    runner.resume(prompt, std::move(response), 1000);
  }
  runner.step();
  EXPECT_EQ(runner.scheduler().prefix_cache_stats().queries, known);
  EXPECT_LE(runner.pool().total_pages() - runner.pool().free_pages(), pages + 4);
  runner.run();
  EXPECT_EQ(runner.stale_slots, 0);
  EXPECT_GE(runner.scheduler().prefix_cache_stats().hits, 4 * 64);
}

// Episodes wait between their turns; others take the pages that they leave.
TEST(SchedulerTest, PagesOfWaitingEpisodesAreGivenBack) {
  FakeRunner runner(with_prefix_cache(), /*pages=*/16);
  const std::vector<int32_t> prompt = prompt_of(5, 100);
  runner.submit(5, prompt, 1, 100);
  runner.run();
  Response response = runner.done.back();
  runner.submit(6, prompt_of(6, 200), 1, 50);
  runner.run();
  EXPECT_EQ(runner.scheduler().preemptions(), 0);
  ASSERT_EQ(response.finish, FinishReason::kStop);
  observe(response, {7, 7, 7});
  runner.resume(prompt, std::move(response), 150);
  runner.run();
  EXPECT_LT(runner.done.back().cached_tokens, 96);
  EXPECT_EQ(runner.stale_slots, 0);
}

struct Walk {
  int64_t hits = 0;
  int64_t stale_slots = 0, preemptions = 0, cancelled = 0, repeated_rows = 0;
};

// Random groups, cancellations and memory sizes. Every response that was not cancelled equals
// response_of().
Walk random_walk(uint64_t seed, bool forget_copies, bool prefix_cache = false) {
  RandomStream random(seed, {});
  EngineOptions options;
  options.max_running = 1 + static_cast<int64_t>(random.below(12));
  options.max_batch_tokens = options.max_running + static_cast<int64_t>(random.below(40));
  options.prefill_chunk = 1 + static_cast<int64_t>(random.below(40));
  options.prefix_cache = prefix_cache;
  FakeRunner runner(options, 12 + static_cast<int64_t>(random.below(25)));
  runner.forget_copies = forget_copies;
  std::map<uint32_t, int64_t> max_new_tokens, samples;
  int64_t submitted = 0;
  for (int event = 0; event < 600; ++event) {
    const uint64_t kind = random.below(20);
    if (kind == 0 && max_new_tokens.size() < 30) {
      const auto prompt = static_cast<uint32_t>(max_new_tokens.size());
      max_new_tokens[prompt] = 1 + static_cast<int64_t>(random.below(120));
      samples[prompt] = 1 + static_cast<int64_t>(random.below(6));
      const auto length = 1 + static_cast<int64_t>(random.below(50));
      std::vector<int32_t> tokens = prompt_of(prompt, length);
      if (prefix_cache)  // common beginnings of any length
        tokens = joined(prompt_of(prompt % 3, static_cast<int64_t>(random.below(50))), tokens);
      if (std::ssize(tokens) > length) tokens.resize(static_cast<size_t>(length));
      runner.submit(prompt, tokens, samples[prompt], max_new_tokens[prompt]);
      submitted += samples[prompt];
    } else if (kind == 1 && !samples.empty()) {
      const auto prompt = static_cast<uint32_t>(random.below(samples.size()));
      runner.scheduler().cancel(prompt, static_cast<uint32_t>(random.below(6)));
      runner.scheduler().check_invariants();
    } else {
      runner.step();
    }
  }
  runner.run();
  Walk walk{runner.scheduler().prefix_cache_stats().hits, runner.stale_slots,
            runner.scheduler().preemptions(), 0, runner.repeated_rows};
  for (const Response& response : runner.scheduler().take_finished())
    runner.done.push_back(response);
  EXPECT_EQ(std::ssize(runner.done), submitted);
  std::map<std::pair<uint32_t, uint32_t>, int> seen;
  for (const Response& response : runner.done) {
    const uint32_t prompt = response.prompt_id;
    EXPECT_EQ(++seen[std::pair(prompt, response.sample)], 1);
    std::vector<int32_t> want = response_of(prompt, response.sample, max_new_tokens[prompt]);
    EXPECT_EQ(response.target_forwards, std::ssize(response.tokens));
    if (response.finish == FinishReason::kCancelled) {
      ++walk.cancelled;
      EXPECT_LE(response.tokens.size(), want.size());
      want.resize(response.tokens.size());
    } else {
      EXPECT_EQ(response.finish, want.back() == kEos ? FinishReason::kStop : FinishReason::kLength);
    }
    EXPECT_EQ(response.tokens, want) << "prompt " << prompt << ", sample " << response.sample;
  }
  return walk;
}

TEST(SchedulerTest, RandomWalkKeepsInvariantsAndResponses) {
  Walk all;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Walk walk = random_walk(seed, /*forget_copies=*/false);
    ASSERT_EQ(walk.stale_slots, 0) << "seed " << seed;
    if (HasFailure()) FAIL() << "seed " << seed;
    all.preemptions += walk.preemptions;
    all.cancelled += walk.cancelled;
    all.repeated_rows += walk.repeated_rows;
  }
  // The walks covered these events.
  EXPECT_GT(all.preemptions, 100);
  EXPECT_GT(all.cancelled, 50);
  EXPECT_GT(all.repeated_rows, 500);
}

TEST(SchedulerTest, RandomWalkWithPrefixCacheKeepsInvariantsAndResponses) {
  Walk all;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Walk walk = random_walk(seed, /*forget_copies=*/false, /*prefix_cache=*/true);
    ASSERT_EQ(walk.stale_slots, 0) << "seed " << seed;
    if (HasFailure()) FAIL() << "seed " << seed;
    all.preemptions += walk.preemptions;
    all.cancelled += walk.cancelled;
    all.hits += walk.hits;
  }
  EXPECT_GT(all.preemptions, 100);
  EXPECT_GT(all.cancelled, 50);
  EXPECT_GT(all.hits, 1000);
}

// Episodes in little memory, whose turns come back in any order.
Walk random_episodes(uint64_t seed) {
  RandomStream random(seed, {});
  EngineOptions options;
  options.max_running = 1 + static_cast<int64_t>(random.below(12));
  options.max_batch_tokens = options.max_running + static_cast<int64_t>(random.below(40));
  options.prefill_chunk = 1 + static_cast<int64_t>(random.below(40));
  options.prefix_cache = true;
  options.caches_prompts = random.below(2) == 0;
  FakeRunner runner(options, 14 + static_cast<int64_t>(random.below(40)));
  constexpr int64_t kMost = 150;
  const auto prompt = [](uint32_t id) {
    return joined(prompt_of(99, 7 * (id % 3)), prompt_of(id % 4, 1 + id * 9 % 50));
  };
  std::vector<Response> waiting;
  for (uint32_t id = 0; id < 8; ++id) runner.submit(id, prompt(id), 1 + id % 3, kMost);
  for (int event = 0; event < 700; ++event) {
    runner.step();
    for (Response& response : std::exchange(runner.done, {}))
      if (response.finish == FinishReason::kStop) waiting.push_back(std::move(response));
    if (waiting.empty() || random.below(5) > 0) continue;
    const auto chosen = waiting.begin() + static_cast<std::ptrdiff_t>(random.below(waiting.size()));
    Response response = std::move(*chosen);
    waiting.erase(chosen);
    observe(response, prompt_of(random.below(3) ? 7 : 8, 1 + random.below(30)));
    const uint32_t id = response.prompt_id;
    if (std::ssize(response.tokens) < kMost) runner.resume(prompt(id), std::move(response), kMost);
  }
  runner.run();
  return {.hits = runner.scheduler().prefix_cache_stats().hits,
          .stale_slots = runner.stale_slots,
          .preemptions = runner.scheduler().preemptions(),
          .repeated_rows = runner.repeated_rows};
}

TEST(SchedulerTest, RandomEpisodesKeepInvariants) {
  Walk all;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Walk walk = random_episodes(seed);
    ASSERT_EQ(walk.stale_slots, 0) << "seed " << seed;
    if (HasFailure()) FAIL() << "seed " << seed;
    all.hits += walk.hits;
    all.preemptions += walk.preemptions;
    all.repeated_rows += walk.repeated_rows;
  }
  EXPECT_GT(all.hits, 10'000);
  EXPECT_GT(all.preemptions, 50);
  EXPECT_GT(all.repeated_rows, 100);
}

TEST(SchedulerTest, RandomWalkDetectsAMissingPageCopy) {
  int64_t stale_slots = 0;
  for (uint64_t seed = 0; seed < 5; ++seed)
    stale_slots += random_walk(seed, /*forget_copies=*/true).stale_slots;
  EXPECT_GT(stale_slots, 0);
}

TEST(SchedulerTest, InvariantsDetectLeakedAndStolenPages) {
  FakeRunner runner(small_options(), 64);
  runner.submit(1, 20, 2, 50);
  runner.step();
  runner.scheduler().check_invariants();
  const ops::PageId page = runner.pool().try_take().value();
  EXPECT_THROW(runner.scheduler().check_invariants(), Error);
  runner.pool().release(page);
  runner.scheduler().check_invariants();
  const ops::PageId held = runner.scheduler().plan().batch.segments.front().pages[0];
  runner.pool().share(held);
  EXPECT_THROW(runner.scheduler().check_invariants(), Error);
}

}  // namespace
}  // namespace tlt::rollout
