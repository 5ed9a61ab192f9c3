#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A first run on a fresh Debian 12, from nothing but the wheel: by hand, as root, with a network and debootstrap.
#
#   make wheel && sudo tests/packages/chroot.sh dist/tlt_rl-*.whl [FOLDER]
#
# Debian 12 without recommended packages goes into FOLDER (default: a temporary one, removed at the end; one that is there
# is used again). In it: python3-venv by apt-get, `pip install` of the wheel, then recipes/demo.toml with two workers, cut
# to 10 steps. Prints the seconds of each part, and fails if there is a compiler or if pip and the run take more than
# 5 minutes (LIMIT=300).
set -eu

say() { echo "chroot: $*"; }
refuse() { echo "chroot: $*" >&2; exit 2; }

[ $# -ge 1 ] && [ -f "$1" ] || refuse "give a wheel; type: make wheel && sudo $0 dist/tlt_rl-*.whl"
[ "$(id -u)" -eq 0 ] || refuse "debootstrap and chroot need root; type: sudo $0 $*"
command -v debootstrap >/dev/null || refuse "no debootstrap; type: apt-get install debootstrap"
wheel=$(realpath "$1")
limit=${LIMIT:-300}

if [ $# -gt 1 ]; then
  root=$2
  [ "$(realpath -m "$root")" != / ] || refuse "FOLDER is this system itself; give an empty folder"
else
  root=$(mktemp -d)
  trap 'rm -rf --one-file-system "$root"' EXIT
fi
[ -e "$root/usr/bin/dpkg" ] || debootstrap --variant=minbase bookworm "$root" >/dev/null
mkdir -p "$root/root/wheel"
rm -f "$root"/root/wheel/*
cp "$wheel" "$root/root/wheel/"
# How this machine reaches its package registries.
cp /etc/resolv.conf "$root/etc/resolv.conf"
[ ! -f /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/pip.conf"
cp /etc/ssl/certs/ca-certificates.crt "$root/root/certificates.crt"

cat >"$root/root/first_run.sh" <<'SCRIPT'
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get -q update >/dev/null
apt-get -q -y install --no-install-recommends python3-venv >/dev/null
for compiler in cc gcc g++ clang make cmake; do
  ! command -v $compiler || { echo "there is a $compiler"; exit 1; }
done
cd /root
rm -rf venv runs
start=$(date +%s)
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --no-cache-dir wheel/*.whl
installed=$(date +%s)
venv/bin/tlt --version
venv/bin/tlt train recipes/demo.toml --workers 2 trainer.total_training_steps=10 >train.log 2>&1 ||
  { tail -n 20 train.log; exit 1; }
ended=$(date +%s)
grep -A 3 'Run summary' train.log
echo "pip install $((installed - start)) s, 10 steps of the demo $((ended - installed)) s"
[ $((ended - start)) -le "$LIMIT" ] || { echo "more than $LIMIT s"; exit 1; }
SCRIPT
say "Debian $(cat "$root/etc/debian_version") in $root"
# A mount namespace of its own: nothing stays mounted.
LIMIT=$limit unshare --mount --pid --fork sh -c '
  mount -t proc proc "$1/proc"
  mount --rbind /dev "$1/dev"
  mount --make-rslave "$1/dev"
  exec chroot "$1" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LIMIT="$LIMIT" \
    PIP_CERT=/root/certificates.crt sh /root/first_run.sh
' _ "$root"
say "passed"
