# SPDX-License-Identifier: Apache-2.0
#
# tlt_report_page(TARGET): gives TARGET the header run/report_page_files.h with the parts of a report's page as string
# literals: the files of src/run/report/page/ and uPlot (.deps/uplot). Run as a script, this file writes the header.
if(CMAKE_SCRIPT_MODE_FILE)
  # -DPAGE=src/run/report/page -DUPLOT=.deps/uplot -DOUTPUT=report_page_files.h -DSCRIPTS=a.js;b.js
  function(append_literal name)
    set(content "")
    foreach(file IN LISTS ARGN)
      file(READ "${file}" text)
      string(APPEND content "${text}\n")
    endforeach()
    if(content MATCHES "\\)tlt_page\"" OR (NOT name STREQUAL "kPage" AND content MATCHES "</(script|style)|-->"))
      message(FATAL_ERROR "one of ${ARGN} has a text that would end its literal or its element")
    endif()
    file(APPEND "${OUTPUT}.new" "inline constexpr std::string_view ${name} = R\"tlt_page(${content})tlt_page\";\n")
  endfunction()
  list(TRANSFORM SCRIPTS PREPEND "${PAGE}/")
  file(WRITE "${OUTPUT}.new" "// Made by cmake/TltReportPage.cmake from src/run/report/page/ and uPlot.\n"
    "#pragma once\n#include <string_view>\nnamespace tlt::run::page_files {\n")
  append_literal(kStyle "${UPLOT}/uplot.min.css" "${PAGE}/page.css")
  append_literal(kScript "${UPLOT}/uplot.iife.min.js" ${SCRIPTS})
  append_literal(kLicence "${PAGE}/uplot_licence.txt")
  append_literal(kPage "${PAGE}/page.html")
  file(APPEND "${OUTPUT}.new" "}  // namespace tlt::run::page_files\n")
  file(RENAME "${OUTPUT}.new" "${OUTPUT}")
  return()
endif()

set(TLT_REPORT_PAGE_SCRIPT "${CMAKE_CURRENT_LIST_FILE}")

function(tlt_report_page target)
  set(page "${CMAKE_SOURCE_DIR}/src/run/report/page")
  set(uplot "${TLT_DEPS}/uplot")
  if(NOT EXISTS "${uplot}/uplot.iife.min.js")
    message(FATAL_ERROR "no uPlot in ${uplot}; type: make setup")
  endif()
  # In the order in which the page runs them.
  set(scripts begin.js data.js charts.js sections.js timeline.js rollouts.js compare.js main.js)
  set(files page.html page.css uplot_licence.txt ${scripts})
  list(TRANSFORM files PREPEND "${page}/")
  set(output "${CMAKE_BINARY_DIR}/generated/run/report_page_files.h")
  add_custom_command(OUTPUT "${output}"
    COMMAND "${CMAKE_COMMAND}" "-DPAGE=${page}" "-DUPLOT=${uplot}" "-DOUTPUT=${output}" "-DSCRIPTS=${scripts}"
      -P "${TLT_REPORT_PAGE_SCRIPT}"
    DEPENDS ${files} "${uplot}/uplot.iife.min.js" "${uplot}/uplot.min.css" "${TLT_REPORT_PAGE_SCRIPT}"
    VERBATIM)
  target_sources(${target} PRIVATE "${output}")
endfunction()
