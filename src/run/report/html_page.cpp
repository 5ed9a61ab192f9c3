// SPDX-License-Identifier: Apache-2.0
#include "run/report/html_page.h"

#include <map>
#include <nlohmann/json.hpp>

#include "base/checksum.h"
#include "base/utf8.h"
#include "run/report_page_files.h"

namespace tlt::run {
namespace {

// Base64 (RFC 4648) of the bytes of a hexadecimal hash.
std::string base64_of_hex(std::string_view hex) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bits, out;
  for (const char c : hex) {
    const int value = c <= '9' ? c - '0' : c - 'a' + 10;
    for (int bit = 3; bit >= 0; --bit) bits += (value >> bit & 1) != 0 ? '1' : '0';
  }
  while (bits.size() % 6 != 0) bits += '0';
  for (size_t i = 0; i < bits.size(); i += 6)
    out += kDigits[std::stoul(bits.substr(i, 6), nullptr, 2)];
  while (out.size() % 4 != 0) out += '=';
  return out;
}

}  // namespace

std::string script_json(const nlohmann::json& data) {
  const std::string text = data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  std::string out;
  out.reserve(text.size() + text.size() / 16);
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = std::string_view(text).substr(i);
    if (text[i] == '<') {
      out += "\\u003c";
    } else if (text[i] == '>') {
      out += "\\u003e";
    } else if (text[i] == '&') {
      out += "\\u0026";
    } else if (rest.starts_with("\xE2\x80\xA8") || rest.starts_with("\xE2\x80\xA9")) {
      out += text[i + 2] == '\xA8' ? "\\u2028" : "\\u2029";
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string html_text(std::string_view text) {
  std::string valid, out;
  append_lossy(valid, text, /*is_last=*/true);
  for (const char c : valid) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string html_page(std::string_view title, const nlohmann::json& data) {
  const std::string script(page_files::kScript);
  const std::map<std::string_view, std::string> parts = {
      {"title", html_text(title)},
      {"licence", std::string(page_files::kLicence)},
      {"style", std::string(page_files::kStyle)},
      {"script", script},
      {"script_hash", base64_of_hex(sha256(script))},
      {"data", script_json(data)}};
  // In one pass: what a place is filled with may look like another place.
  std::string page;
  std::string_view rest = page_files::kPage;
  for (size_t at = rest.find("{{"); at != std::string_view::npos; at = rest.find("{{")) {
    const size_t end = rest.find("}}", at);
    page += rest.substr(0, at);
    page += parts.at(rest.substr(at + 2, end - at - 2));
    rest.remove_prefix(end + 2);
  }
  return page.append(rest);
}

}  // namespace tlt::run
