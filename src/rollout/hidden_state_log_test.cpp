// SPDX-License-Identifier: Apache-2.0
#include "rollout/hidden_state_log.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

#include "base/random.h"

namespace tlt::rollout {
namespace {

using drafter::SequenceId;

struct Kept {
  int64_t token;
  float hidden, captured;
  bool operator==(const Kept&) const = default;
};
using KeptBySequence = std::map<SequenceId, std::vector<Kept>>;

// The result of take() for these sequences; empty: for all.
KeptBySequence take(HiddenStateLog& log, const std::vector<SequenceId>& ids = {}) {
  KeptBySequence taken;
  log.take(
      [&](SequenceId id) { return ids.empty() || std::ranges::find(ids, id) != ids.end(); },
      [&](SequenceId id, int64_t first, const TargetStates& states, std::span<const int32_t> rows) {
        for (const int32_t row : rows)
          taken[id].push_back({first++, states.hidden()[row][0].item<float>(),
                               states.captured()[row][1].item<float>()});
      });
  return taken;
}

TEST(HiddenStateLogTest, KeepsCopiesUntilTheyAreTaken) {
  HiddenStateLog log;
  at::Tensor hidden = at::arange(12, at::kFloat).view({4, 3});
  at::Tensor captured = hidden + 100;
  log.add({1, 0}, 0, {hidden, captured}, std::vector{1});
  log.add({2, 3}, 5, {hidden, captured}, std::vector{3, 0});
  hidden.zero_();  // the next forward pass
  captured.zero_();
  EXPECT_EQ(take(log, {{2, 3}}), (KeptBySequence{{{2, 3}, {{5, 9, 110}, {6, 0, 101}}}}));
  EXPECT_EQ(take(log), (KeptBySequence{{{1, 0}, {{0, 3, 104}}}}));
  EXPECT_EQ(take(log), KeptBySequence{});
}

// Compared with a list; few rows, so that the ring wraps around many times.
TEST(HiddenStateLogTest, KeepsTheLatestRowsOfAllSequencesInOrder) {
  constexpr int64_t kRows = 37;
  struct Row {
    SequenceId id;
    Kept kept;
    int64_t index = 0;  // in the order of add()
  };
  HiddenStateLog log(kRows);
  std::vector<Row> rows;  // not taken yet
  int64_t added = 0, memory = 0;
  std::map<SequenceId, int64_t> tokens;
  RandomStream random(/*seed=*/4, {});
  for (int step = 0; step < 3000; ++step) {
    const SequenceId id{static_cast<uint32_t>(random.below(3)), 0};
    const uint64_t action = random.below(20);
    if (action < 3) {
      KeptBySequence want;
      for (const Row& row : rows)
        if (row.id == id && row.index >= added - kRows) want[id].push_back(row.kept);
      std::erase_if(rows, [&](const Row& row) { return row.id == id; });
      if (action == 0)
        log.forget(id);
      else
        ASSERT_EQ(take(log, {id}), want) << "step " << step;
      continue;
    }
    const auto count = static_cast<int64_t>(1 + random.below(step % 50 == 0 ? 60 : 4));
    const at::Tensor hidden = at::rand({count + 2, 3}), captured = at::rand({count + 2, 2});
    std::vector<int32_t> from;
    for (int64_t i = 0; i < count; ++i) {
      from.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(count + 2))));
      rows.push_back({.id = id,
                      .kept = {tokens[id] + i, hidden[from.back()][0].item<float>(),
                               captured[from.back()][1].item<float>()},
                      .index = added++});
    }
    log.add(id, tokens[id], {hidden, captured}, from);
    tokens[id] += count;
    if (memory == 0) memory = log.memory_bytes();
  }
  EXPECT_EQ(log.memory_bytes(), memory) << "nothing grows";
}

}  // namespace
}  // namespace tlt::rollout
