// SPDX-License-Identifier: Apache-2.0
#include "cli/verl_config.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/check.h"
#include "base/files.h"
#include "base/utf8.h"

namespace tlt::cli {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxConfigBytes = 16 << 20;
constexpr int kMostSteps = 16;  // nested ${…}; more is a cycle
constexpr int kDeepest = 64, kMostDots = 128;
constexpr int64_t kMostValues = 10'000;  // verl's own configuration has 400
constexpr int64_t kTextBytes = 256;      // of a text that counts as one more value
// All values that ${…} read.
constexpr int64_t kMostResolvedBytes = int64_t{4} << 20;

// Converts an unquoted word like OmegaConf; a quoted one is a string.
Json scalar_value(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return text;
  bool truth = false;
  if (text == "null" || text == "~" || text.empty() || text == "None") return nullptr;
  if (YAML::convert<bool>::decode(node, truth)) return truth;
  int64_t whole = 0;
  double number = 0;
  std::string digits = text;
  std::erase(digits, '_');  // 100_000
  const YAML::Node plain(digits);
  if (YAML::convert<int64_t>::decode(plain, whole)) return whole;
  if (YAML::convert<double>::decode(plain, number)) return number;
  return text;
}

Json value_of(const YAML::Node& node, int depth = 0) {
  if (depth > kDeepest) return nullptr;
  if (node.IsScalar()) return scalar_value(node);
  Json value;
  if (node.IsSequence()) {
    value = Json::array();
    for (const YAML::Node& item : node) value.push_back(value_of(item, depth + 1));
  } else if (node.IsMap()) {
    value = Json::object();
    for (const auto& entry : node) value[entry.first.Scalar()] = value_of(entry.second, depth + 1);
  }
  return value;
}

// Values with aliases written out; a long text counts as several. Counts no further than `most`.
int64_t count_values(const YAML::Node& node, int64_t most, int depth = 0) {
  const auto texts = [](const YAML::Node& scalar) {
    return scalar.IsScalar() ? std::ssize(scalar.Scalar()) / kTextBytes : 0;
  };
  int64_t count = 1 + texts(node);
  if (depth > kDeepest) return count;
  const bool is_map = node.IsMap();
  if (is_map || node.IsSequence())
    for (const auto& entry : node) {
      if (count >= most) break;
      count += count_values(is_map ? entry.second : YAML::Node(entry), most - count, depth + 1) +
               (is_map ? texts(entry.first) : 0);
    }
  return count;
}

[[noreturn]] void refuse(const std::string& place, const YAML::Exception& error) {
  throw InputError(place + ":" + std::to_string(error.mark.line + 1) + ": not YAML: " + error.msg);
}

YAML::Node parse(const std::string& text, const std::string& place) {
  try {
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    refuse(place, error);
  }
}

// A few lines of aliases can stand for billions of values.
YAML::Node load(const std::string& text, const std::string& place) {
  YAML::Node node = parse(text, place);
  TLT_CHECK_INPUT(count_values(node, kMostValues + 1) <= kMostValues, place, ": has more than ",
                  kMostValues, " values (a long text counts as several), with aliases written out");
  return node;
}

// Resolves ${…}.
class Resolver {
 public:
  explicit Resolver(const std::vector<VerlEntry>& entries) {
    for (const VerlEntry& entry : entries) values_[entry.key] = entry.value;
  }

  // nullopt: it cannot be resolved.
  std::optional<Json> resolve(const Json& value, const std::string& key, int steps = 0) const {
    if (!value.is_string()) return value;
    const auto& text = value.get_ref<const std::string&>();
    const size_t begin = text.find("${");
    if (begin == std::string::npos) return value;
    charge(value, key);
    const size_t end = text.find('}', begin);
    if (end == std::string::npos || steps > kMostSteps) return std::nullopt;
    const std::string inner = text.substr(begin + 2, end - begin - 2);
    const std::optional<Json> found = look_up(inner, key, steps);
    if (!found) return std::nullopt;
    if (begin == 0 && end + 1 == text.size()) return found;
    const std::string middle = found->is_string() ? found->get<std::string>() : found->dump();
    return resolve(text.substr(0, begin) + middle + text.substr(end + 1), key, steps + 1);
  }

 private:
  std::optional<Json> look_up(std::string inner, const std::string& key, int steps) const {
    constexpr std::string_view kSelect = "oc.select:";
    if (!inner.starts_with(kSelect)) {
      if (inner.find(':') != std::string::npos) return std::nullopt;  // resolvers such as oc.env
      return follow(absolute(inner, key), steps);
    }
    inner.erase(0, kSelect.size());
    const size_t comma = inner.find(',');
    const std::string target = absolute(inner.substr(0, comma), key);
    if (const auto found = follow(target, steps)) return found;
    if (comma == std::string::npos) return Json(nullptr);
    return value_of(load(inner.substr(comma + 1), key));
  }

  std::optional<Json> follow(const std::string& target, int steps) const {
    const auto found = values_.find(target);
    if (found == values_.end()) return std::nullopt;
    charge(found->second, target);
    return resolve(found->second, target, steps + 1);
  }

  // A few lines that refer to each other can stand for billions of bytes.
  void charge(const Json& value, const std::string& key) const {
    const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    bytes_ += std::ssize(text);
    TLT_CHECK_INPUT(bytes_ <= kMostResolvedBytes, key, ": more than ", kMostResolvedBytes,
                    " bytes are read by ${…}; write the values in their place");
  }

  // ".b" is relative to the group of the key, "..b" to the group above.
  static std::string absolute(std::string name, const std::string& key) {
    std::string group = key;
    bool is_relative = false;
    while (name.starts_with('.')) {
      name.erase(0, 1);
      is_relative = true;
      const size_t dot = group.rfind('.');
      group = dot == std::string::npos ? "" : group.substr(0, dot);
    }
    return !is_relative || group.empty() ? name : group + "." + name;
  }

  std::map<std::string, Json> values_;
  mutable int64_t bytes_ = 0;  // that ${…} read so far
};

// Dots of a key become nested objects, as those of custom_reward_function.reward_kwargs.
void check_key(const std::string& key) {
  TLT_CHECK_INPUT(std::ranges::count(key, '.') <= kMostDots, key, ": a key with more than ",
                  kMostDots, " dots is not supported");
}

void flatten(const YAML::Node& node, const std::string& key, const std::string& file,
             std::vector<VerlEntry>& entries) {
  if (node.IsMap() && node.size() > 0 && std::ranges::count(key, '.') < kDeepest) {
    for (const auto& entry : node) {
      const std::string& name = entry.first.Scalar();
      flatten(entry.second, key.empty() ? name : key + "." + name, file, entries);
    }
    return;
  }
  if (key.empty()) return;
  check_key(key);
  // For a duplicate key the last value counts, as in PyYAML.
  std::erase_if(entries, [&](const VerlEntry& entry) { return entry.key == key; });
  entries.push_back({key, file + ":" + std::to_string(node.Mark().line + 1), value_of(node)});
}

void apply(const std::string& text, std::vector<VerlEntry>& entries) {
  const size_t equals = text.find('=');
  std::string key = text.substr(0, equals);
  key.erase(0, std::min(key.find_first_not_of('+'), key.size()));
  TLT_CHECK_INPUT(equals != std::string::npos && !key.empty(), "'", text,
                  "' is not KEY=VALUE; give overrides as actor_rollout_ref.rollout.n=8");
  check_key(key);
  const Json value = value_of(load(text.substr(equals + 1), "'" + key + "'"));
  const auto same = std::ranges::find(entries, key, &VerlEntry::key);
  if (same != entries.end()) {
    *same = {key, text, value};
  } else {
    entries.push_back({key, text, value});
  }
}

}  // namespace

std::vector<VerlEntry> read_verl_config(const std::string& path,
                                        const std::vector<std::string>& overrides) {
  std::vector<VerlEntry> entries;
  try {
    const std::string file = read_file(path, kMaxConfigBytes);
    TLT_CHECK_INPUT(is_valid_utf8(file), path, ": not UTF-8; save it as UTF-8");
    const YAML::Node root = load(file, path);
    TLT_CHECK_INPUT(root.IsMap(), path,
                    ": no keys; give a configuration of verl as a YAML file of key: value lines");
    flatten(root, "", path, entries);
    for (const std::string& text : overrides) apply(text, entries);
  } catch (const YAML::Exception& error) {
    refuse(path, error);
  }
  const Resolver resolver(entries);
  for (VerlEntry& entry : entries) {
    auto value = resolver.resolve(entry.value, entry.key);
    entry.is_open = !value.has_value();
    if (value) entry.value = std::move(*value);
  }
  return entries;
}

}  // namespace tlt::cli
