#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tests/fuzz.sh BUILD SECONDS [FILTER]: runs libFuzzer on each parser of BUILD/tests/tlt_fuzz_test for so long, one after
# another (make fuzz). FILTER is a GoogleTest filter: '*Jinja*'. The corpora are kept in runs/fuzz and continued.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
build=$1 seconds=$2 filter=${3:-*}
program=$build/tests/tlt_fuzz_test
tests=$("$program" --gtest_list_tests --gtest_filter="$filter" | awk '/^[^ ]/ { suite = $1 } /^ / { print suite $1 }')
[ -n "$tests" ] || { echo "fuzz.sh: no parser matches $filter"; exit 1; }
mkdir -p runs/fuzz
failed=0
for test in $tests; do
  log=runs/fuzz/$test.log
  if TLT_FUZZ_CORPUS=runs/fuzz TLT_FUZZ_SECONDS=$seconds "$program" --gtest_filter="$test" >"$log" 2>&1; then
    echo "ok    $test: $(awk '/number_of_executed_units/ { print $2 " inputs" } /slowest_unit_time/ { print "slowest " $2 " s" } \
      /peak_rss/ { print $2 " MB" }' "$log" | paste -sd, | sed 's/,/, /g')"
  else
    echo "FAIL  $test: $log"
    grep -E 'no InputError|not one sentence|ERROR: |SUMMARY|Test unit written' "$log" | head -n 5
    failed=1
  fi
done
exit $failed
