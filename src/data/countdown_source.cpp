// SPDX-License-Identifier: Apache-2.0
#include "data/countdown_source.h"

#include <algorithm>
#include <charconv>

#include "base/check.h"

namespace tlt::data {
namespace {

// Purposes of random counters, in the high bits of `sample`.
constexpr uint32_t kProblemPurpose = 0xDA7A0001;
constexpr uint32_t kDemonstrationPurpose = 0xDA7A0002;
constexpr uint32_t kPreferencePurpose = 0xDA7A0003;

// Demonstrations of a problem in which to look for a right and a wrong one.
constexpr int kDemonstrationsPerPair = 32;

struct Setting {
  std::string_view source, key, value;

  template <class T>
  T number(T least, T most) const {
    T number{};
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    TLT_CHECK_INPUT(error == std::errc() && end == value.data() + value.size() && number >= least &&
                        number <= most,
                    source, ": ", key, "=", value, " is not a number from ", least, " to ", most);
    return number;
  }

  bool truth() const {
    TLT_CHECK_INPUT(value == "true" || value == "false", source, ": ", key, "=", value,
                    " is not true or false");
    return value == "true";
  }
};

bool try_set_demonstrator(const Setting& setting, DemonstratorOptions& demonstrator) {
  if (setting.key == "insight") {
    demonstrator.insight = setting.number(0.0, 1.0);
  } else if (setting.key == "patience") {
    demonstrator.patience = setting.number(0.0, 1.0);
  } else if (setting.key == "tries") {
    demonstrator.tries = setting.number(1, 100);
  } else if (setting.key == "width") {
    demonstrator.width = setting.number(1, 100);
  } else {
    return false;
  }
  return true;
}

bool try_set(const Setting& setting, CountdownSource& source) {
  if (setting.key == "seed") {
    source.seed = setting.number<int64_t>(0, INT64_MAX);
  } else if (setting.key == "size") {
    source.size = setting.number<int64_t>(1, UINT32_MAX);
  } else if (setting.key == "four") {
    source.problems.four_share = setting.number(0.0, 1.0);
  } else if (setting.key == "top") {
    source.problems.largest =
        setting.number(4, kCountdownLimit);  // with fewer, some kind has no problem
  } else if (setting.key == "heldout") {
    source.problems.is_held_out = setting.truth();
  } else {
    return false;
  }
  return true;
}

}  // namespace

CountdownSource CountdownSource::parse(std::string_view name, bool is_held_out, Use use) {
  CountdownSource source;
  source.problems.is_held_out = is_held_out;
  std::string_view rest = name.substr(name.find(':') + 1);
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    const size_t equals = std::min(part.find('='), part.size());
    const Setting setting{name, part.substr(0, equals),
                          part.substr(std::min(part.size(), equals + 1))};
    const bool is_known =
        try_set(setting, source) ||
        (use == Use::kDemonstrations && try_set_demonstrator(setting, source.demonstrator));
    TLT_CHECK_INPUT(is_known, name, ": \"", part,
                    "\" is not known; give seed=, size=, four=, top=, heldout=",
                    use == Use::kDemonstrations ? ", insight=, patience=, tries=, width=" : "");
  }
  return source;
}

CountdownProblem CountdownSource::problem(int64_t index) const {
  RandomStream random = stream(index, /*attempt=*/0, kProblemPurpose);
  return make_problem(random, problems);
}

RandomStream CountdownSource::stream(int64_t index, uint32_t attempt, uint32_t purpose) const {
  return {static_cast<uint64_t>(seed),
          {.step = attempt, .prompt = static_cast<uint32_t>(index), .sample = purpose}};
}

CountdownSource::Demonstration CountdownSource::demonstration(int64_t index,
                                                              uint32_t attempt) const {
  RandomStream random = stream(index, attempt, kDemonstrationPurpose);
  Demonstration made;
  made.problem = make_problem(random, problems);
  made.response = demonstrate(random, made.problem, demonstrator);
  return made;
}

std::optional<CountdownSource::Preference> CountdownSource::try_preference(int64_t index,
                                                                           uint32_t attempt) const {
  RandomStream random = stream(index, attempt, kPreferencePurpose);
  Preference made;
  made.problem = make_problem(random, problems);
  for (int i = 0; i < kDemonstrationsPerPair; ++i) {
    std::string response = demonstrate(random, made.problem, demonstrator);
    (reaches_target(made.problem, response) ? made.chosen : made.rejected) = std::move(response);
    if (!made.chosen.empty() && !made.rejected.empty()) return made;
  }
  return std::nullopt;
}

}  // namespace tlt::data
