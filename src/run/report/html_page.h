// HtmlPage: the page of a report, one HTML file without references to others. Its parts are the
// files of report/page/ and uPlot, which the build embeds.
//
// The data are untrusted: a response may contain any text. They are JSON in a <script> element that
// is not executed, with every character escaped that could end it, and the page shows them as text,
// never as HTML. A Content-Security-Policy allows the page's own script by its SHA-256 and nothing
// else: no other script, no network.
//
// Threading  pure functions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tlt::run {

// The page; `data` as src/run/report/page/data.js reads it.
std::string html_page(std::string_view title, const nlohmann::json& data);

// JSON that may stand in a <script> element: "<", ">", "&" and the line separators of JavaScript
// are escaped, and bytes that are not UTF-8 are U+FFFD.
std::string script_json(const nlohmann::json& data);

// Text in HTML.
std::string html_text(std::string_view text);

}  // namespace tlt::run
