// SPDX-License-Identifier: Apache-2.0
#include "apps/drafter_card.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "base/json_lines.h"
#include "base/version.h"

namespace tlt::apps {
namespace {

using nlohmann::json;

constexpr size_t kMostCardRows = 20;  // rows of the table by step

struct Column {
  const char* metric;
  const char* title;
};
constexpr Column kBySteps[] = {
    {"val-drafter/mean_acceptance_length", "acceptance length, held-out responses"},
    {"val-drafter/top1_accuracy", "top-1, held-out responses"},
    {"drafter/version", "version"},
    {"drafter/acceptance_length/after", "acceptance length, held-out responses"},
    {"drafter/top1_accuracy/after", "top-1, held-out responses"},
    {"speculation/eagle/accept_length", "acceptance length, rollouts"},
};
// Acceptance by position, the most reliable measurement first.
constexpr Column kByPosition[] = {
    {"val-drafter/acceptance_rate_pos_",
     "Share of the drafts (greedy chains, on held-out responses) whose first K tokens are all "
     "accepted"},
    {"speculation/eagle/accept_rate_pos_",
     "Acceptance rate of draft tokens K ahead, in the rollouts"},
    {"speculation/mixed/accept_rate_pos_",
     "Acceptance rate of draft tokens K ahead, in the rollouts, in trees shared with another "
     "drafter"},
};

std::optional<double> number(const json& row, const std::string& name) {
  const auto found = row.find(name);
  if (found == row.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

// The run's metrics up to the draft model's step; empty without a metrics file.
std::vector<json> read_rows(const DrafterFacts& facts) {
  std::vector<json> rows;
  const std::string path = facts.run + "/metrics.jsonl";
  if (facts.run.empty() || !std::filesystem::exists(path)) return rows;
  JsonLinesReader reader(path);
  for (json row; reader.try_next(row);)
    if (facts.step < 0 || row.value("step", int64_t{0}) <= facts.step) rows.push_back(row);
  return rows;
}

std::string by_position(std::span<const json> rows) {
  for (const Column& kind : kByPosition)
    for (size_t i = rows.size(); i-- > 0;) {
      std::string head = "| K |", line = "|---|", values = "| |";
      int64_t k = 1;
      for (; const auto value = number(rows[i], kind.metric + std::to_string(k)); ++k) {
        head += fmt::format(" {} |", k);
        line += "---|";
        values += fmt::format(" {:.3f} |", *value);
      }
      if (k == 1) continue;
      return fmt::format("## Acceptance by position\n\n{}, step {}.\n\n{}\n{}\n{}\n\n", kind.title,
                         rows[i].value("step", int64_t{0}), head, line, values);
    }
  return "";
}

std::string by_step(std::span<const json> rows) {
  std::vector<Column> columns;
  for (const Column& column : kBySteps)
    if (std::ranges::any_of(rows, [&](const json& row) { return !!number(row, column.metric); }))
      columns.push_back(column);
  if (columns.empty()) return "";
  std::string text = "## Acceptance by step\n\n| step |", line = "|---|";
  for (const Column& column : columns) {
    text += fmt::format(" {} |", column.title);
    line += "---|";
  }
  text += "\n" + line + "\n";
  std::vector<const json*> shown;
  for (const json& row : rows)
    if (std::ranges::any_of(columns, [&](const Column& c) { return !!number(row, c.metric); }))
      shown.push_back(&row);
  const size_t every = (shown.size() + kMostCardRows - 1) / kMostCardRows;
  for (size_t i = 0; i < shown.size(); ++i) {
    if ((shown.size() - 1 - i) % every != 0) continue;  // the last row is always shown
    text += fmt::format("| {} |", shown[i]->value("step", int64_t{0}));
    for (const Column& column : columns) {
      const auto value = number(*shown[i], column.metric);
      text += value ? fmt::format(" {:.4g} |", *value) : std::string(" |");
    }
    text += "\n";
  }
  return text + "\n";
}

std::string serving(const DrafterFacts& facts) {
  const std::string& target = facts.target_name;
  if (facts.format == drafter::DraftFormat::kVllm)
    return facts.algorithm == "eagle3"
               ? fmt::format("    vllm serve {}\n", facts.name)
               : fmt::format(
                     "    vllm serve {} --speculative-config '{{\"method\": \"eagle\", "
                     "\"model\": \"{}\", \"num_speculative_tokens\": 5}}'\n",
                     target, facts.name);
  return fmt::format(
      "    python -m sglang.launch_server --model-path {} \\\n"
      "      --speculative-algorithm {} --speculative-draft-model-path {} \\\n"
      "      --speculative-num-steps 8 --speculative-eagle-topk 4 --speculative-num-draft-tokens "
      "48{}\n",
      target, facts.algorithm == "eagle3" ? "EAGLE3" : "EAGLE", facts.name,
      facts.has_token_map
          ? fmt::format(" \\\n      --speculative-token-map {}/hot_token_id.pt", facts.name)
          : "");
}

}  // namespace

std::string drafter_card(const DrafterFacts& facts) {
  const bool is_vllm = facts.format == drafter::DraftFormat::kVllm;
  std::string text = fmt::format(
      "# {}: a draft model for {}\n\nDrafts tokens for speculative decoding of that model, which "
      "verifies them.\n\n| | |\n|---|---|\n| kind | {} |\n| layout | {} |\n| parameters | {:.2f} M "
      "|\n| written by | tlt {} ({}) |\n",
      facts.name, facts.target_name, facts.algorithm == "eagle3" ? "EAGLE-3" : "EAGLE-1/2",
      is_vllm ? "vLLM" : "SGLang", static_cast<double>(facts.parameters) / 1e6, kVersion, kCommit);
  if (!facts.run.empty())
    text += fmt::format("| trained in | {}, {} |\n",
                        std::filesystem::path(facts.run).filename().string(),
                        facts.step < 0 ? "its end" : fmt::format("step {}", facts.step));
  for (const auto& [file, hash] : facts.target_files)
    text += fmt::format("| the target's {}, SHA-256 | `{}` |\n", file, hash);
  text +=
      "\nIt was trained for these weights. With others the acceptance rate is lower; the output is "
      "still that of the target.\n\n## Serving\n\n" +
      serving(facts) + "\n";
  const std::vector<json> rows = read_rows(facts);
  return text + by_position(rows) + by_step(rows);
}

}  // namespace tlt::apps
