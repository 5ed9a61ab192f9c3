#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# setup/setup.sh [--pinned] [--tidy] [--fuzz] [--picture] [--browser] [--clients] [--tools]: brings what the build needs,
# clang-tidy (wheels-tidy.txt), clang with libFuzzer, matplotlib for the picture of `make headline`, and Chromium for the
# test of the report's page. `make setup` calls it; a second run does nothing.
# --clients brings the official Python clients that tests of `tlt serve` and of the trackers use
# (wheels-clients.txt), and the package verifiers for tools/verifiers_env.py (wheels-verifiers.txt), --tools what builds
# the site of docs/ and checks containers and scripts (wheels-tools.txt), if PyPI can be reached; `make test` calls both.
#   1. Debian packages (debian-packages.txt) that are missing, by apt-get, as root or with sudo.
#   2. The wheels of wheels.txt, pinned by version and hash, by pip into .deps/:
#      torch/{include,lib}  nvidia/cu13/lib  pyarrow/{include,lib*.so.*}  uplot/
#      A torch 2.11 that python3 already has is linked instead, and checked by its version alone; with --pinned the
#      wheel comes in its place. tlt itself never runs Python: what the rewards code and command start is the user's.
# Each part leaves a stamp in .deps/.stamps when it is complete, so an interrupted run is taken up again.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
deps=$root/.deps
pinned=no tidy=no fuzz=no picture=no browser=no clients=no tools=no
for flag; do
  case $flag in
    --pinned) pinned=yes ;;
    --tidy) tidy=yes ;;
    --fuzz) fuzz=yes ;;
    --picture) picture=yes ;;
    --browser) browser=yes ;;
    --clients) clients=yes ;;
    --tools) tools=yes ;;
    *) printf 'setup: unknown option %s; the first lines of %s have those there are\n' "$flag" "$0" >&2; exit 2 ;;
  esac
done

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$@" >&2; exit 1; }

# ---- Debian packages

find_python() {  # sets `python` to one that has pip
  for python in python3 /usr/bin/python3; do
    "$python" -m pip --version >/dev/null 2>&1 && return
  done
  return 1
}

find_missing() {  # sets `missing` to those of `wanted`
  local installed package
  missing=()
  installed=$(dpkg-query -W -f='${db:Status-Abbrev}${Package}\n' "${wanted[@]}" 2>/dev/null | sed -n 's/^ii *//p') || true
  for package in "${wanted[@]}"; do
    grep -qx -- "$package" <<<"$installed" || is_in_flint "$package" || missing+=("$package")
  done
}

is_in_flint() {  # FLINT 3 (Debian 13, Ubuntu 24.04) contains Arb, which has no package of its own there
  [ "$1" = libflint-arb-dev ] && apt-cache madison libflint-dev | grep -q '| *[3-9]'
}

fuzzer_runtime() {  # the package with libFuzzer for the default clang
  local version
  version=$(apt-cache depends clang | sed -n 's/^ *Depends: clang-\([0-9]*\)$/\1/p' | head -n 1)
  echo "libclang-rt-$version-dev"
}

debian_packages() {
  local wanted missing
  mapfile -t wanted < <(sed '/^#/d' "$here/debian-packages.txt")
  [ $fuzz = no ] || wanted+=(clang "$(fuzzer_runtime)")
  [ $picture = no ] || wanted+=(python3-matplotlib)
  [ $browser = no ] || wanted+=(chromium)
  [ ${#to_get[@]} -eq 0 ] && [ $clients$tools$tidy = nonono ] || find_python || wanted+=(python3 python3-pip)
  command -v dpkg-query >/dev/null ||
    fail "no dpkg-query here; install what these Debian packages hold by this system's own means: ${wanted[*]}"
  find_missing
  [ ${#missing[@]} -gt 0 ] || return 0

  local as_root=
  local command="apt-get install -y --no-install-recommends ${missing[*]}"
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "these Debian packages are missing; as root, type:" "  $command"
    as_root=sudo
  fi
  say "installing Debian packages: ${missing[*]}"
  $as_root apt-get -q -o DPkg::Lock::Timeout=300 update >/dev/null || say "apt-get update failed; trying with the lists there are"
  find_missing
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
    install --no-install-recommends "${missing[@]}" >/dev/null ||
    fail "apt-get could not install them; type:" "  ${as_root:+sudo }apt-get update && ${as_root:+sudo }$command"
}

# ---- wheels

is_done() {  # is the wheel of this pin in place?
  local stamp=$deps/.stamps/${1%%==*}
  [ -f "$stamp" ] || return 1
  case ${1%%==*} in
    torch) [ -e "$deps/torch/lib/libtorch_cpu.so" ] || return 1 ;;
    pyarrow) [ -d "$deps/pyarrow/include" ] || return 1 ;;
    youplot) [ -e "$deps/uplot/uplot.iife.min.js" ] || return 1 ;;
    *) [ -d "$deps/nvidia" ] || return 1 ;;
  esac
  case $(cat "$stamp") in
    "$1" | "$1 cuda="*) ;;  # "cuda=" was written by versions that built for cards separately
    linked | "linked cuda="*) [ $pinned = no ] ;;
    *) return 1 ;;
  esac
}

stamp() {  # stamp NAME TEXT
  mkdir -p "$deps/.stamps"
  printf '%s' "$2" >"$deps/.stamps/$1.new"
  mv "$deps/.stamps/$1.new" "$deps/.stamps/$1"
}

# A python3 that has torch 2.11 with its headers: .deps/torch becomes a link to it.
link_installed_torch() {
  local found
  found=$(python3 - 2>/dev/null <<'PYTHON'
import importlib.metadata, importlib.util, os
if importlib.metadata.version("torch").split("+")[0].startswith("2.11."):
    print(os.path.dirname(importlib.util.find_spec("torch").origin))
PYTHON
  ) || return 1
  [ -n "$found" ] && [ -e "$found/lib/libtorch_cpu.so" ] && [ -e "$found/include/ATen/ATen.h" ] || return 1
  say "using the torch of python3, of which only the version is checked: $found (setup/setup.sh --pinned replaces it)"
  rm -rf "$deps/torch"
  ln -s "$found" "$deps/torch"
  stamp torch linked
  local name
  if [ -d "$found/../nvidia" ] && ! ldd "$found/lib/libtorch_cpu.so" | grep -q 'not found'; then
    rm -rf "$deps/nvidia"
    ln -s "$(cd "$found/../nvidia" && pwd)" "$deps/nvidia"
    while read -r name; do
      stamp "$name" linked
    done < <(sed -n 's/^\(nvidia-[^=]*\)==.*/\1/p' "$here/wheels.txt")
  fi
}

choose_files() {  # sets `files`: what is needed of a wheel; libraries that are used on cards only stay out
  case $1 in
    torch) files=('torch/include/*' 'torch/lib/libtorch_cpu.so' 'torch/lib/libc10.so' 'torch/lib/libgomp*') ;;
    pyarrow) files=('pyarrow/include/*' 'pyarrow/libarrow.so.*' 'pyarrow/libparquet.so.*') ;;
    youplot) files=('youplot/vendor/uplot.*') ;;  # uPlot 1.6.31 as its authors published it
    *) files=('nvidia/*') ;;
  esac
  files+=('*.dist-info/*')
}

unpack() {  # unpack PIN: the downloaded wheel into .deps, complete or not at all
  local name fresh=$deps/.unpack
  name=${1%%==*}
  rm -rf "$fresh" "$deps/.old"
  mkdir "$fresh"
  choose_files "$name"
  unzip -q -d "$fresh" "$deps/.download/${name//-/_}"-*.whl "${files[@]}"
  case $name in
    torch | pyarrow)  # replaced as a whole
      if [ -e "$deps/$name" ] || [ -L "$deps/$name" ]; then mv -T "$deps/$name" "$deps/.old"; fi
      mv -T "$fresh/$name" "$deps/$name"
      rm -rf "$deps/.old" ;;
    youplot)
      rm -rf "$deps/uplot"
      mv -T "$fresh/youplot/vendor" "$deps/uplot"
      rmdir "$fresh/youplot" ;;
    nvidia-*)  # shared by several; never written into the Python it may be a link to
      if [ -L "$deps/nvidia" ]; then rm "$deps/nvidia"; fi ;;
  esac
  cp -alf "$fresh/." "$deps/"
  rm -rf "$fresh"
  stamp "$name" "$1"
}

wheels() {
  [ ${#to_get[@]} -gt 0 ] || return 0
  [ "$(uname -sm)" = "Linux x86_64" ] || fail "the wheels are for Linux on x86_64; this is $(uname -sm)"
  find_python || fail "no python3 with pip; type:  apt-get install python3-pip"
  local names=() platforms=() version
  for line in "${to_get[@]}"; do names+=("${line%% *}"); done
  say "downloading ${names[*]}"
  mkdir -p "$deps/.download"
  printf '%s\n' "${to_get[@]}" >"$deps/.download/wheels.txt"
  for version in 2_28 2_27 2_25 2_18 2_17 2014 2_12 2010 2_5 1; do
    case $version in *_*) version=_$version ;; esac
    platforms+=(--platform "manylinux${version}_x86_64")
  done
  "$python" -m pip download --quiet --disable-pip-version-check --no-cache-dir --no-deps --require-hashes \
    --only-binary=:all: --python-version 3.11 --implementation cp --abi cp311 --abi abi3 --abi none "${platforms[@]}" \
    --find-links "$deps/.download" --dest "$deps/.download" \
    -r "$deps/.download/wheels.txt" ||
    fail "pip could not download them; with a network, type:  make setup" \
      "or put these wheels into .deps/.download (from another machine) and type it again: ${names[*]}"
  say "unpacking into .deps"
  for line in "${to_get[@]}"; do unpack "$line"; done
  rm -rf "$deps/.download"
}

collect() {  # fills to_get with the lines of the wheel lists that are not in place
  local line
  to_get=()
  while read -r line; do
    is_done "$line" || to_get+=("$line")
  done < <(grep -v '^#' "$here/wheels.txt")
}

check() {
  local missing
  missing=$(LD_LIBRARY_PATH="$deps/nvidia/cu13/lib" ldd "$deps/torch/lib/libtorch_cpu.so" "$deps"/pyarrow/libparquet.so.* |
    sed -n 's/^\s*\(\S*\) => not found.*/\1/p' | sort -u)
  [ -z "$missing" ] || fail "libtorch does not find: $missing" "type:  rm -rf .deps && make setup"
}

python_packages() {  # python_packages NAME FOLDER WHAT: the wheels of wheels-NAME.txt, into .deps/FOLDER
  local list=$here/wheels-$1.txt folder=$deps/$2 pins fresh=$deps/.$1
  pins=$(sha256sum <"$list")
  [ -d "$folder" ] && [ "$(cat "$deps/.stamps/$1" 2>/dev/null)" = "$pins" ] && return
  find_python || { say "no python3 with pip: $3 will be skipped"; return; }
  say "downloading the wheels of wheels-$1.txt"
  rm -rf "$fresh"
  if PIP_ROOT_USER_ACTION=ignore "$python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
    --target "$fresh" -r "$list"; then
    rm -rf "$folder"
    mkdir -p "$(dirname "$folder")"
    mv -T "$fresh" "$folder"
    stamp "$1" "$pins"
  else
    rm -rf "$fresh"
    say "PyPI cannot be reached: $3 will be skipped"
  fi
}

mkdir -p "$deps"
exec 9>"$deps/.lock"
flock 9
collect
if [[ " ${to_get[*]:-}" == *" torch=="* ]] && [ $pinned = no ] && link_installed_torch; then
  collect
fi
debian_packages
if [ ${#to_get[@]} -gt 0 ]; then
  wheels
  check
  say "done"
fi
if [ $clients = yes ]; then
  python_packages clients clients "tests with official clients"
  # dill, of datasets, looks for this name in the path
  python_packages verifiers verifiers/site-packages "tests with verifiers"
fi
[ $tidy = no ] || python_packages tidy tidy "clang-tidy"
[ $tools = no ] || python_packages tools tools "the site of docs/ and checks of containers and scripts"
