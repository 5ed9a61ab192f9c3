// SPDX-License-Identifier: Apache-2.0
#include "rollout/stop_string.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace tlt::rollout {
namespace {

// Token i is the i-th piece.
class PieceStream : public TextStream {
 public:
  explicit PieceStream(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}
  std::string_view push(int32_t token) override { return pieces_[static_cast<size_t>(token)]; }

 private:
  std::vector<std::string> pieces_;
};

// Index of the token that completes a stop string; -1: none does.
int32_t stops_at(const std::vector<std::string>& pieces, const std::vector<std::string>& stop) {
  StopFinder finder(std::make_unique<PieceStream>(pieces), stop);
  for (int32_t token = 0; token < std::ssize(pieces); ++token)
    if (finder.push(token)) return token;
  return -1;
}

TEST(StopFinderTest, StopStringMayBeInsideOneToken) {
  EXPECT_EQ(stops_at({"a", "xENDy", "b"}, {"END"}), 1);
}

TEST(StopFinderTest, StopStringMaySpanTokens) {
  EXPECT_EQ(stops_at({"aE", "N", "Db", "c"}, {"END"}), 2);
  EXPECT_EQ(stops_at({"aE", "", "ND"}, {"END"}), 2);
}

TEST(StopFinderTest, RepeatedPrefixIsNotMissed) {
  EXPECT_EQ(stops_at({"aa", "a", "b"}, {"aab"}), 2);
}

TEST(StopFinderTest, AnyOfTheStringsStops) {
  EXPECT_EQ(stops_at({"one ", "two ", "three"}, {"###", "two"}), 1);
  EXPECT_EQ(stops_at({"one ", "two ", "three"}, {"four"}), -1);
}

TEST(StopFinderTest, StopDoesNotDependOnThePieces) {
  RandomStream random(/*seed=*/3, {});
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    std::vector<std::string> pieces, stop;
    for (uint64_t i = random.below(30); i > 0; --i)
      text += static_cast<char>('a' + random.below(2));
    for (uint64_t i = 1 + random.below(3); i > 0; --i) {
      stop.emplace_back();
      for (uint64_t n = 1 + random.below(6); n > 0; --n)
        stop.back() += static_cast<char>('a' + random.below(2));
    }
    for (size_t at = 0; at < text.size();) {
      pieces.push_back(text.substr(at, random.below(5)));
      at += pieces.back().size();
    }
    int32_t want = -1;
    std::string so_far;
    for (int32_t token = 0; token < std::ssize(pieces) && want < 0; ++token) {
      so_far += pieces[static_cast<size_t>(token)];
      for (const std::string& s : stop)
        if (so_far.find(s) != std::string::npos) want = token;
    }
    ASSERT_EQ(stops_at(pieces, stop), want) << "round " << round << ", text " << text;
  }
}

}  // namespace
}  // namespace tlt::rollout
