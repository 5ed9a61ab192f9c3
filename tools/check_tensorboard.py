#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the event files of run folders with TensorBoard's reader: they must have every value of metrics.jsonl.

    python tools/check_tensorboard.py runs/demo [RUN_FOLDER ...]

Needs the package tensorboard. Prints a line per folder; exit code 1 if any check fails.
"""
import json
import os
import struct
import sys

from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.util.tensor_util import make_ndarray

from _check_each import check_each


def float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def written(folder):
    """{(name, step): float32 value} of metrics.jsonl."""
    values = {}
    with open(os.path.join(folder, "metrics.jsonl")) as file:
        for line in file:
            row = json.loads(line)
            step = row.pop("step")
            values.update({(name, step): float32(value) for name, value in row.items()
                           if isinstance(value, (int, float)) and not isinstance(value, bool)})
    return values


def read(folder):
    """{(name, step): value} that `tensorboard --logdir FOLDER` shows."""
    runs = EventMultiplexer(tensor_size_guidance={"scalars": 0})
    runs.AddRunsFromDirectory(folder)
    runs.Reload()
    values = {}
    for run, names in runs.PluginRunToTagToContent("scalars").items():
        for name in names:
            for event in runs.Tensors(run, name):
                if (name, event.step) in values:
                    raise ValueError(f"{name} has two values at step {event.step}")
                values[name, event.step] = make_ndarray(event.tensor_proto).item()
    return values


def check(folder):
    want, got = written(folder), read(folder)
    if not want:
        raise ValueError("metrics.jsonl has no values")
    missing, extra = want.keys() - got.keys(), got.keys() - want.keys()
    if missing or extra:
        raise ValueError(f"missing in the event files: {sorted(missing)[:3]}; only in the event files: {sorted(extra)[:3]}")
    different = [key for key in want if got[key] != want[key] and not (got[key] != got[key] and want[key] != want[key])]
    if different:
        raise ValueError(f"{different[0]} is {got[different[0]]} and in metrics.jsonl {want[different[0]]}")
    steps = sorted({step for _, step in want})
    return f"{len(want)} values of {len({name for name, _ in want})} metrics, steps {steps[0]} to {steps[-1]}"


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__.strip())
        return 2
    return check_each(sys.argv[1:], check)


if __name__ == "__main__":
    sys.exit(main())
