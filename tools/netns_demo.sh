#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Emulates two workers on two hosts: each rank runs in its own network namespace, connected by a virtual cable. The ranks
# do not share a loopback interface, so a service that listens only there fails. Then one worker runs the same recipe
# alone; rollouts and weights of both runs must be identical.
#
#   sudo tools/netns_demo.sh [KEY=VALUE …]    two small steps of recipes/demo.toml with build/tlt; options that override it
#   sudo tools/netns_demo.sh -- COMMAND …     any other program that reads RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; no
#                                             comparison
#   sudo TIMEOUT=600 tools/netns_demo.sh      seconds to wait for a run (default 900)
#
# Needs root and iproute2. Removes everything it created; prints the logs if something fails.
set -eu

say() { echo "netns_demo: $*"; }
refuse() { echo "netns_demo: $*" >&2; exit 2; }

[ "$(id -u)" -eq 0 ] || refuse "network namespaces need root; type: sudo $0"
command -v ip >/dev/null || refuse "no ip program; type: apt-get install iproute2"
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
compare=yes
if [ "${1:-}" = -- ]; then
  compare=no
  shift
  [ $# -gt 0 ] || refuse "no command after --"
else
  set -- build/tlt train recipes/demo.toml trainer.total_training_steps=2 trainer.save_freq=2 trainer.test_freq=0 \
    trainer.val_before_train=false data.train_batch_size=8 data.max_response_length=128 rollout.n=4 \
    actor.ppo_max_token_len_per_gpu=1024 "$@"
fi
command -v "$1" >/dev/null || refuse "no program $1; type: make build"

name=tlt$$
net=10.231.77
workers=

# Invoked by the trap.
# shellcheck disable=SC2317
clean_up() {
  for worker in $workers; do kill "$worker" 2>/dev/null || true; done
  for rank in 0 1; do ip netns del "$name-$rank" 2>/dev/null || true; done
  rm -rf "$scratch"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

fail() {
  say "$*" >&2
  for log in "$scratch"/*.log; do
    say "$(basename "$log"):" >&2
    cat "$log" >&2
  done
  exit 1
}

ip netns add "$name-0" || refuse "this machine allows no network namespaces"
ip netns add "$name-1"
ip -n "$name-0" link add cable type veth peer name cable netns "$name-1"
for rank in 0 1; do
  ip -n "$name-$rank" addr add "$net.$((rank + 1))/24" dev cable
  ip -n "$name-$rank" link set lo up
  ip -n "$name-$rank" link set cable up
done

two_workers() {
  for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 MASTER_ADDR=$net.1 MASTER_PORT=29500 \
      timeout "${TIMEOUT:-900}" ip netns exec "$name-$rank" "$@" >"$scratch/rank$rank.log" 2>&1 &
    workers="$workers $!"
  done
  failed=no
  rank=0
  for worker in $workers; do
    code=0
    wait "$worker" || code=$?
    say "rank $rank at $net.$((rank + 1)): exit code $code"
    [ $code -eq 0 ] || failed=yes
    rank=$((rank + 1))
  done
  workers=
  [ $failed = no ] || fail "a rank failed"
}

# Bytes that crossed the cable, as counted by the kernel.
cable_bytes() {
  ip netns exec "$name-0" cat /sys/class/net/cable/statistics/tx_bytes \
    /sys/class/net/cable/statistics/rx_bytes 2>/dev/null | awk '{ sum += $1 } END { print sum }'
}

if [ $compare = no ]; then
  two_workers "$@"
  exit 0
fi

two_workers "$@" "trainer.default_local_dir=$scratch/two"
bytes=$(cable_bytes)
say "$bytes bytes crossed the cable"
timeout "${TIMEOUT:-900}" "$@" "trainer.default_local_dir=$scratch/one" >"$scratch/alone.log" 2>&1 || fail "one worker alone failed"

compared=0
for file in "$scratch"/one/rollouts/*.jsonl "$scratch"/one/checkpoints/step_*/policy/model.safetensors; do
  other=$scratch/two/${file#"$scratch"/one/}
  [ -s "$file" ] || fail "${file#"$scratch"/one/} is missing or empty"
  cmp "$file" "$other" || fail "${file#"$scratch"/one/} of two workers differs from that of one"
  compared=$((compared + 1))
done
[ "$compared" -ge 2 ] || fail "there was nothing to compare"
responses=$(cat "$scratch"/one/rollouts/*.jsonl | wc -l)
say "one worker and two workers on two networks: $responses responses and the weights are the same bytes ($compared files)"
