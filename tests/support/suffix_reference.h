// A slow reference for the suffix drafter: it searches every position of every sequence, and counts
// the occurrences of a node again from the root.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "drafter/strategy.h"
#include "drafter/suffix/suffix_index.h"
#include "tests/support/tree_paths.h"

namespace tlt::tests {

// The sequences of one prompt.
struct SlowTexts {
  struct Text {
    std::vector<int32_t> tokens;
    double weight = 1;
  };
  struct Match {
    size_t text = 0;
    size_t next = 0;  // offset of the token that followed
    int32_t length = 0;
    auto operator<=>(const Match&) const = default;
  };

  std::vector<Text> texts;
  std::vector<std::pair<size_t, size_t>> entered;  // sequence and offset, the newest last

  void add_text(std::vector<int32_t> before, double weight) {
    const size_t most = drafter::SuffixIndex::kLongestMatch;
    if (before.size() > most) before.erase(before.begin(), before.end() - most);
    texts.push_back({before, weight});
    if (!before.empty()) entered.emplace_back(texts.size() - 1, before.size() - 1);
  }
  void append(size_t text, int32_t token) {
    texts[text].tokens.push_back(token);
    entered.emplace_back(text, texts[text].tokens.size() - 1);
  }

  int32_t common_end(size_t text, size_t other, size_t offset) const {
    const std::vector<int32_t>& a = texts[text].tokens;
    const std::vector<int32_t>& b = texts[other].tokens;
    int32_t length = 0;
    while (length < drafter::SuffixIndex::kLongestMatch && static_cast<size_t>(length) < a.size() &&
           static_cast<size_t>(length) <= offset &&
           a[a.size() - 1 - static_cast<size_t>(length)] == b[offset - static_cast<size_t>(length)])
      ++length;
    return length;
  }

  std::vector<Match> find(size_t text, int32_t min_match) const {
    std::vector<Match> found;
    const std::vector<std::pair<int32_t, int32_t>> ranges = {
        {min_match + 11, 1000}, {min_match + 3, min_match + 10}, {min_match, min_match + 2}};
    for (const auto& [least, most] : ranges)
      for (size_t i = entered.size(); i-- > 0;) {
        const auto [other, offset] = entered[i];
        if (offset + 1 == texts[other].tokens.size()) continue;
        const int32_t length = common_end(text, other, offset);
        if (length >= least && length <= most && found.size() < drafter::SuffixIndex::kMostFound)
          found.push_back({other, offset + 1, length});
      }
    return found;
  }

  // The i-th token after the match; in the sequence itself the continuation is periodic.
  std::optional<int32_t> following(size_t own, const Match& match, size_t i) const {
    const std::vector<int32_t>& tokens = texts[match.text].tokens;
    const size_t known = tokens.size() - match.next;
    if (i < known) return tokens[match.next + i];
    if (match.text != own) return std::nullopt;
    return tokens[match.next + i % known];
  }

  // Tokens that may follow `path`, the most probable first, with their probabilities.
  std::vector<std::pair<double, int32_t>> children(size_t own, const std::vector<Match>& matches,
                                                   const Path& path) const {
    std::map<int32_t, double> weights;
    double all = 0;
    double largest = 0;
    for (const Match& match : matches) {
      bool follows = true;
      for (size_t i = 0; i < path.size() && follows; ++i)
        follows = following(own, match, i) == path[i];
      const auto next = following(own, match, path.size());
      if (!follows || !next) continue;
      const double w = match.length + static_cast<double>(path.size()) + 1;
      weights[*next] += texts[match.text].weight * w * w;
      all += texts[match.text].weight * w * w;
      largest = std::max(largest, w);
    }
    std::vector<std::pair<double, int32_t>> sorted;
    for (const auto& [token, weight] : weights) sorted.emplace_back(weight, token);
    std::ranges::stable_sort(sorted, [](auto& a, auto& b) { return a.first > b.first; });
    for (auto& [weight, token] : sorted) weight /= all + largest;
    return sorted;
  }

  std::map<Path, float> draft(size_t own, int32_t min_match, const drafter::Strategy& strategy,
                              double min_probability) const {
    const std::vector<Match> matches = find(own, min_match);
    std::vector<std::pair<double, Path>> open;  // in the order of discovery
    std::map<size_t, int64_t> expanded;         // by depth
    std::map<Path, float> chosen;
    const auto expand = [&](const Path& path, double probability) {
      if (static_cast<int64_t>(path.size()) == strategy.depth) return;
      if (++expanded[path.size()] > strategy.width) return;
      const auto next = children(own, matches, path);
      for (size_t i = 0; i < next.size() && static_cast<int64_t>(i) < strategy.width; ++i) {
        Path child = path;
        child.push_back(next[i].second);
        if (probability * next[i].first >= min_probability)
          open.emplace_back(probability * next[i].first, child);
      }
    };
    expand({}, 1);
    while (!open.empty() && static_cast<int64_t>(chosen.size()) < strategy.verify - 1) {
      size_t best = 0;
      for (size_t i = 1; i < open.size(); ++i)
        if (open[i].first > open[best].first ||
            (open[i].first == open[best].first && open[i].second.size() < open[best].second.size()))
          best = i;
      const auto [probability, path] = open[best];
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(best));
      chosen[path] = static_cast<float>(probability);
      expand(path, probability);
    }
    return chosen;
  }
};

}  // namespace tlt::tests
