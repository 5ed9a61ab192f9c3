// SPDX-License-Identifier: Apache-2.0
#include "apps/eval_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.h"
#include "base/json_lines.h"
#include "base/sentence.h"
#include "base/statistics.h"

namespace tlt::apps {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kResamples = 1000;
constexpr double kFullScore = 1 - 1e-9;

template <class T>
T field(const json& line, const char* name, const std::string& where) {
  const auto found = line.find(name);
  TLT_CHECK_INPUT(found != line.end(), where, ": no \"", name,
                  "\"; give a folder of tlt eval, or a run with validation/");
  try {
    return found->get<T>();
  } catch (const json::exception&) {
    throw InputError(check_internal::concat(where, ": \"", name, "\" has the wrong type"));
  }
}

std::string source_of(const std::string& source) { return source.empty() ? "unknown" : source; }

// The rows of each prompt, one after the other.
std::vector<std::span<const EvalRow>> by_prompt(std::span<const EvalRow> rows) {
  std::vector<std::span<const EvalRow>> prompts;
  for (size_t i = 0; i < rows.size();) {
    size_t end = i + 1;
    while (end < rows.size() && rows[end].prompt == rows[i].prompt) ++end;
    prompts.push_back(rows.subspan(i, end - i));
    i = end;
  }
  return prompts;
}

double mean_score(std::span<const EvalRow> rows) {
  double sum = 0;
  for (const EvalRow& row : rows) sum += row.score;
  return sum / static_cast<double>(rows.size());
}

// A mean over responses, with a bootstrap over prompts.
reward::Estimate mean_by_prompt(std::span<const std::span<const EvalRow>> prompts,
                                const std::function<double(const EvalRow&)>& of) {
  std::vector<double> means;
  for (const std::span<const EvalRow> prompt : prompts) {
    double sum = 0;
    for (const EvalRow& row : prompt) sum += of(row);
    means.push_back(sum / static_cast<double>(prompt.size()));
  }
  return reward::bootstrap_mean(means, kResamples);
}

void add_lengths(const std::string& source, std::span<const std::span<const EvalRow>> prompts,
                 std::vector<reward::EvalStatistic>& statistics) {
  const auto add = [&](const std::string& name, const reward::Estimate& estimate) {
    statistics.push_back({source, "response_length/" + name, /*is_core=*/false, estimate});
  };
  std::vector<double> tokens;
  for (const std::span<const EvalRow> prompt : prompts)
    for (const EvalRow& row : prompt) tokens.push_back(static_cast<double>(row.tokens));
  add("mean",
      mean_by_prompt(prompts, [](const EvalRow& row) { return static_cast<double>(row.tokens); }));
  for (const auto& [name, share] :
       {std::pair("min", 0.0), {"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"max", 1.0}}) {
    const double value = percentile(tokens, share);
    add(name, {value, value, value});
  }
  add("clip_ratio",
      mean_by_prompt(prompts, [](const EvalRow& row) { return row.is_truncated ? 1.0 : 0.0; }));
}

void check_same_prompts(const EvalTable& baseline, const EvalTable& table) {
  const auto a = by_prompt(baseline.rows), b = by_prompt(table.rows);
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    TLT_CHECK_INPUT(a[i].front().prompt == b[i].front().prompt &&
                        a[i].front().input_hash == b[i].front().input_hash,
                    baseline.name, " and ", table.name, " differ in prompt ", a[i].front().prompt,
                    "; only evaluations of the same rows can be compared");
  TLT_CHECK_INPUT(a.size() == b.size(), baseline.name, " has ", counted(std::ssize(a), "prompt"),
                  " and ", table.name, " ", b.size(),
                  "; only evaluations of the same rows can be compared");
}

std::string interval(const reward::Estimate& estimate, const char* format) {
  return fmt::format(fmt::runtime(format), estimate.low, estimate.high);
}

}  // namespace

EvalRow parse_eval_row(const json& line, const std::string& where) {
  TLT_CHECK_INPUT(line.is_object(), where, ": not a JSON object");
  const auto score = field<double>(line, "score", where);
  return {
      .prompt = field<int64_t>(line, "prompt_id", where),
      .sample = field<int64_t>(line, "sample", where),
      .source = source_of(field<std::string>(line, "data_source", where)),
      .input_hash = std::hash<std::string>()(field<std::string>(line, "input", where)),
      .score = score,
      .passed = line.contains("passed") ? field<bool>(line, "passed", where) : score >= kFullScore,
      .answer = line.contains("answer") ? field<std::string>(line, "answer", where) : "",
      .tokens = field<int64_t>(line, "response_tokens", where),
      .is_truncated = field<std::string>(line, "finish_reason", where) == "length",
      .is_unscored = line.contains("reward_fault")};
}

EvalTable read_eval_table(const std::string& name, const std::string& path) {
  EvalTable table{name, {}};
  JsonLinesReader reader(path);
  for (json line; reader.try_next(line);)
    table.rows.push_back(parse_eval_row(line, reader.place()));
  TLT_CHECK_INPUT(!table.rows.empty(), path, " has no rows; is it still being written?");
  std::ranges::stable_sort(table.rows, {},
                           [](const EvalRow& row) { return std::pair(row.prompt, row.sample); });
  const auto prompts = by_prompt(table.rows);
  for (const std::span<const EvalRow> prompt : prompts)
    TLT_CHECK_INPUT(prompt.size() == prompts.front().size(), path, ": prompt ",
                    prompt.front().prompt, " has ", counted(std::ssize(prompt), "response"),
                    " and another ", prompts.front().size(),
                    "; the file is damaged, or still being written");
  return table;
}

std::vector<EvalTable> read_eval_folder(const std::string& folder) {
  const std::string responses = folder + "/responses.jsonl", validation = folder + "/validation";
  if (fs::exists(responses)) return {read_eval_table(folder, responses)};
  TLT_CHECK_INPUT(!fs::exists(responses + ".partial"), folder,
                  " has an evaluation that is not finished; run its command again, which continues "
                  "it");
  std::set<std::string> files;
  if (fs::is_directory(validation))
    for (const auto& entry : fs::directory_iterator(validation))
      if (entry.path().extension() == ".jsonl") files.insert(entry.path().string());
  TLT_CHECK_INPUT(!files.empty(), folder,
                  " has neither an evaluation (responses.jsonl) nor a run's validation/; give a "
                  "folder of tlt eval, or of a run with data.val_files and "
                  "trainer.dump_rollouts=true");
  std::vector<EvalTable> tables;
  for (const std::string& file : files) {
    std::string step = fs::path(file).stem().string();
    step.erase(0, std::min(step.find_first_not_of('0'), step.size() - 1));
    tables.push_back(read_eval_table(folder + " step " + step, file));
  }
  return tables;
}

std::vector<reward::EvalStatistic> statistics_of(std::span<const EvalRow> rows) {
  std::vector<reward::PromptScores> scores;
  std::map<std::string, std::vector<std::span<const EvalRow>>> by_source;
  for (const std::span<const EvalRow> prompt : by_prompt(rows)) {
    by_source[prompt.front().source].push_back(prompt);
    reward::PromptScores& of_prompt = scores.emplace_back();
    of_prompt.source = prompt.front().source;
    for (const EvalRow& row : prompt) {
      of_prompt.scores.push_back(row.score);
      of_prompt.passed.push_back(row.passed);
      of_prompt.answers.push_back(row.answer);
    }
  }
  std::vector<reward::EvalStatistic> statistics = reward::eval_statistics(scores, kResamples);
  for (const auto& [source, prompts] : by_source) add_lengths(source, prompts, statistics);
  std::ranges::stable_sort(statistics, {}, &reward::EvalStatistic::source);
  return statistics;
}

std::vector<Comparison> compare(const EvalTable& baseline, const EvalTable& table) {
  check_same_prompts(baseline, table);
  const auto before = by_prompt(baseline.rows), after = by_prompt(table.rows);
  std::map<std::string, std::vector<size_t>> sources;
  for (size_t i = 0; i < before.size(); ++i) sources[before[i].front().source].push_back(i);
  const auto compare_prompts = [&](const std::string& source, const std::vector<size_t>& prompts) {
    Comparison found{
        .source = source, .baseline = baseline.name, .table = table.name, .difference = {}};
    std::vector<double> differences;
    for (const size_t i : prompts) {
      const double was = mean_score(before[i]), is = mean_score(after[i]);
      found.before += was / static_cast<double>(prompts.size());
      found.after += is / static_cast<double>(prompts.size());
      found.better += is > was;
      found.worse += is < was;
      differences.push_back(is - was);
    }
    found.difference = reward::bootstrap_mean(differences, kResamples);
    return found;
  };
  std::vector<Comparison> comparisons;
  std::vector<size_t> all;
  for (const auto& [source, prompts] : sources) {
    comparisons.push_back(compare_prompts(source, prompts));
    all.insert(all.end(), prompts.begin(), prompts.end());
  }
  if (sources.size() > 1) comparisons.push_back(compare_prompts("all", all));
  return comparisons;
}

std::string text_of_statistics(std::span<const reward::EvalStatistic> statistics,
                               std::span<const EvalRow> rows) {
  std::string text, source;
  for (const reward::EvalStatistic& one : statistics) {
    if (one.source != source || text.empty()) {
      source = one.source;
      const auto of_source = std::ranges::count(rows, source, &EvalRow::source);
      text += fmt::format("{}{}, {}\n", text.empty() ? "" : "\n", one_sentence(source),
                          counted(of_source, "response"));
    }
    const reward::Estimate& e = one.estimate;
    text += fmt::format("  {:<28} {:>10.4f}{}\n", one.name, e.value,
                        e.low < e.high ? interval(e, "   [{:.4f}, {:.4f}]") : "");
  }
  if (const auto unscored = std::ranges::count(rows, true, &EvalRow::is_unscored))
    text += fmt::format("\n{} without a score count as 0\n", counted(unscored, "response"));
  return text;
}

std::string text_of_comparisons(std::span<const Comparison> comparisons) {
  std::string text;
  for (const Comparison& one : comparisons)
    text += fmt::format("{}: {} {:.4f}, {} {:.4f}: difference {:+.4f}{}; {} better, {} worse\n",
                        one_sentence(one.source), one_sentence(one.baseline), one.before,
                        one_sentence(one.table), one.after, one.difference.value,
                        interval(one.difference, " [{:+.4f}, {:+.4f}]"),
                        counted(one.better, "prompt"), one.worse);
  return text;
}

nlohmann::ordered_json line_of(const reward::EvalStatistic& statistic) {
  return {{"metric", statistic.metric()},
          {"data_source", statistic.source},
          {"value", statistic.estimate.value},
          {"low", statistic.estimate.low},
          {"high", statistic.estimate.high}};
}

nlohmann::ordered_json line_of(const Comparison& one) {
  return {{"data_source", one.source}, {"baseline", one.baseline},
          {"table", one.table},        {"before", one.before},
          {"after", one.after},        {"difference", one.difference.value},
          {"low", one.difference.low}, {"high", one.difference.high},
          {"better", one.better},      {"worse", one.worse}};
}

}  // namespace tlt::apps
