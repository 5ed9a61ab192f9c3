#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tests/on_card.sh COMMAND…: runs it if this machine has an NVIDIA card and the environment TLT_TRY_CUDA=1; otherwise
# says why not and ends with 77, which ctest reports as skipped.
set -euo pipefail
[ -e /dev/nvidiactl ] || { echo "skipped: this machine has no NVIDIA card"; exit 77; }
[ "${TLT_TRY_CUDA:-}" = 1 ] || { echo "skipped: TLT_TRY_CUDA=1 runs it on the card"; exit 77; }
exec "$@"
