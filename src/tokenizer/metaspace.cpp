// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/metaspace.h"

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/utf8.h"

namespace tlt::tokenizer {
namespace {

Metaspace::Scheme scheme_of(const std::string& name) {
  if (name == "always") return Metaspace::Scheme::kAlways;
  if (name == "first") return Metaspace::Scheme::kFirst;
  if (name == "never") return Metaspace::Scheme::kNever;
  throw InputError("Metaspace with prepend_scheme " + name +
                   " is not supported; known: always, first, never");
}

}  // namespace

Metaspace::Metaspace(const nlohmann::json& description)
    : mark(description.at("replacement").get<std::string>()),
      scheme(scheme_of(description.value("prepend_scheme", "always"))) {
  TLT_CHECK_INPUT(!mark.empty() && next_utf8(mark).bytes == mark.size(),
                  "Metaspace: replacement \"", mark, "\" is not one character");
  const auto flag = [&](const char* name) {
    return !description.contains(name) || description.at(name).is_null() ||
           description.at(name).get<bool>();
  };
  splits = flag("split");
  TLT_CHECK_INPUT(flag("add_prefix_space") || scheme == Scheme::kNever,
                  "Metaspace: add_prefix_space is false and prepend_scheme is not never");
}

}  // namespace tlt::tokenizer
