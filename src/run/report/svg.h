// Svg: elements of SVG files that are readable on light and dark pages: each file has its own
// background and follows prefers-color-scheme.
//
// Classes: bg (background), ink (titles), dim (axis labels), grid (grid lines), halo (text over
// lines, outlined in the background's colour).
//
// Threading  pure functions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace tlt::run::svg {

// Colours that stand out from both backgrounds.
inline constexpr const char* kBlue = "#2f81f7";
inline constexpr const char* kRed = "#e5534b";
inline constexpr const char* kGreen = "#2da44e";
inline constexpr const char* kOrange = "#d4811f";
inline constexpr const char* kPurple = "#9a6dd7";
inline constexpr const char* kGrey = "#8b949e";

struct Point {
  double x = 0, y = 0;
};

// Anchor (start, middle, end) and style of a text.
struct TextStyle {
  std::string_view anchor = "start";
  std::string_view classes = "dim";
  std::string_view colour = {};  // instead of the class's colour
  double size = 13;
  bool is_bold = false;
};

std::string text(Point at, std::string_view words, const TextStyle& style);
// Approximate width of a text, in pixels.
double text_width(std::string_view words, double size = 13);
std::string line(Point from, Point to, std::string_view attributes);

// The complete file, with a background. `title`: alternative text for screen readers.
std::string document(double width, double height, std::string_view title, std::string_view body);

}  // namespace tlt::run::svg
