// SPDX-License-Identifier: Apache-2.0
#include "rollout/commit_journal.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"

namespace tlt::rollout {
namespace {

using ::testing::ElementsAre;
using Event = CommitJournal::Event;

const std::vector<int32_t> kRow = {1};

TEST(CommitJournalTest, KeepsEventsInOrderAndCopiesOfTheirStates) {
  CommitJournal journal(/*with_states=*/true);
  at::Tensor hidden = at::arange(12, at::kFloat).view({4, 3});
  at::Tensor captured = hidden + 100;
  auto group = std::make_shared<GroupState>();
  group->request.tokens = {7, 8};
  journal.begin({1, 0}, group);
  journal.commit({1, 0}, std::vector{5}, {hidden, captured}, kRow);
  journal.commit({2, 3}, std::vector{6, 9}, {hidden, captured}, std::vector{3, 0});
  journal.end({1, 0});
  hidden.zero_();  // the next forward pass
  captured.zero_();

  const std::span<const CommitJournal::Entry> entries = journal.entries();
  ASSERT_EQ(entries.size(), 4U);
  EXPECT_EQ(entries[0].event, Event::kBegin);
  EXPECT_THAT(entries[0].group->request.tokens, ElementsAre(7, 8));
  EXPECT_EQ(entries[3].event, Event::kEnd);
  EXPECT_EQ(entries[2].id, (spec::SequenceId{2, 3}));
  EXPECT_THAT(journal.tokens(entries[1]), ElementsAre(5));
  EXPECT_THAT(journal.tokens(entries[2]), ElementsAre(6, 9));
  const std::span<const int32_t> rows = journal.rows(entries[2]);
  EXPECT_EQ(journal.states().hidden()[rows[0]][0].item<float>(), 9);
  EXPECT_EQ(journal.states().hidden()[rows[1]][2].item<float>(), 2);
  EXPECT_EQ(journal.states().captured()[rows[0]][1].item<float>(), 110);
  EXPECT_EQ(journal.states().hidden()[journal.rows(entries[1])[0]][0].item<float>(), 3);
}

TEST(CommitJournalTest, IsFullAfterSoManyTokensOrEvents) {
  CommitJournal journal(/*with_states=*/false);
  for (size_t i = 0; i < CommitJournal::kRows; ++i) {
    EXPECT_FALSE(journal.is_full());
    journal.commit({1, 0}, std::vector{5}, TargetStates(at::Tensor()), kRow);
  }
  EXPECT_TRUE(journal.is_full());
  const int64_t bytes = journal.memory_bytes();
  journal.clear();
  EXPECT_TRUE(journal.empty());
  for (size_t i = 0; i < 2 * CommitJournal::kRows; ++i) {
    EXPECT_FALSE(journal.is_full());
    journal.end({1, 0});
  }
  EXPECT_TRUE(journal.is_full());
  EXPECT_EQ(journal.memory_bytes(), bytes) << "nothing is allocated once it is made";
  EXPECT_THROW(journal.commit({1, 0}, std::vector{5, 6}, TargetStates(at::Tensor()), kRow), Error);
}

}  // namespace
}  // namespace tlt::rollout
