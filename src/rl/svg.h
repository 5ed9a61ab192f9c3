// Parts of SVG pictures that are readable on light and dark pages: a picture brings its own
// background and follows prefers-color-scheme.
//
// Classes: bg (background), ink (titles), dim (labels of axes), grid (lines), halo (text over
// lines: an outline of the background's colour).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace tlt::rl::svg {

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

// Position, anchor (start, middle, end) and looks of a text.
struct TextStyle {
  std::string_view anchor = "start";
  std::string_view classes = "dim";
  std::string_view colour = {};  // in place of the class's
  double size = 13;
  bool is_bold = false;
};

std::string text(Point at, std::string_view words, const TextStyle& style);
// About how wide a text is, in pixels.
double text_width(std::string_view words, double size = 13);
std::string line(Point from, Point to, std::string_view attributes);

// The whole file, with a background. `title`: for readers that cannot see it.
std::string document(double width, double height, std::string_view title, std::string_view body);

}  // namespace tlt::rl::svg
