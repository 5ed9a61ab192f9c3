// SPDX-License-Identifier: Apache-2.0
#include "simulate/suffix_replay.h"

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/json_count.h"
#include "base/json_lines.h"

namespace tlt::simulate {
namespace {

constexpr size_t kMostClasses = 64;

bool is_rate(double value) { return value >= 0 && value <= 1; }

std::vector<Acceptance> read_classes(const nlohmann::json& header, const std::string& complaint) {
  std::vector<Acceptance> classes;
  for (const nlohmann::json& row : header.at("confidences")) {
    classes.push_back({row.at("first").get<double>(), row.at("later").get<double>()});
    TLT_CHECK_INPUT(is_rate(classes.back().first) && is_rate(classes.back().later), complaint);
  }
  TLT_CHECK_INPUT(classes.size() <= kMostClasses, complaint);
  return classes;
}

std::vector<SuffixDraft> read_drafts(const nlohmann::json& row, size_t classes,
                                     const std::string& complaint) {
  const nlohmann::json &confidence = row.at("confidence"), &tokens = row.at("tokens"),
                       &accepted = row.at("accepted");
  TLT_CHECK_INPUT(confidence.is_array() && tokens.is_array() && accepted.is_array() &&
                      tokens.size() == confidence.size() && accepted.size() == confidence.size() &&
                      !confidence.empty(),
                  complaint);
  std::vector<SuffixDraft> drafts;
  for (size_t i = 0; i < confidence.size(); ++i) {
    const SuffixDraft& it = drafts.emplace_back(SuffixDraft{json_count<uint8_t>(confidence, i),
                                                            json_count<uint8_t>(tokens, i),
                                                            json_count<uint8_t>(accepted, i)});
    TLT_CHECK_INPUT(it.confidence <= classes && it.accepted <= it.tokens &&
                        (it.tokens > 0) == (it.confidence > 0),
                    complaint);
  }
  return drafts;
}

}  // namespace

SuffixReplay::SuffixReplay(const std::string& path) {
  JsonLinesReader reader(path);
  bool has_header = false;
  for (nlohmann::json row; reader.try_next(row); has_header = true) {
    const std::string complaint = reader.place() + ": not a line of tlt bench suffix --out";
    try {
      if (has_header)
        responses_.push_back(read_drafts(row, classes_.size(), complaint));
      else
        classes_ = read_classes(row, complaint);
    } catch (const nlohmann::json::exception&) {
      throw InputError(complaint);
    }
  }
  TLT_CHECK_INPUT(!responses_.empty(), path,
                  ": no responses; give a file of tlt bench suffix --out");
}

}  // namespace tlt::simulate
