// SPDX-License-Identifier: Apache-2.0
#include "reward/eval_statistics.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "base/check.h"
#include "base/random.h"
#include "base/statistics.h"

namespace tlt::reward {
namespace {

constexpr uint64_t kBootstrapKey = 0xB0'07'57'4A, kChoiceKey = 0xC4'01'CE;

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double deviation_of(std::span<const double> values) {
  const double mean = mean_of(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size()));
}

// C(n, k), or more than `most` if it is more.
int64_t choices(int64_t n, int64_t k, int64_t most) {
  int64_t count = 1;
  for (int64_t i = 1; i <= std::min(k, n - k); ++i) {
    count = count * (n - i + 1) / i;  // C(n, i): whole, and grows with i up to n / 2
    if (count > most) return count;
  }
  return count;
}

// Each answer as a number from 0; -1: none.
std::vector<int64_t> numbered(std::span<const std::string> answers) {
  std::map<std::string_view, int64_t> number_of;
  std::vector<int64_t> numbers;
  for (const std::string& answer : answers)
    numbers.push_back(
        answer.empty() ? -1 : number_of.emplace(answer, std::ssize(number_of)).first->second);
  return numbers;
}

// The score of the most frequent answer of these responses.
double majority_of(std::span<const double> scores, std::span<const int64_t> answers,
                   std::span<const size_t> chosen) {
  std::map<int64_t, std::vector<double>> votes;
  std::vector<double> all;
  size_t most = 0;
  for (const size_t i : chosen) {
    all.push_back(scores[i]);
    if (answers[i] < 0) continue;
    std::vector<double>& of_answer = votes[answers[i]];
    of_answer.push_back(scores[i]);
    most = std::max(most, of_answer.size());
  }
  if (votes.empty()) return mean_of(all);
  std::vector<double> winners;
  for (const auto& [answer, of_answer] : votes)
    if (of_answer.size() == most) winners.push_back(mean_of(of_answer));
  return mean_of(winners);
}

// The next choice of k of n in lexicographic order; false: it was the last.
bool advance(std::vector<size_t>& choice, size_t n) {
  for (size_t i = choice.size(); i-- > 0;) {
    if (choice[i] == n - choice.size() + i) continue;
    ++choice[i];
    for (size_t j = i + 1; j < choice.size(); ++j) choice[j] = choice[j - 1] + 1;
    return true;
  }
  return false;
}

// 2, 4, 8 … below n, and n; as verl has them.
std::vector<int64_t> sizes_of(int64_t n) {
  std::vector<int64_t> sizes;
  for (int64_t k = 2; k < n; k *= 2) sizes.push_back(k);
  if (n > 1) sizes.push_back(n);
  return sizes;
}

// A statistic of one prompt.
struct PromptStatistic {
  std::string name;
  bool is_core;
  std::function<double(const PromptScores&)> of;
};

std::string at(const char* name, int64_t k, const char* end = "") {
  return name + std::string("@") + std::to_string(k) + end;
}

std::vector<PromptStatistic> statistics_of(int64_t n, bool has_answers) {
  std::vector<PromptStatistic> all = {{at("reward/mean", n), true, [](const PromptScores& prompt) {
                                         return mean_of(prompt.scores);
                                       }}};
  if (n == 1) return all;
  all.push_back({at("reward/std", n), false,
                 [](const PromptScores& prompt) { return deviation_of(prompt.scores); }});
  const auto add_pass = [&](int64_t k) {
    all.push_back({at("acc/pass", k), k == n, [n, k](const PromptScores& prompt) {
                     return pass_at_k(n, std::ranges::count(prompt.passed, true), k);
                   }});
  };
  add_pass(1);
  for (const int64_t k : sizes_of(n)) {
    all.push_back({at("reward/best", k, "/mean"), k == n,
                   [k](const PromptScores& prompt) { return best_at_k(prompt.scores, k); }});
    if (has_answers)
      all.push_back({at("reward/maj", k, "/mean"), k == n, [k](const PromptScores& prompt) {
                       return majority_at_k(prompt.scores, prompt.answers, k);
                     }});
    add_pass(k);
  }
  return all;
}

}  // namespace

std::vector<double> largest_probabilities(int64_t n, int64_t k) {
  TLT_CHECK(k >= 1 && k <= n, k, " of ", n);
  // C(j, k - 1) / C(n, k), from the last one down, without large numbers.
  std::vector<double> probabilities(static_cast<size_t>(n));
  double probability = static_cast<double>(k) / static_cast<double>(n);
  for (int64_t j = n - 1; j >= k - 1; --j) {
    probabilities[static_cast<size_t>(j)] = probability;
    if (j > 0) probability *= static_cast<double>(j + 1 - k) / static_cast<double>(j);
  }
  return probabilities;
}

double best_at_k(std::span<const double> scores, int64_t k) {
  std::vector<double> sorted(scores.begin(), scores.end());
  std::ranges::sort(sorted);
  const std::vector<double> probabilities = largest_probabilities(std::ssize(sorted), k);
  return std::inner_product(sorted.begin(), sorted.end(), probabilities.begin(), 0.0);
}

double pass_at_k(int64_t samples, int64_t passed, int64_t k) {
  TLT_CHECK(k >= 1 && k <= samples && passed >= 0 && passed <= samples, "pass@", k, " of ", passed,
            " in ", samples);
  if (samples - passed < k) return 1;
  double fails = 1;  // the product form of Codex, without large numbers
  for (int64_t i = samples - passed + 1; i <= samples; ++i)
    fails *= 1 - static_cast<double>(k) / static_cast<double>(i);
  return 1 - fails;
}

double majority_at_k(std::span<const double> scores, std::span<const std::string> answers,
                     int64_t k) {
  const int64_t n = std::ssize(scores);
  TLT_CHECK(std::ssize(answers) == n && k >= 1 && k <= n, "maj@", k, " of ", n, " with ",
            answers.size(), " answers");
  const std::vector<int64_t> numbers = numbered(answers);
  std::vector<size_t> choice(static_cast<size_t>(k));
  std::iota(choice.begin(), choice.end(), 0);
  double sum = 0;
  int64_t count = 0;
  if (choices(n, k, kMaxChoices) <= kMaxChoices) {
    do {
      sum += majority_of(scores, numbers, choice);
      ++count;
    } while (advance(choice, scores.size()));
    return sum / static_cast<double>(count);
  }
  RandomStream random(kChoiceKey, {.step = static_cast<uint32_t>(k)});
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  for (; count < kMaxChoices; ++count) {
    for (size_t i = 0; i < choice.size(); ++i)  // the first k of a shuffle
      std::swap(order[i], order[i + random.below(order.size() - i)]);
    sum += majority_of(scores, numbers, std::span(order).first(choice.size()));
  }
  return sum / static_cast<double>(count);
}

Estimate bootstrap_mean(std::span<const double> values, int64_t resamples) {
  TLT_CHECK(!values.empty());
  const double mean = mean_of(values);
  if (resamples == 0) return {mean, mean, mean};
  RandomStream random(kBootstrapKey, {});
  std::vector<double> means;
  for (int64_t draw = 0; draw < resamples; ++draw) {
    double sum = 0;
    for (size_t i = 0; i < values.size(); ++i) sum += values[random.below(values.size())];
    means.push_back(sum / static_cast<double>(values.size()));
  }
  return {mean, percentile(means, 0.025), percentile(means, 0.975)};
}

std::string EvalStatistic::metric() const {
  return (is_core ? "val-core/" : "val-aux/") + source + "/" + name;
}

std::vector<EvalStatistic> eval_statistics(std::span<const PromptScores> prompts,
                                           int64_t resamples) {
  std::map<std::string, std::vector<const PromptScores*>> by_source;
  for (const PromptScores& prompt : prompts) {
    TLT_CHECK(!prompt.scores.empty() && prompt.scores.size() == prompts[0].scores.size() &&
                  prompt.passed.size() == prompt.scores.size() &&
                  prompt.answers.size() == prompt.scores.size(),
              prompt.scores.size(), " scores of a prompt, ", prompts[0].scores.size(),
              " of the first");
    by_source[prompt.source.empty() ? "unknown" : prompt.source].push_back(&prompt);
  }
  std::vector<EvalStatistic> found;
  for (const auto& [source, of_source] : by_source) {
    const bool has_answers = std::ranges::any_of(of_source, [](const PromptScores* prompt) {
      return std::ranges::any_of(prompt->answers, [](const auto& a) { return !a.empty(); });
    });
    for (const auto& [name, is_core, of] :
         statistics_of(std::ssize(of_source[0]->scores), has_answers)) {
      std::vector<double> values;
      for (const PromptScores* prompt : of_source) values.push_back(of(*prompt));
      found.push_back({source, name, is_core, bootstrap_mean(values, resamples)});
    }
  }
  return found;
}

}  // namespace tlt::reward
