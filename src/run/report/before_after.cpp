// SPDX-License-Identifier: Apache-2.0
#include "run/report/before_after.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/json_fault.h"
#include "base/json_lines.h"
#include "base/log.h"
#include "base/sentence.h"

namespace tlt::run {
namespace {

constexpr size_t kFirstLines = 5, kLastLines = 4, kLineColumns = 96;

using Key = std::pair<int64_t, int64_t>;  // prompt id, sample

struct Row {
  std::string prompt;
  BeforeAfter::Answer answer;
};

// The rows up to the first that is damaged, as by a power failure: a summary must not end a run.
std::map<Key, Row> read_answers(const std::string& path) {
  std::map<Key, Row> rows;
  try {
    JsonLinesReader reader(path);
    nlohmann::json row;
    while (reader.try_next(row))
      rows[{row.at("prompt_id"), row.at("sample")}] = {
          row.at("input"),
          {row.at("step"), row.at("output"), row.at("score"), row.at("finish_reason") == "length"}};
  } catch (const InputError& error) {
    log_warning("{}", error.what());
  } catch (const nlohmann::json::exception& error) {
    log_warning("{}: {}; the rows from there on are not compared", path, json_fault(error));
  }
  return rows;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines(1);
  for (const char c : printable_lines(text)) {
    if (c == '\n' || lines.back().size() >= kLineColumns) {
      // Multi-byte UTF-8 characters are not split.
      if (c == '\n' || (static_cast<unsigned char>(c) & 0xC0) != 0x80) {
        lines.emplace_back();
        if (c == '\n') continue;
      }
    }
    if (c == '\t') continue;
    lines.back() += c;
  }
  while (lines.size() > 1 && lines.back().empty()) lines.pop_back();
  return lines;
}

void add_answer(const std::string& what, const BeforeAfter::Answer& answer,
                std::vector<std::string>& out) {
  out.push_back(fmt::format("    {} (step {}): score {:.3g}{}", what, answer.step, answer.score,
                            answer.is_truncated ? ", truncated at the limit" : ""));
  const std::vector<std::string> lines = lines_of(answer.text);
  const bool is_cut = lines.size() > kFirstLines + kLastLines + 1;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (is_cut && i == kFirstLines) {
      const size_t last = lines.size() - kLastLines;
      out.push_back(fmt::format("      … {} lines …", last - i));
      i = last;
    }
    out.push_back("      " + lines[i]);
  }
}

}  // namespace

std::optional<BeforeAfter> find_before_after(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none))
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path().string());
  if (files.size() < 2) return std::nullopt;
  std::ranges::sort(files);
  const std::map<Key, Row> first = read_answers(files.front()), last = read_answers(files.back());
  const Row* before = nullptr;
  const Row* after = nullptr;
  const auto rank = [](const Row& a, const Row& b) {
    return std::pair(b.answer.score - a.answer.score,
                     -std::ssize(a.answer.text) - std::ssize(b.answer.text));
  };
  for (const auto& [key, row] : first) {
    const auto found = last.find(key);
    if (found == last.end() || found->second.prompt != row.prompt) continue;
    if (before && rank(row, found->second) <= rank(*before, *after)) continue;
    before = &row;
    after = &found->second;
  }
  if (!before) return std::nullopt;
  return BeforeAfter{before->prompt, before->answer, after->answer};
}

std::vector<std::string> describe(const BeforeAfter& example) {
  std::vector<std::string> out;
  for (const std::string& line : lines_of(example.prompt)) out.push_back("      " + line);
  if (out.size() > kFirstLines + kLastLines) {
    out.erase(out.begin() + kFirstLines, out.end() - kLastLines);
    out.insert(out.begin() + kFirstLines, "      …");
  }
  out.insert(out.begin(), "    prompt of the validation data:");
  add_answer("before training", example.before, out);
  add_answer("after training", example.after, out);
  return out;
}

}  // namespace tlt::run
