// SPDX-License-Identifier: Apache-2.0
#include "data/countdown.h"

#include <algorithm>
#include <optional>

#include "base/check.h"

namespace tlt::data {
namespace {

using Reach = std::bitset<kCountdownLimit + 1>;

constexpr int kSmallestTarget = 10;
constexpr double kSeesTheHit =
    0.95;  // probability of the right operation at a pair that can make the target

// Calls visit(step) for each operation. The order is part of the task: demonstrations shuffle it.
template <class Visit>
void for_each_step(const CountdownState& state, Visit&& visit) {
  for (int i = 0; i < state.size; ++i) {
    for (int j = i + 1; j < state.size; ++j) {
      const int left = std::max(state.numbers[i], state.numbers[j]);
      const int right = std::min(state.numbers[i], state.numbers[j]);
      CountdownStep step;
      step.left = static_cast<uint8_t>(left);
      step.right = static_cast<uint8_t>(right);
      step.next.size = 1;
      for (int k = 0; k < state.size; ++k) {
        if (k != i && k != j) step.next.numbers[step.next.size++] = state.numbers[k];
      }
      const auto offer = [&](char operation, int result) {
        if (result < 1 || result > kCountdownLimit) return;
        step.operation = operation;
        step.result = step.next.numbers[0] = static_cast<uint8_t>(result);
        visit(step);
      };
      offer('+', left + right);
      offer('-', left - right);
      offer('*', left * right);
      if (right > 1 && left % right == 0) offer('/', left / right);
    }
  }
}

CountdownState sorted(CountdownState state) {
  for (int i = 1; i < state.size; ++i) {
    for (int j = i; j > 0 && state.numbers[j] < state.numbers[j - 1]; --j) {
      std::swap(state.numbers[j], state.numbers[j - 1]);
    }
  }
  return state;
}

// The results that two and three numbers can make, as tables (2.9 MB).
class ReachTables {
 public:
  ReachTables() {
    for (uint8_t c = 1; c <= kCountdownLimit; ++c) {
      for (uint8_t b = 1; b <= c; ++b) pairs_.push_back(by_steps({{b, c}, 2}));
    }
    for (uint8_t c = 1; c <= kCountdownLimit; ++c) {
      for (uint8_t b = 1; b <= c; ++b) {
        for (uint8_t a = 1; a <= b; ++a) triples_.push_back(by_steps({{a, b, c}, 3}));
      }
    }
  }

  Reach operator()(const CountdownState& state) const {
    if (state.size == 1) return Reach().set(state.numbers[0]);
    if (state.size == 4) return by_steps(state);
    const auto& [first, second, third, unused] = sorted(state).numbers;
    return state.size == 2 ? pairs_[pairs_below(second) + first - 1]
                           : triples_[triples_below(third) + pairs_below(second) + first - 1];
  }

 private:
  // Sorted pairs and triples whose largest number is below this one.
  static size_t pairs_below(size_t number) { return (number - 1) * number / 2; }
  static size_t triples_below(size_t number) { return (number - 1) * number * (number + 1) / 6; }

  Reach by_steps(const CountdownState& state) const {
    Reach reach;
    for_each_step(state, [&](const CountdownStep& step) { reach |= (*this)(step.next); });
    return reach;
  }

  std::vector<Reach> pairs_, triples_;  // by largest number, then second, then first
};

const ReachTables& reach_tables() {
  static const ReachTables tables;
  return tables;
}

std::string join(std::span<const uint8_t> numbers) {
  std::string text;
  for (const int number : numbers)
    text.append(text.empty() ? "" : ",").append(std::to_string(number));
  return text;
}

// The expression that a path of operations builds, parenthesised except at the top.
std::string expression(std::span<const CountdownStep> path) {
  struct Made {
    uint8_t value;
    std::string text;
  };
  std::vector<Made> made;  // values not used yet, in the order they were made
  std::string text;
  const auto take = [&](uint8_t value) {
    const auto found = std::ranges::find(made, value, &Made::value);
    if (found == made.end()) return std::to_string(value);
    std::string taken = "(" + found->text + ")";
    made.erase(found);
    return taken;
  };
  for (const CountdownStep& step : path) {
    text = take(step.left);
    text += step.operation + take(step.right);
    made.push_back({step.result, text});
  }
  return text;
}

// One search. It remembers a path that ended at a wrong value, as the answer when it gives up.
class Demonstrator {
 public:
  Demonstrator(RandomStream& random, const CountdownProblem& problem,
               const DemonstratorOptions& options)
      : random_(random), problem_(problem), options_(options) {}

  std::string run() {
    Outcome outcome = Outcome::kFailed;
    while (outcome == Outcome::kFailed) outcome = search(problem_.start, /*is_root=*/true);
    const auto& path = outcome == Outcome::kFound ? path_ : last_path_;
    return text_ + "</think><answer>" + expression(path) + "</answer><eos>";
  }

 private:
  enum class Outcome { kFound, kFailed, kGivenUp };

  bool is_good(const CountdownStep& step) const {
    return countdown_reach(step.next).test(problem_.target);
  }

  void take(const CountdownState& state, const CountdownStep& step) {
    if (!text_.empty()) text_.push_back('\n');
    text_ += join(state.values()) + ':' + std::to_string(problem_.target) + '>' +
             std::to_string(step.left) + step.operation + std::to_string(step.right) + '=' +
             std::to_string(step.result);
    path_.push_back(step);
  }

  Outcome search(const CountdownState& state, bool is_root) {
    std::vector<CountdownStep> steps = countdown_steps(state);
    random_.shuffle(steps);
    if (state.size == 2) return finish_pair(state, std::move(steps));
    const auto good = std::ranges::find_if(steps, [&](const auto& step) { return is_good(step); });
    if (good != steps.end() && random_.uniform() < options_.insight)
      std::rotate(steps.begin(), good, good + 1);
    if (!is_root && std::ssize(steps) > options_.width) steps.resize(options_.width);
    for (const CountdownStep& step : steps) {
      take(state, step);
      const Outcome outcome = search(step.next, /*is_root=*/false);
      if (outcome != Outcome::kFailed) return outcome;
      path_.pop_back();
    }
    return Outcome::kFailed;
  }

  Outcome finish_pair(const CountdownState& state, std::vector<CountdownStep> steps) {
    const auto good = std::ranges::find_if(steps, [&](const auto& step) { return is_good(step); });
    if (good != steps.end() && random_.uniform() < kSeesTheHit) {
      take(state, *good);
      return Outcome::kFound;
    }
    std::erase_if(steps, [&](const auto& step) { return is_good(step); });
    const size_t lines = 1 + random_.below(options_.tries);
    for (size_t i = 0; i < std::min(lines, steps.size()); ++i) {
      take(state, steps[i]);
      last_path_ = path_;
      path_.pop_back();
    }
    const bool gives_up = random_.uniform() > options_.patience && !last_path_.empty();
    return gives_up ? Outcome::kGivenUp : Outcome::kFailed;
  }

  RandomStream& random_;
  const CountdownProblem& problem_;
  const DemonstratorOptions& options_;
  std::string text_;
  std::vector<CountdownStep> path_, last_path_;
};

}  // namespace

std::vector<CountdownStep> countdown_steps(const CountdownState& state) {
  std::vector<CountdownStep> steps;
  for_each_step(state, [&](const CountdownStep& step) { steps.push_back(step); });
  return steps;
}

std::bitset<kCountdownLimit + 1> countdown_reach(const CountdownState& state) {
  return reach_tables()(state);
}

std::string CountdownProblem::ground_truth() const {
  return join(start.values()) + ':' + std::to_string(target);
}

std::string CountdownProblem::prompt() const { return ground_truth() + "<think>"; }

bool CountdownProblem::is_held_out() const {
  const std::string key = join(sorted(start).values()) + ':' + std::to_string(target);
  int64_t hash = 0, power = 1;
  for (const char character : key) {
    hash = (hash + character * power) % 9973;
    power = power * 31 % 9973;
  }
  return hash % 16 == 0;
}

CountdownProblem make_problem(RandomStream& random, const CountdownProblemOptions& options) {
  while (true) {
    CountdownProblem problem;
    problem.start.size = random.uniform() < options.four_share ? 4 : 3;
    for (int i = 0; i < problem.start.size; ++i) {
      problem.start.numbers[i] = static_cast<uint8_t>(1 + random.below(options.largest));
    }
    const Reach reach = countdown_reach(problem.start);
    std::vector<int> targets;
    for (int target = kSmallestTarget; target <= kCountdownLimit; ++target) {
      if (reach.test(target)) targets.push_back(target);
    }
    if (targets.empty()) continue;
    problem.target = targets[random.below(targets.size())];
    if (problem.is_held_out() == options.is_held_out) return problem;
  }
}

std::string demonstrate(RandomStream& random, const CountdownProblem& problem,
                        const DemonstratorOptions& options) {
  TLT_CHECK(problem.start.size >= 3 && countdown_reach(problem.start).test(problem.target),
            problem.ground_truth(), " cannot be solved");
  return Demonstrator(random, problem, options).run();
}

bool reaches_target(const CountdownProblem& problem, const std::string& response) {
  // The search ends at its first hit, and gives up after a line with another result.
  return response.find('=' + std::to_string(problem.target) + "</think>") != std::string::npos;
}

}  // namespace tlt::data
