// JinjaTemplate: a template in the part of Jinja that chat templates are written in, rendered as
// transformers renders it (trim_blocks, lstrip_blocks, no escapes for HTML, an immutable sandbox).
// What it does not know is refused when it is read; what it does is counted, so that no template
// takes for ever.
//
// Not here   where a model's template is found and what it is given (chat_template.h).
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

namespace tlt::data {

struct JinjaTree;

struct JinjaLimits {
  int64_t steps = 50'000'000;      // about a second's work, 200 MB of text made
  std::optional<std::time_t> now;  // for strftime_now; nullopt: the machine's clock
};

struct JinjaRendering {
  std::string text;
  // [begin, end) in bytes of what {% generation %} blocks wrote, in order.
  std::vector<std::pair<int64_t, int64_t>> generated;
};

class JinjaTemplate {
 public:
  // InputError: "NAME: line 3: …", no Jinja or nothing that is supported.
  static JinjaTemplate parse(std::string_view source, const std::string& name);

  // With the members of the object as variables. InputError: "NAME: line 3: …", the template calls
  // raise_exception, does what values do not allow, or takes too many steps.
  JinjaRendering render(const nlohmann::ordered_json& variables,
                        const JinjaLimits& limits = {}) const;

  // There are {% generation %} blocks.
  bool marks_generation() const;

 private:
  JinjaTemplate(std::string name, std::shared_ptr<const JinjaTree> tree)
      : name_(std::move(name)), tree_(std::move(tree)) {}

  std::string name_;
  std::shared_ptr<const JinjaTree> tree_;
};

}  // namespace tlt::data
