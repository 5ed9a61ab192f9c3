// SPDX-License-Identifier: Apache-2.0
#include "tinker/saved_path.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/check.h"
#include "base/files.h"
#include "tinker/replies.h"

namespace tlt::tinker {
namespace {

constexpr std::string_view kScheme = "tinker://";

bool is_name(const std::string& text, std::string_view punctuation) {
  return !text.empty() && text.size() <= kMaxNameBytes && text.front() != '.' &&
         std::ranges::all_of(text, [&](unsigned char c) {
           return std::isalnum(c) || punctuation.find(static_cast<char>(c)) != punctuation.npos;
         });
}

}  // namespace

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts = {""};
  for (const char c : text) {
    if (c == '/')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

std::string weights_path(const std::string& model, const std::string& name) {
  return std::string(kScheme) + model + "/weights/" + name;
}

std::string sampler_weights_path(const std::string& model, const std::string& name) {
  return std::string(kScheme) + model + "/sampler_weights/" + name;
}

std::string folder_of(const std::string& save_folder, const std::string& path) {
  const std::vector<std::string> parts =
      parts_of(path.starts_with(kScheme) ? path.substr(kScheme.size()) : "");
  TLT_CHECK_INPUT(parts.size() == 3 && is_name(parts[0], "-:") &&
                      (parts[1] == "weights" || parts[1] == "sampler_weights") &&
                      is_name(parts[2], "-_.") && !parts[2].ends_with(kUnfinished),
                  "'", path.substr(0, 4 * kMaxNameBytes),
                  "' is not a path of saved weights; save_state() and save_weights_for_sampler() "
                  "return them, as tinker://MODEL/weights/NAME, where a name has letters, digits, "
                  "'-', '_' and '.'");
  std::string model = parts[0];
  std::ranges::replace(model, ':', '-');
  return save_folder + "/" + model + "/" + parts[1] + "/" + parts[2];
}

}  // namespace tlt::tinker
