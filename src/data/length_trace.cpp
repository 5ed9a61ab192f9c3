// SPDX-License-Identifier: Apache-2.0
#include "data/length_trace.h"

#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.h"
#include "base/files.h"

namespace tlt::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxTraceBytes = int64_t{64} << 20;
constexpr int64_t kLongest = int64_t{1} << 24;

// Removes a number and the `suffix` after it from the front of `text`.
template <class Number>
bool take(std::string_view& text, Number& number, std::string_view suffix) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  if (text.substr(0, suffix.size()) != suffix) return suffix == ", " && text.empty();
  text.remove_prefix(suffix.size());
  return true;
}

}  // namespace

std::map<int64_t, double> LengthTrace::parse_histogram(std::string_view text,
                                                       const std::string& place) {
  std::map<int64_t, double> weights;
  const bool has_braces = text.size() >= 2 && text.front() == '{' && text.back() == '}';
  std::string_view left = has_braces ? text.substr(1, text.size() - 2) : text;
  bool is_good = has_braces;
  while (is_good && !left.empty()) {
    int64_t length = 0;
    double weight = 0;
    is_good = take(left, length, ": ") && take(left, weight, ", ") && length > 0 &&
              length <= kLongest && weight >= 0 && weight <= 1e9;
    if (is_good && weight > 0) weights[length] += weight;
  }
  TLT_CHECK_INPUT(is_good, place, ": not a histogram of lengths, as {757: 0.25, 758: 0.75}");
  return weights;
}

void LengthTrace::add_file(const std::string& path) {
  const auto json = nlohmann::json::parse(read_file(path, kMaxTraceBytes), nullptr,
                                          /*allow_exceptions=*/false);
  TLT_CHECK_INPUT(json.is_object(), path, ": not a JSON object; give a …-dataset.json of ServeGen");
  for (const auto& [window, facts] : json.items()) {
    const std::string place = path + ", \"" + window + "\", output_tokens";
    TLT_CHECK_INPUT(
        facts.is_object() && facts.contains("output_tokens") && facts["output_tokens"].is_string(),
        place, ": missing or not a string");
    const auto histogram = parse_histogram(facts["output_tokens"].get<std::string>(), place);
    double sum = 0;
    for (const auto& [length, weight] : histogram) sum += weight;
    for (const auto& [length, weight] : histogram) weights_[length] += weight / sum;
    if (sum > 0) total_ += 1;
  }
}

LengthTrace LengthTrace::read(const std::string& path) {
  LengthTrace trace;
  std::set<std::string> files;
  if (fs::is_directory(path)) {
    for (const auto& entry : fs::directory_iterator(path))
      if (entry.path().string().ends_with("-dataset.json")) files.insert(entry.path().string());
  } else {
    files.insert(path);
  }
  for (const std::string& file : files) trace.add_file(file);
  TLT_CHECK_INPUT(!trace.weights_.empty(), path, ": no lengths; give a …-dataset.json of ServeGen");
  return trace;
}

int64_t LengthTrace::quantile(double share) const {
  double left = share * total_;
  for (const auto& [length, weight] : weights_)
    if ((left -= weight) < 0) return length;
  return longest();
}

double LengthTrace::mean() const {
  double sum = 0;
  for (const auto& [length, weight] : weights_) sum += static_cast<double>(length) * weight;
  return sum / total_;
}

}  // namespace tlt::data
