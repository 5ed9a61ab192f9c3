# SPDX-License-Identifier: Apache-2.0
#
# tlt_report_page(): writes the header run/report_page_files.h with the parts of a report's page as string literals: the
# files of src/run/report/page/ and uPlot (.deps/uplot). At configure time, which a change of a file repeats, so that
# clang-tidy finds it without a build. Run as a script, this file writes the header to -DTLT_PAGE_HEADER.

# A part of the page: the files after another.
function(tlt_append_page_part header name)
  set(content "")
  foreach(file IN LISTS ARGN)
    file(READ "${file}" text)
    string(APPEND content "${text}\n")
  endforeach()
  if(content MATCHES "\\)tlt_page\"" OR (NOT name STREQUAL "kPage" AND content MATCHES "</(script|style)|-->"))
    message(FATAL_ERROR "one of ${ARGN} has a text that would end its literal or its element")
  endif()
  file(APPEND "${header}" "inline constexpr std::string_view ${name} = R\"tlt_page(${content})tlt_page\";\n")
endfunction()

function(tlt_write_page_header header page uplot)
  # In the order in which the page runs them.
  set(scripts begin.js data.js charts.js sections.js timeline.js rollouts.js compare.js sweep.js main.js)
  list(TRANSFORM scripts PREPEND "${page}/")
  file(WRITE "${header}.new" "// Made by cmake/TltReportPage.cmake from src/run/report/page/ and uPlot.\n"
    "#pragma once\n#include <string_view>\n#pragma GCC diagnostic ignored \"-Woverlength-strings\"\nnamespace tlt::run::page_files {\n")
  tlt_append_page_part("${header}.new" kStyle "${uplot}/uplot.min.css" "${page}/page.css")
  tlt_append_page_part("${header}.new" kScript "${uplot}/uplot.iife.min.js" ${scripts})
  tlt_append_page_part("${header}.new" kLicence "${page}/uplot_licence.txt")
  tlt_append_page_part("${header}.new" kPage "${page}/page.html")
  file(APPEND "${header}.new" "}  // namespace tlt::run::page_files\n")
  file(COPY_FILE "${header}.new" "${header}" ONLY_IF_DIFFERENT)
  file(REMOVE "${header}.new")
endfunction()

function(tlt_report_page)
  set(page "${CMAKE_SOURCE_DIR}/src/run/report/page")
  set(uplot "${TLT_DEPS}/uplot")
  if(NOT EXISTS "${uplot}/uplot.iife.min.js")
    message(FATAL_ERROR "no uPlot in ${uplot}; type: make setup")
  endif()
  file(GLOB files "${page}/*")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${files}
    "${uplot}/uplot.iife.min.js" "${uplot}/uplot.min.css")
  tlt_write_page_header("${CMAKE_BINARY_DIR}/generated/run/report_page_files.h" "${page}" "${uplot}")
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  get_filename_component(root "${CMAKE_CURRENT_LIST_DIR}" DIRECTORY)
  tlt_write_page_header("${TLT_PAGE_HEADER}" "${root}/src/run/report/page" "${root}/.deps/uplot")
endif()
