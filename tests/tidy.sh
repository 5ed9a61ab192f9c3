#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tests/tidy.sh BUILD JOBS [PATTERN [clang-tidy arguments]]: clang-tidy (.clang-tidy) on what BUILD/compile_commands.json
# lists (preset tidy), or on the part of it whose path matches PATTERN. Prints each finding once; fails when there is one.
set -uo pipefail
build=$1 jobs=$2 pattern=${3:-.}
shift $(($# < 3 ? $# : 3))
tidy=$(dirname "${BASH_SOURCE[0]}")/../.deps/tidy/clang_tidy/data/bin/clang-tidy
[ -x "$tidy" ] || { printf 'clang-tidy is missing; with a network, type:  setup/setup.sh --tidy\n' >&2; exit 1; }

# libstdc++ 12 uses its own deprecated functions. A header's finding comes once from every file that includes it. Notes
# belong to the finding before them.
sed -n 's/^ *"file": "\(.*\)".*/\1/p' "$build/compile_commands.json" | sort -u | grep -e "$pattern" |
  xargs -r -P "$jobs" -n 1 "$tidy" --quiet -p "$build" --extra-arg=-Wno-deprecated-declarations "$@" \
    2> >(grep -vE 'warnings?( and [0-9]+ errors?)? generated|treated as error|while processing|Processing file' >&2) |
  awk '/: (error|warning): / { show = !seen[$0]++; findings += show } show
    END { print "clang-tidy: " findings + 0 " findings" }'
