// SPDX-License-Identifier: Apache-2.0
#include "drafter/suffix/suffix_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/check.h"
#include "base/random.h"
#include "tests/support/shown_texts.h"
#include "tests/support/suffix_reference.h"

namespace tlt::drafter {
namespace {

using ::testing::HasSubstr;
using tests::Path;
using tests::paths_of;
using tests::SlowTexts;
using Tokens = std::vector<int32_t>;

constexpr Strategy kStrategy{6, 3, 16};

// A drafter and the sequences it gets.
struct Shown {
  explicit Shown(const SuffixOptions& options = {}) : drafter(options) {}
  std::map<Path, float> draft(SequenceId id) { return paths_of(texts.draft(id, kStrategy)); }

  SuffixDrafter drafter;
  tests::ShownTexts texts{drafter};
};

TEST(SuffixDrafterTest, MatchesItsOwnResponseAndPrompt) {
  Shown shown;
  shown.texts.begin({1, 0}, Tokens{1, 2, 3, 4});
  EXPECT_TRUE(shown.draft({1, 0}).empty());
  shown.texts.commit({1, 0}, Tokens{9, 2, 3});
  EXPECT_TRUE(shown.draft({1, 0}).contains({4}));
  shown.texts.commit({1, 0}, Tokens{9});
  EXPECT_TRUE(shown.draft({1, 0}).contains({2, 3, 9, 2}));  // periodic continuation
}

TEST(SuffixDrafterTest, UsesTokensOfTheGroupOnceCommitted) {
  Shown shown;
  shown.texts.begin({1, 0}, Tokens{1, 2});
  shown.texts.begin({1, 1}, Tokens{1, 2});
  shown.texts.begin({2, 0}, Tokens{1, 2});  // another prompt id with the same tokens
  shown.texts.commit({1, 0}, Tokens{7, 8});
  EXPECT_TRUE(shown.draft({1, 1}).contains({7, 8}));
  EXPECT_TRUE(shown.draft({2, 0}).empty());
  shown.texts.commit({1, 0}, Tokens{9});
  EXPECT_TRUE(shown.draft({1, 1}).contains({7, 8, 9}));
  shown.texts.end({1, 0});
  EXPECT_TRUE(shown.draft({1, 1}).contains({7, 8, 9}));
}

TEST(SuffixDrafterTest, OlderPolicysResponsesCountHalf) {
  Shown shown;
  shown.texts.begin({1, 0}, Tokens{1, 2});
  shown.texts.commit({1, 0}, Tokens{7, 8, 9});
  shown.texts.end({1, 0});
  shown.drafter.new_weights();
  shown.texts.begin({1, 0}, Tokens{1, 2});
  shown.texts.begin({1, 1}, Tokens{1, 2});
  const std::map<Path, float> alone = shown.draft({1, 0});
  EXPECT_TRUE(alone.contains({7, 8, 9}));
  EXPECT_FLOAT_EQ(alone.at({7}), 1.5f / 2.5f);
  shown.texts.commit({1, 1}, Tokens{5});
  EXPECT_FLOAT_EQ(shown.draft({1, 0}).at({5}), 3.0f / 5.5f);
}

// No requests while they ran.
TEST(SuffixDrafterTest, UnseenResponsesAreUsed) {
  Shown shown;
  shown.drafter.end({1, 0}, Tokens{7, 8, 9});
  shown.texts.begin({1, 1}, Tokens{1, 2});
  EXPECT_FLOAT_EQ(shown.draft({1, 1}).at({7}), 3 / 4.0f) << "same policy";
  shown.texts.commit({1, 1}, Tokens{7});
  shown.drafter.end({1, 2}, Tokens{7, 5, 6});
  EXPECT_TRUE(shown.draft({1, 1}).contains({5, 6})) << "while its group runs";
  shown.drafter.end({1, 3}, {});
  shown.texts.end({1, 1});
  shown.drafter.new_weights();
  shown.texts.begin({1, 0}, Tokens{1, 2});
  EXPECT_FLOAT_EQ(shown.draft({1, 0}).at({7}), 4.5f / 5.5f) << "all three in the next epoch";
}

// Reference: the drafter's knowledge as explicit token sequences.
struct SlowSuffixDrafter {
  explicit SlowSuffixDrafter(const SuffixOptions& with) : options(with) {}

  struct Prompt {
    SlowTexts texts;
    std::map<uint32_t, size_t> running;  // sequence of each sample
  };
  SuffixOptions options;
  std::map<uint32_t, Prompt> prompts;
  std::map<uint32_t, std::vector<std::pair<Tokens, int>>> history;  // with the policy
  int policy = 0;

  static Tokens prompt_of(uint32_t id) {
    Tokens prompt(id % 3 == 2 ? 40 : id % 3);  // longer than the longest match, empty, one token
    for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i * i % 4);
    return prompt;
  }
  void begin(SequenceId id) {
    const Tokens prompt = prompt_of(id.prompt_id);
    const auto [known, is_new] = prompts.try_emplace(id.prompt_id);
    SlowTexts& texts = known->second.texts;
    const auto add = [&](const Tokens& before, const Tokens& text, double weight) {
      texts.add_text(before, weight);
      for (const int32_t token : text) texts.append(texts.texts.size() - 1, token);
    };
    if (is_new) {
      for (const auto& [response, its_policy] : history[id.prompt_id])
        add(prompt, response, its_policy == policy ? 1 : 0.5);
      add({}, prompt, 1);
    }
    add(prompt, {}, 1);
    known->second.running[id.sample] = texts.texts.size() - 1;
  }
  void commit(SequenceId id, const Tokens& tokens) {
    Prompt& prompt = prompts.at(id.prompt_id);
    for (const int32_t token : tokens) prompt.texts.append(prompt.running.at(id.sample), token);
  }
  void end(SequenceId id) {
    Prompt& prompt = prompts.at(id.prompt_id);
    const Tokens& all = prompt.texts.texts[prompt.running.at(id.sample)].tokens;
    const size_t before = std::min<size_t>(prompt_of(id.prompt_id).size(), 32);
    auto& known = history[id.prompt_id];
    if (all.size() > before)
      known.emplace_back(Tokens(all.begin() + static_cast<long>(before), all.end()), policy);
    while (std::ssize(known) > options.history) known.erase(known.begin());
    prompt.running.erase(id.sample);
    if (prompt.running.empty()) prompts.erase(id.prompt_id);
  }
};

TEST(SuffixDrafterTest, RandomEventsMatchTheReference) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const SuffixOptions options{.min_match = static_cast<int64_t>(1 + seed % 2),
                                .min_probability = 0.02,
                                .history = static_cast<int64_t>(seed % 4)};
    Shown shown(options);
    SlowSuffixDrafter slow(options);
    RandomStream random(seed, {.step = 3});
    std::map<SequenceId, int> running;  // and number of commits
    for (int step = 0; step < 600; ++step) {
      if (step % 100 == 99) shown.drafter.new_weights(), ++slow.policy;
      const SequenceId id{static_cast<uint32_t>(random.below(3)),
                          static_cast<uint32_t>(random.below(2))};
      if (!running.contains(id)) {
        if (random.below(3) != 0) continue;  // so that sometimes all of a prompt have ended
        shown.texts.begin(id, SlowSuffixDrafter::prompt_of(id.prompt_id));
        slow.begin(id);
        running[id] = 0;
      } else if (running[id] > 2 && random.below(2) == 0) {
        shown.texts.end(id);
        slow.end(id);
        running.erase(id);
        continue;
      } else {
        Tokens tokens(random.below(5));
        for (int32_t& token : tokens) token = static_cast<int32_t>(random.below(4));
        shown.texts.commit(id, tokens);
        slow.commit(id, tokens);
        ++running[id];
      }
      const SlowSuffixDrafter::Prompt& prompt = slow.prompts.at(id.prompt_id);
      ASSERT_EQ(shown.draft(id), prompt.texts.draft(prompt.running.at(id.sample),
                                                    static_cast<int32_t>(options.min_match),
                                                    kStrategy, options.min_probability))
          << "seed " << seed << ", step " << step;
    }
  }
}

// One epoch over many prompts, two samples each; returns the largest memory after a response ended.
int64_t run_epoch(Shown& shown, uint32_t prompts, int32_t tokens) {
  int64_t peak = 0;
  for (uint32_t prompt = 0; prompt < prompts; ++prompt) {
    const SequenceId a{prompt, 0};
    const SequenceId b{prompt, 1};
    shown.texts.begin(a, Tokens{1});
    shown.texts.begin(b, Tokens{1});
    for (int32_t i = 0; i < tokens; ++i) {
      shown.texts.commit(a, Tokens{static_cast<int32_t>(prompt) * 100000 + i});
      shown.texts.commit(b, Tokens{i});
    }
    shown.texts.end(a);
    shown.texts.end(b);
    peak = std::max(peak, shown.drafter.memory_bytes());
  }
  return peak;
}

TEST(SuffixDrafterTest, OldestPromptsAreEvictedFirst) {
  SuffixOptions options;
  options.memory_bytes = 250000;
  Shown shown(options);
  EXPECT_LE(run_epoch(shown, /*prompts=*/60, /*tokens=*/500), options.memory_bytes);
  EXPECT_GT(shown.drafter.memory_bytes(), options.memory_bytes / 2);  // the memory is used
  const auto known = [&](uint32_t prompt) {
    shown.texts.begin({prompt, 0}, Tokens{1});
    const std::map<Path, float> tree = shown.draft({prompt, 0});
    shown.texts.end({prompt, 0});
    return tree.contains({static_cast<int32_t>(prompt) * 100000}) + tree.contains({0});
  };
  EXPECT_EQ(known(59), 2);  // both responses: half of the memory is for their index
  EXPECT_EQ(known(0), 0);
}

TEST(SuffixDrafterTest, GrowingSequencesEvictHistories) {
  SuffixOptions options;
  options.memory_bytes = 250000;
  Shown shown(options);
  run_epoch(shown, /*prompts=*/60, /*tokens=*/500);
  shown.texts.begin({100, 0}, Tokens{1});
  for (int32_t i = 0; i < 2200; ++i) {
    shown.texts.commit({100, 0}, Tokens{i});
    ASSERT_LE(shown.drafter.memory_bytes(), options.memory_bytes) << "token " << i;
  }
}

TEST(SuffixDrafterTest, HistoryIsIndexedWithinTheMemory) {
  SuffixOptions options;
  options.memory_bytes = 1000000;
  Shown shown(options);
  for (int epoch = 0; epoch < 8; ++epoch) run_epoch(shown, /*prompts=*/8, /*tokens=*/400);
  for (uint32_t prompt = 0; prompt < 8; ++prompt) {  // all 16 responses of all: 3 MB and more
    shown.texts.begin({prompt, 0}, Tokens{1});
    EXPECT_LE(shown.drafter.memory_bytes(), options.memory_bytes) << "prompt " << prompt;
  }
  EXPECT_TRUE(shown.draft({0, 0}).contains({0, 1}));
}

TEST(SuffixDrafterTest, RunningSequencesAreNeverEvicted) {
  SuffixOptions options;
  options.memory_bytes = 0;
  Shown shown(options);
  shown.texts.begin({1, 0}, Tokens{1, 2});
  shown.texts.begin({1, 1}, Tokens{1, 2});
  for (int32_t i = 0; i < 2000; ++i) shown.texts.commit({1, 0}, Tokens{i});
  EXPECT_TRUE(shown.draft({1, 1}).contains({0, 1, 2}));
  shown.texts.commit({1, 1}, Tokens{1998});
  EXPECT_TRUE(shown.draft({1, 1}).contains({1999}));
  shown.texts.end({1, 0});
  shown.texts.end({1, 1});
  shown.texts.begin({1, 0}, Tokens{1, 2});
  EXPECT_TRUE(shown.draft({1, 0}).empty());  // no memory for a history
}

TEST(SuffixDrafterTest, MemoryStopsGrowingOnceWarm) {
  SuffixOptions options;
  options.history = 2;
  Shown shown(options);
  run_epoch(shown, /*prompts=*/10, /*tokens=*/300);
  run_epoch(shown, /*prompts=*/10, /*tokens=*/300);
  const int64_t warm = shown.drafter.memory_bytes();
  EXPECT_EQ(run_epoch(shown, /*prompts=*/10, /*tokens=*/300), warm);
}

TEST(SuffixDrafterTest, SameCallsGiveTheSameTrees) {
  const auto run = [] {
    Shown shown;
    RandomStream random(/*seed=*/8, {});
    std::vector<DraftNode> all;
    for (uint32_t sample = 0; sample < 4; ++sample) shown.texts.begin({1, sample}, Tokens{1});
    for (int step = 0; step < 300; ++step) {
      const SequenceId id{1, static_cast<uint32_t>(random.below(4))};
      shown.texts.commit(id, Tokens{static_cast<int32_t>(random.below(3))});
      const DraftTree tree = shown.texts.draft(id, kStrategy);
      all.insert(all.end(), tree.nodes().begin(), tree.nodes().end());
    }
    return all;
  };
  const auto same = [](const DraftNode& a, const DraftNode& b) {
    return a.token == b.token && a.parent == b.parent && a.probability == b.probability;
  };
  const std::vector<DraftNode> first = run();
  EXPECT_GT(first.size(), 1000u);
  EXPECT_TRUE(std::ranges::equal(first, run(), same));
}

TEST(SuffixDrafterTest, ShrinkingResponseThrows) {
  Shown shown;
  shown.texts.begin({1, 0}, Tokens{1});
  shown.texts.commit({1, 0}, Tokens{1, 2});
  EXPECT_THROW(shown.texts.begin({1, 0}, Tokens{1}), Error);
}

TEST(SuffixOptionsTest, InvalidValuesAreNamed) {
  const auto complaint = [](const SuffixOptions& options) -> std::string {
    try {
      options.check();
    } catch (const InputError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(complaint({}), "no error");
  EXPECT_THAT(complaint({.memory_bytes = -1}), HasSubstr("memory_bytes is -1"));
}

}  // namespace
}  // namespace tlt::drafter
