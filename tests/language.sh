#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tests/language.sh TLT PATH...: the files of PATH, and with a program TLT (or "") the output of its `options` and of
# every --help, speak the field's terms (docs/glossary.md). Fails on a match of tests/banned_words.txt, which has on each
# line a word to avoid (an extended regular expression), a tab, and what to write instead.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tlt=$1
shift
words=$(mktemp) help=$(mktemp --suffix=.md)  # a name that --include takes
trap 'rm -f "$words" "$help"' EXIT
cut -f1 "$here/banned_words.txt" >"$words"
[ -s "$words" ] || { echo "language.sh: no banned words"; exit 1; }
for path in "$@"; do [ -e "$path" ] || { echo "language.sh: no $path"; exit 1; }; done

# Other meanings: floor of mathematics and Jinja, the user account nobody, the stem of a path.
allowed='std::floor|[("]floor|lfloor|, floor|or floor"|`nobody`|\.stem\(\)|keys and values of earlier tokens'

if [ -n "$tlt" ]; then
  "$tlt" options --markdown >"$help"
  commands=$("$tlt" --help | awk '/^  [a-z]/ {print $1}')
  for command in $commands; do "$tlt" "$command" --help >>"$help" 2>&1; done
  for bench in decode forward rollout train growth graphs tokenize suffix draft-train compare; do
    "$tlt" bench $bench --help >>"$help" 2>&1
  done
  [ "$(wc -l <"$help")" -gt 300 ] || { echo "language.sh: $tlt printed no help"; exit 1; }
fi

found=$(grep -rniE --include=*.h --include=*.cpp --include=*.md --include=*.toml -f "$words" "$@" "$help" |
  grep -vE "$allowed")
[ -z "$found" ] && exit 0
echo "$found"
echo "Words that docs/glossary.md has other terms for; tests/banned_words.txt names them."
exit 1
