// SPDX-License-Identifier: Apache-2.0
#include "simulate/suffix_replay.h"

#include <gmock/gmock.h>

namespace tlt::simulate {
namespace {

constexpr drafter::Strategy kTree{4, 2, 9};
constexpr int64_t kSamples = 2;

// 2 is followed by 3 4 5, and by 6 7 8.
const std::vector<int32_t> kPrompt = {1, 2, 3, 4, 5, 1, 2, 6, 7, 8};

SimulatedSequence at(const ResponseTokens& recorded, double generated, int64_t sample = 0) {
  return {.sample = sample,
          .recorded = &recorded,
          .length = static_cast<double>(recorded.tokens.size()),
          .generated = generated};
}

class SuffixReplayTest : public ::testing::Test {
 protected:
  explicit SuffixReplayTest(int64_t max_response_length = 100)
      : replay_(kSamples, max_response_length) {}

  // The accepted tokens of what is found for a sequence alone; -1: nothing is found.
  int32_t accepted(SimulatedSequence& sequence, int32_t nodes = 8) {
    SimulatedSequence* pointer = &sequence;
    if (replay_.propose(std::span(&pointer, 1), kTree) == 0) return -1;
    return replay_.verify(0, nodes, sequence).accepted_depth();
  }

  SuffixReplay replay_;
};

TEST_F(SuffixReplayTest, TokensOfTheResponseAreAccepted) {
  const ResponseTokens first{.prompt_id = 0, .prompt = kPrompt, .tokens = {2, 6, 7, 9, 9, 9}},
      second{.prompt_id = 1, .prompt = kPrompt, .tokens = {2, 3, 4, 5, 1, 9}};
  SimulatedSequence of_first = at(first, 1), of_second = at(second, 1);
  EXPECT_EQ(accepted(of_first), 2);
  EXPECT_GT(replay_.tree(0).size(), 4) << "a tree, not a chain";
  EXPECT_EQ(accepted(of_second), 4);
  of_second = at(second, 2.9);
  EXPECT_EQ(accepted(of_second), 3) << "the fraction of a token does not count";
  EXPECT_EQ(accepted(of_second, /*nodes=*/1), 1);
  EXPECT_EQ(replay_.tree(0).size(), 1);
}

class ShortSuffixReplayTest : public SuffixReplayTest {
 protected:
  ShortSuffixReplayTest() : SuffixReplayTest(/*max_response_length=*/3) {}
};

// The prompt's pass gives the first token, and a path ends before the last token that fits.
TEST_F(ShortSuffixReplayTest, NoDraftBeforeTheFirstTokenNorAtTheEnd) {
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 1};
  const ResponseTokens recorded{.prompt_id = 0, .prompt = prompt, .tokens = {2, 3, 4, 5, 1, 2}};
  SimulatedSequence sequence = at(recorded, 0);
  EXPECT_EQ(accepted(sequence), -1);
  sequence = at(recorded, 1);
  EXPECT_EQ(accepted(sequence), 1);
  sequence = at(recorded, 2);
  EXPECT_EQ(accepted(sequence), -1);
}

TEST_F(SuffixReplayTest, SequencesWithDraftsAreFirst) {
  const ResponseTokens unknown{.prompt_id = 0, .prompt = kPrompt, .tokens = {30, 31, 32}},
      known{.prompt_id = 1, .prompt = kPrompt, .tokens = {2, 3, 4}};
  SimulatedSequence without = at(unknown, 1), with = at(known, 1);
  std::vector<SimulatedSequence*> sequences = {&without, &with};
  ASSERT_EQ(replay_.propose(sequences, kTree), 1U);
  EXPECT_THAT(sequences, ::testing::ElementsAre(&with, &without));
  EXPECT_EQ(replay_.verify(0, 8, *sequences[0]).accepted_depth(), 2);
}

// Samples of a group find each other's tokens; after them, the next samples of the prompt do.
TEST_F(SuffixReplayTest, ResponsesToAPromptAreFound) {
  const ResponseTokens recorded{.prompt_id = 0, .prompt = {}, .tokens = {20, 21, 22, 23, 24, 25}};
  SimulatedSequence before = at(recorded, 5), sample = at(recorded, 1, /*sample=*/1);
  EXPECT_EQ(accepted(before), -1);
  EXPECT_EQ(accepted(sample), 4);
  before.generated = 6;
  replay_.end(before);
  replay_.end(sample);
  replay_.new_weights();
  SimulatedSequence later = at(recorded, 2);
  later.group = 7;
  EXPECT_EQ(accepted(later), 4);
}

TEST_F(SuffixReplayTest, ProbabilitiesAreCalibrated) {
  const ResponseTokens recorded{.prompt_id = 0, .prompt = kPrompt, .tokens = {2, 9}};
  SimulatedSequence sequence = at(recorded, 1);
  const double before = replay_.calibration().corrected(0.5);
  for (int i = 0; i < 100; ++i) {
    SimulatedSequence* pointer = &sequence;
    ASSERT_EQ(replay_.propose(std::span(&pointer, 1), kTree), 1U);
    const drafter::VerifiedTree verified = replay_.verify(0, 8, sequence);
    replay_.record(std::span(&verified, 1));
  }
  EXPECT_LT(replay_.calibration().corrected(0.5), 0.5 * before) << "nothing was accepted";
}

}  // namespace
}  // namespace tlt::simulate
