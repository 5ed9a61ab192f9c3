#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Two workers on two hosts, on one machine: each rank runs in a network namespace of its own, and the two are joined by a
# virtual cable. Neither sees the other's loopback, so whatever listens there only would fail here.
#
#   sudo tools/netns_demo.sh                  two steps of the demo recipe with build/tlt
#   sudo tools/netns_demo.sh COMMAND …        any other program that reads RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
#   TIMEOUT=600 sudo -E tools/netns_demo.sh   seconds to wait (default 900)
#
# Needs root and iproute2. Leaves nothing behind; the logs of both ranks are printed if one fails.
set -eu

say() { echo "netns_demo: $*" >&2; }

[ "$(id -u)" -eq 0 ] || { say "network namespaces need root; type: sudo $0"; exit 2; }
command -v ip >/dev/null || { say "no ip program; install iproute2"; exit 2; }

cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- build/tlt train recipes/demo.toml trainer.total_training_steps=2
command -v "$1" >/dev/null || { say "no program $1; type: make build"; exit 2; }

name=tlt$$
net=10.231.77
logs=$(mktemp -d)
workers=

clean_up() {
  for worker in $workers; do kill "$worker" 2>/dev/null || true; done
  for rank in 0 1; do ip netns del "$name-$rank" 2>/dev/null || true; done
  rm -rf "$logs"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

ip netns add "$name-0" || { say "this machine allows no network namespaces"; exit 2; }
ip netns add "$name-1"
ip -n "$name-0" link add cable type veth peer name cable netns "$name-1"
for rank in 0 1; do
  ip -n "$name-$rank" addr add "$net.$((rank + 1))/24" dev cable
  ip -n "$name-$rank" link set lo up
  ip -n "$name-$rank" link set cable up
done

for rank in 0 1; do
  RANK=$rank WORLD_SIZE=2 MASTER_ADDR=$net.1 MASTER_PORT=29500 \
    timeout "${TIMEOUT:-900}" ip netns exec "$name-$rank" "$@" >"$logs/$rank" 2>&1 &
  workers="$workers $!"
done

failed=0
rank=0
for worker in $workers; do
  code=0
  wait "$worker" || code=$?
  say "rank $rank at $net.$((rank + 1)) ended with exit code $code"
  [ $code -eq 0 ] || failed=1
  rank=$((rank + 1))
done
workers=
if [ $failed -ne 0 ]; then
  for rank in 0 1; do
    say "log of rank $rank:"
    cat "$logs/$rank" >&2
  done
  exit 1
fi
say "both ranks finished"
