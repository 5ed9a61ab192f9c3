#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tools/gpu_check.sh [--device cuda|far] [--only PART] [--seconds N] [--bundle FILE] [--torch FOLDER] [--out FOLDER]:
# everything a machine with a card can tell, in under ten minutes and without a network: libraries, doctor, tests of the
# kernels and of the invariants, speed. It needs the bundle of `make gpu-bundle`, Python 3, and PyTorch 2.11.0 for CUDA 13.
#   --device far   the same on the device of the tests that behaves like a card: a test of this script
#   --seconds      the time limit of each part, instead of its own
#   --torch        PyTorch's folder; otherwise that of python3
# Each part has a time limit and, as soon as it has ended, appends a line to report.jsonl and its output to log.txt in the
# folder (--out, or $OUT, or gpu_report). A part that fails stops nothing. Exit code 1: a part failed.
# shellcheck disable=SC2329  # the parts are called by name
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
device=cuda only='' seconds='' bundle=$here/.gpu/bundle.tar.xz torch='' out=${OUT:-gpu_report} inside=''
while [ $# -gt 0 ]; do
  case $1 in
    --device) device=${2:?} ;;
    --only) only=${2:?} ;;
    --seconds) seconds=${2:?} ;;
    --bundle) bundle=${2:?} ;;
    --torch) torch=${2:?} ;;
    --out) out=${2:?} ;;
    --inside) inside=${2:?} ;;  # a part's own process
    *) echo "gpu_check: unknown option '$1'; give --device, --only, --seconds, --bundle, --torch or --out" >&2; exit 2 ;;
  esac
  shift 2
done
# Seconds that each part may take; together less than ten minutes.
parts=(libraries:15 doctor:20 products:40 ops:40 invariants:100 memcheck:40 decode:100 graphs:30 strategies:50
  train:70 peer:50)
readonly kSkipped=77
case $device in cuda | far) ;; *) echo "gpu_check: no device '$device'; give cuda or far" >&2; exit 2 ;; esac
if [[ ! $seconds =~ ^[0-9.]*$ ]]; then echo "gpu_check: --seconds is '$seconds'; give a number" >&2; exit 2; fi
if [ -n "$only" ] && [[ " ${parts[*]}" != *" $only:"* ]]; then
  echo "gpu_check: no part '$only'; give one of: ${parts[*]%%:*}" >&2
  exit 2
fi

skip() { echo "skipped: $*"; exit "$kSkipped"; }
on_card() { [ "$device" = cuda ] || skip "the device far has none"; }
tlt() { if [ "$device" = far ]; then bin/tlt_far "$@"; else bin/tlt "$@"; fi; }
if [ "$device" = far ]; then shape=tiny batches=1,2 tokens=8; else shape=7b batches=1,8,32,128,256 tokens=64; fi

part_libraries() {  # names that no library has
  local files=(bin/tlt bin/tlt_far bin/tlt_ops_test bin/tlt_invariant_test) file missing=0
  ldd --version | head -n 1
  for file in "${files[@]}"; do ldd -r "$file" 2>&1 | grep -E 'not found|undefined symbol' && missing=1; done
  if [ -e "$torch/lib/libtorch_cuda.so" ]; then
    LD_PRELOAD=$torch/lib/libtorch_cuda.so ldd -r bin/libtlt_cuda.so 2>&1 | grep -E 'not found|undefined symbol' && missing=1
  else
    echo "no libtorch_cuda.so in $torch/lib: the plug-in's names are not looked for"
    [ "$device" = far ] || missing=1
  fi
  return "$missing"
}

part_doctor() { if [ "$device" = cuda ]; then nvidia-smi; fi; tlt doctor; }
part_products() {  # does a row's result depend on the other rows, for every weight's shape
  local models=(Qwen2.5-7B Qwen2.5-32B) model code=0  # names of tlt simulate
  [ "$device" = cuda ] || models=(models/demo)
  for model in "${models[@]}"; do tlt doctor --device "$device" --products "$model" || code=1; done
  return "$code"
}

run_cases() {  # run_cases PROGRAM [FILTER]: the lines of device_cases.txt; at least one test runs in each
  local program filter code=0 log
  while read -r program filter; do
    [ "$program" = "$1" ] && [[ $filter != *EarlyGradients* && $filter != *SpotTraining* ]] || continue  # those start a program in the source tree
    [ -z "${2:-}" ] || [[ $filter == "$2" ]] || continue
    echo "== $filter"
    log=$("bin/$program" --gtest_brief=1 --gtest_filter="$filter" 2>&1) || code=1
    echo "$log"
    grep -q '\[  PASSED  \] [1-9]' <<<"$log" || { echo "no test passed"; code=1; }
  done <bin/device_cases.txt
  return "$code"
}
part_ops() {
  if [ "$device" = far ]; then export GTEST_TOTAL_SHARDS=8 GTEST_SHARD_INDEX=7; fi  # all of them are a test of their own
  run_cases tlt_ops_test
}
part_invariants() { if [ "$device" = far ]; then run_cases tlt_invariant_test '*CudaEqualsCpu*'; else run_cases tlt_invariant_test; fi; }

part_memcheck() {  # of the kernels: attention, rows and sampling, in decoding and training
  on_card
  command -v compute-sanitizer >/dev/null || skip "no compute-sanitizer"
  local tool code=0
  for tool in memcheck racecheck; do
    echo "== $tool"
    compute-sanitizer --tool "$tool" --error-exitcode 9 bin/tlt_invariant_test --gtest_brief=1 \
      --gtest_filter='*CudaEqualsCpu.TokensUpTo*:*CudaEqualsCpu.WeightsAfter*' || code=1
  done
  return "$code"
}

part_decode() { tlt bench decode --shape "$shape" --device "$device" --batch "$batches" --new-tokens "$tokens" --repeat 1; }
part_graphs() {
  local sizes=(--batch 64 --responses 128 --prompt-tokens 64 --new-tokens "$tokens")
  [ "$device" = cuda ] || sizes=(--batch 4 --responses 8 --prompt-tokens 9 --new-tokens "$tokens")
  tlt bench graphs --shape "$shape" --device "$device" "${sizes[@]}"
}
part_strategies() {  # draft tokens that cost nothing, of which 6 are accepted
  local many=8
  [ "$device" = cuda ] || many=2
  tlt bench rollout --shape "$shape" --device "$device" --ways off --simulate-acceptance 6 --batch "1,$many" --responses "$many" \
    --samples 1 --max-new-tokens "$tokens" --ignore-eos --repeat 1
}
part_train() {
  tlt bench train --shape "$([ "$device" = far ] && echo tiny || echo 60m)" --device "$device" --prompts 1 --samples 2 \
    --prompt-tokens 16 --new-tokens "$tokens" --repeat 1 &&
    tlt train recipes/demo.toml trainer.device="$device" trainer.total_training_steps=1 rollout.n=2 data.train_batch_size=2 \
      data.max_response_length=32 'data.val_files=[]' trainer.test_freq=0 trainer.default_local_dir=run
}
part_peer() { on_card; python3 tools/_gpu_peer.py "$batches"; }

append() {  # append PART EXIT-CODE SECONDS LIMIT: the part's line of the report; its output is in part.log
  { echo "==== $1"; cat part.log; } >>"$out/log.txt"
  python3 - "$out" "$device" "$@" <<'PYTHON'
import json, sys
out, device, part, code, seconds, limit = sys.argv[1:]
status = {"0": "passed", "77": "skipped", "124": "out of time", "137": "out of time"}.get(code, "failed")
lines = open("part.log", errors="replace").read().splitlines()
results = []
for line in lines:
    if line.startswith("{"):
        try: results.append(json.loads(line))
        except ValueError: pass
row = {"part": part, "device": device, "status": status, "exit_code": int(code), "seconds": float(seconds),
       "limit_seconds": float(limit), "results": results, "log_end": [line[:300] for line in lines[-25:]]}
with open(f"{out}/report.jsonl", "a") as file: file.write(json.dumps(row) + "\n")
print(f"{part:<12}{status:<13}{float(seconds):7.1f} s  {lines[-1][:90] if lines else ''}", flush=True)
PYTHON
}

if [ -n "$inside" ]; then "part_$inside"; exit; fi
[ -e "$bundle" ] || { echo "gpu_check: no bundle '$bundle'; give --bundle, or type: make gpu-bundle" >&2; exit 2; }
[ -n "$torch" ] || torch=$(python3 -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])' 2>/dev/null)
[ -e "$torch/lib/libtorch_cpu.so" ] || { echo "gpu_check: no PyTorch in '$torch'; give --torch its folder" >&2; exit 2; }
torch=$(cd "$torch" && pwd)
out=$(mkdir -p "$out" && cd "$out" && pwd) || exit 2
: >"$out/report.jsonl"
: >"$out/log.txt"
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
tar -C "$home" -xf "$bundle" || exit 2
export PATH LD_LIBRARY_PATH=$torch/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} TLT_TEST_DEVICE=$device TLT_TRY_CUDA=1
cd "$home/tlt-gpu" || exit 2
failed=0
for entry in "${parts[@]}"; do
  part=${entry%%:*} limit=${entry##*:}
  [ -z "$only" ] || [ "$part" = "$only" ] || continue
  [ "$device" = cuda ] || limit=$((limit * 10))  # a machine that runs tests may be busy
  limit=${seconds:-$limit}
  start=$(date +%s.%N)
  timeout --kill-after=5 "$limit" bash tools/gpu_check.sh --inside "$part" --device "$device" --torch "$torch" >part.log 2>&1
  code=$?
  append "$part" "$code" "$(echo "$start $(date +%s.%N)" | awk '{print $2 - $1}')" "$limit"
  [ $code -eq 0 ] || [ $code -eq $kSkipped ] || failed=1
done
exit $failed
