// JinjaTemplate: a template in the subset of Jinja that chat templates use, rendered as in
// transformers (trim_blocks, lstrip_blocks, no HTML escaping, an immutable sandbox). Unsupported
// constructs are rejected by parse(); rendering counts its steps and the bytes that it touches, so
// that every template ends in about a second.
//
// Not here   finding a model's template and its variables (chat_template.h).
// Threading  constant after parsing; any function from any thread. Copies share the tree.
//
//   const JinjaTemplate hello = JinjaTemplate::parse("Hello {{ name | upper }}", "hello.jinja");
//   hello.render({{"name", "you"}}).text;    // "Hello YOU"
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tlt::chat_template {

struct JinjaTree;

struct JinjaLimits {
  int64_t steps = 25'000'000;  // less than a second of work; 20 MB of output at most
  std::optional<std::tm> now;  // for strftime_now; nullopt: the machine's clock
};

struct JinjaRendering {
  std::string text;
  // [begin, end) in bytes of the output of {% generation %} blocks, in order.
  std::vector<std::pair<int64_t, int64_t>> generated;
};

class JinjaTemplate {
 public:
  // InputError: "NAME: line 3: …", not valid Jinja or not supported.
  static JinjaTemplate parse(std::string_view source, const std::string& name);

  // Renders with the members of the object as variables. InputError: "NAME: line 3: …", the
  // template calls raise_exception, uses values wrongly, or takes too many steps.
  JinjaRendering render(const nlohmann::ordered_json& variables,
                        const JinjaLimits& limits = {}) const;

  // Whether the template has {% generation %} blocks.
  bool marks_generation() const;

 private:
  JinjaTemplate(std::string name, std::shared_ptr<const JinjaTree> tree)
      : name_(std::move(name)), tree_(std::move(tree)) {}

  std::string name_;
  std::shared_ptr<const JinjaTree> tree_;
};

}  // namespace tlt::chat_template
