// SPDX-License-Identifier: Apache-2.0
#include "speculation/tuner.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/json_count.h"
#include "base/json_fault.h"
#include "speculation/bandit.h"
#include "speculation/throughput_model.h"

namespace tlt::speculation {
namespace {

constexpr int64_t kPlaysInHindsight = 10;
constexpr double kMostSlowdown = 0.03;       // of spare_capacity() …
constexpr double kProportionalShare = 0.25;  // … and relative to a cost proportional to the rows
constexpr const char* kFormat = "8\n";       // version of save()

std::vector<Arm> make_arms(const SpeculationOptions& options,
                           const std::vector<std::string>& kinds) {
  TLT_CHECK(!kinds.empty(), "a tuner without drafters");
  std::vector<Arm> arms = {Arm{}};
  for (const std::string& kind : kinds)
    for (const drafter::Strategy& strategy : options.eagle.strategies())
      arms.push_back({kind, strategy});
  return arms;
}

}  // namespace

Tuner::Tuner(const SpeculationOptions& options, const Setup& setup)
    : options_(options), arms_(make_arms(options, setup.kinds)) {
  if (options.eagle.tune_algorithm == "ADAPTIVE")
    policy_ = std::make_unique<ThroughputModel>(arms_, setup.costs, setup.max_rows);
  else
    policy_ = std::make_unique<BegBandit>(
        arms_, BegBandit::Setup{options.eagle, options.bs_threshold, setup.seed});
}

Tuner::~Tuner() = default;

const Arm& Tuner::choose(const Load& load) {
  TLT_CHECK(load.batch > 0, "no sequence decodes");
  const uint64_t choice = choices_++;
  is_exploration_ = false;
  const Arm& arm = arms_[policy_->choose(load, choice)];
  is_exploration_ = policy_->is_exploration();
  return arm;
}

Tuner::Cell Tuner::cell_of(size_t arm, const StepOutcome& outcome) {
  const auto cell = [](double octaves, size_t cells) {
    return static_cast<size_t>(std::clamp(octaves, 0.0, static_cast<double>(cells - 1)));
  };
  const double batch = 2 * std::log2(static_cast<double>(outcome.batch)) + 0.5;
  const double context = std::log2(std::max(outcome.context, 1.0) / 64);
  return {arm, cell(batch, kBatchCells), cell(context, kContextCells)};
}

void Tuner::record(const Arm& arm, const StepOutcome& outcome) {
  // The cheaper comparison first.
  const auto found = std::ranges::find_if(
      arms_, [&](const Arm& it) { return it.strategy == arm.strategy && it.kind == arm.kind; });
  const auto index = static_cast<size_t>(found - arms_.begin());
  TLT_CHECK(index < arms_.size(), "an arm that is not the tuner's: ", arm.kind);
  TLT_CHECK(outcome.batch > 0 && outcome.seconds > 0, "a step of ", outcome.batch,
            " sequences that took ", outcome.seconds, " seconds");
  policy_->record(index, outcome);
  if (outcome.has_prompt_rows) return;
  Totals& totals = totals_[cell_of(index, outcome)];
  ++totals.plays;
  totals.sequences += outcome.batch;
  totals.tokens += outcome.tokens;
  totals.seconds += outcome.seconds;
}

int64_t Tuner::spare_capacity(const Load& load) {
  const double rate = policy_->sequence_rate(load);
  if (rate <= 0) return 0;
  for (int64_t more = load.batch; more > 0; more /= 2) {
    Load larger = load;
    larger.batch += more;
    const double slowdown = 1 - policy_->sequence_rate(larger) / rate;
    const double proportional = static_cast<double>(more) / static_cast<double>(larger.batch);
    if (slowdown <= std::min(kMostSlowdown, kProportionalShare * proportional)) return more;
  }
  return 0;
}

void Tuner::new_weights() { policy_->new_weights(); }

TunerReport Tuner::report() const {
  TunerReport report;
  int64_t speculative = 0;
  for (size_t arm = 0; arm < arms_.size(); ++arm) {
    Totals sum;
    for (auto it = totals_.lower_bound({arm}); it != totals_.end() && it->first[0] == arm; ++it) {
      sum.plays += it->second.plays;
      sum.sequences += it->second.sequences;
      sum.tokens += it->second.tokens;
      sum.seconds += it->second.seconds;
    }
    report.steps += sum.plays;
    if (!arms_[arm].is_off()) speculative += sum.plays;
    ArmReport line{.arm = arms_[arm], .plays = sum.plays};
    if (sum.plays > 0) {
      line.acceptance_length = static_cast<double>(sum.tokens) / static_cast<double>(sum.sequences);
      line.tokens_per_second = static_cast<double>(sum.tokens) / sum.seconds;
    }
    report.arms.push_back(line);
  }
  if (report.steps > 0)
    report.speculation_share = static_cast<double>(speculative) / static_cast<double>(report.steps);
  report.regret = regret();
  return report;
}

double Tuner::regret() const {
  double seconds = 0, needed = 0;
  for (size_t cell = 0; cell < kBatchCells; ++cell)
    for (size_t band = 0; band < kContextCells; ++band) {
      double tokens = 0, best = 0, spent = 0;
      for (size_t arm = 0; arm < arms_.size(); ++arm) {
        const auto found = totals_.find({arm, cell, band});
        if (found == totals_.end()) continue;
        const Totals& totals = found->second;
        const auto arm_tokens = static_cast<double>(totals.tokens);
        tokens += arm_tokens;
        spent += totals.seconds;
        if (totals.plays >= kPlaysInHindsight) best = std::max(best, arm_tokens / totals.seconds);
      }
      seconds += spent;
      needed += best > 0 ? std::min(spent, tokens / best) : spent;
    }
  return seconds > 0 ? 1 - needed / seconds : 0;
}

nlohmann::json to_json(const TunerReport& report) {
  nlohmann::json arms = nlohmann::json::array();
  for (const ArmReport& line : report.arms)
    arms.push_back({{"kind", line.arm.kind},
                    {"strategy", drafter::to_string(line.arm.strategy)},
                    {"plays", line.plays},
                    {"acceptance_length", line.acceptance_length},
                    {"tokens_per_second", line.tokens_per_second}});
  return {{"arms", arms},
          {"steps", report.steps},
          {"speculation_share", report.speculation_share},
          {"regret", report.regret}};
}

std::string Tuner::identity() const {
  SpeculationOptions options = options_;
  std::string text = kFormat;
  for (const Affects affects : {Affects::kResults, Affects::kSpeed, Affects::kPlace})
    text += options_digest(collect_options(options), affects);  // without the help texts
  for (const Arm& arm : arms_) text += arm.kind + " " + drafter::to_string(arm.strategy) + "\n";
  return text;
}

std::string Tuner::save() const {
  nlohmann::json totals = nlohmann::json::array();
  for (const auto& [cell, sum] : totals_)
    totals.push_back(
        {cell[0], cell[1], cell[2], sum.plays, sum.sequences, sum.tokens, sum.seconds});
  const nlohmann::json json = {{"identity", identity()},
                               {"choices", choices_},
                               {"policy", policy_->save()},
                               {"totals", totals}};
  return json.dump() + "\n";
}

bool Tuner::try_restore(const std::string& text, const std::string& place) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    if (json.at("identity").get<std::string>() != identity()) return false;
    std::map<Cell, Totals> totals;
    for (const nlohmann::json& row : json.at("totals")) {
      const Cell cell = {json_count<size_t>(row, 0), json_count<size_t>(row, 1),
                         json_count<size_t>(row, 2)};
      TLT_CHECK_INPUT(cell[0] < arms_.size() && cell[1] < kBatchCells && cell[2] < kContextCells,
                      "totals of arm ", cell[0], ", cell ", cell[1], ", ", cell[2]);
      totals[cell] = {json_count(row, 3), json_count(row, 4), json_count(row, 5),
                      row.at(6).get<double>()};
    }
    const auto choices = json_count<uint64_t>(json, "choices");
    policy_->restore(json.at("policy"));
    choices_ = choices;
    totals_ = std::move(totals);
    return true;
  } catch (const std::exception& error) {
    throw InputError(
        check_internal::concat(place, ": not the state of a tuner (", json_fault(error),
                               "); delete this checkpoint to resume from the one before"));
  }
}

}  // namespace tlt::speculation
