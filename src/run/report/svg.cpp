// SPDX-License-Identifier: Apache-2.0
#include "run/report/svg.h"

#include <fmt/format.h>

namespace tlt::run::svg {
namespace {

constexpr const char* kLooks =
    "<style>.bg{fill:#fff}.ink{fill:#1f2328}.dim{fill:#59636e}.grid{stroke:#d8dee4}"
    ".halo{paint-order:stroke;stroke:#fff;stroke-width:4px;stroke-linejoin:round}"
    "@media(prefers-color-scheme:dark){.bg{fill:#0d1117}.ink{fill:#e6edf3}.dim{fill:#9198a1}"
    ".grid{stroke:#30363d}.halo{stroke:#0d1117}}</style>\n";

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

}  // namespace

std::string text(Point at, std::string_view words, const TextStyle& style) {
  const std::string colour =
      style.colour.empty() ? "" : fmt::format(" style='fill:{}'", style.colour);
  return fmt::format(
      "<text x='{:.1f}' y='{:.1f}' text-anchor='{}' class='{}' font-size='{}'{}{}>{}</text>\n",
      at.x, at.y, style.anchor, style.classes, style.size,
      style.is_bold ? " font-weight='bold'" : "", colour, escape(words));
}

double text_width(std::string_view words, double size) {
  int64_t letters = 0;  // characters, not bytes of UTF-8
  for (const char c : words) letters += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return 0.56 * size * static_cast<double>(letters);
}

std::string line(Point from, Point to, std::string_view attributes) {
  return fmt::format("<line x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}' {}/>\n", from.x, from.y,
                     to.x, to.y, attributes);
}

std::string document(double width, double height, std::string_view title, std::string_view body) {
  return fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' width='{0}' height='{1}' viewBox='0 0 {0} {1}' "
      "font-family='Helvetica,Arial,sans-serif' role='img'>\n<title>{2}</title>\n{3}<rect "
      "width='{0}' height='{1}' class='bg'/>\n{4}</svg>\n",
      width, height, escape(title), kLooks, body);
}

}  // namespace tlt::run::svg
