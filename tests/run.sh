#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tests/run.sh BUILD JOBS [ctest arguments]: runs ctest, then says how many cases ran in how many programs and
# names every case that was skipped, with its reason.
set -uo pipefail
build=$1 jobs=$2
shift 2
rm -f "$build"/tests/*.xml
ctest --test-dir "$build" -j "$jobs" --no-tests=error --output-on-failure "$@"
code=$?

shopt -s nullglob
reports=("$build"/tests/*.xml)
[ ${#reports[@]} -gt 0 ] || exit $code
# Reports of GoogleTest and tests/packages/support.py, one element a line; the message of <skipped> is "file:line&#x0A;reason".
awk -v build="$build" '
  function attribute(key) { return match($0, " " key "=\"[^\"]*\"") ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 4) : "" }
  /<testsuites / { programs++; cases += attribute("tests"); disabled += attribute("disabled") }
  /<testcase /   { name = attribute("classname") "." attribute("name") }
  /<skipped /    { reason = attribute("message"); sub(/.*&#x0A;/, "", reason); skipped[++skips] = name ": " reason }
  END {
    printf "%s: %d cases in %d test programs, %d skipped, %d disabled\n", build, cases, programs, skips, disabled
    for (i = 1; i <= skips; i++) print "  skipped " skipped[i]
  }' "${reports[@]}"
exit $code
