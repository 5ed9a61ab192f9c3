#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares tuners by the speed of the same rollouts.

The methods are non-speculative decoding (off), every strategy of the default tuner fixed, BEG, the
default tuner, and the default tuner of another build of the program (--old). Each round runs both
programs, one batch size after the other, so that changes of the machine's speed affect all methods.
A speedup is relative to `off` of the same round and program. `tlt bench rollout` fails unless all
methods give the same tokens; the number of tokens must be the same in both programs.

Prints the lines of `tlt bench rollout` to standard output and the tables to standard error.
"""

import argparse
import collections
import json
import statistics
import subprocess
import sys

STRATEGIES = ["8_4_48", "8_4_32", "8_4_16", "8_4_8", "1_1_2", "3_1_4", "6_1_7", "10_8_64"]


def models(arguments):
    """The flags, the tuner's way, and the drafters of each model."""
    result = {}
    if arguments.drafter:
        result["demo"] = (
            ["--model", "models/demo", "--prompts", "countdown:seed=7,size=256,four=0.1",
             "--drafter", arguments.drafter], "auto", ["suffix", "eagle"])
    result["60m"] = (["--shape", "60m", "--simulate-acceptance", "4", "--ignore-eos",
                      "--max-new-tokens", str(arguments.tokens)], "simulated", ["simulated"])
    return {name: result[name] for name in arguments.models or result}


def run(program, flags, ways, batch, arguments):
    command = [program, "bench", "rollout", *flags, "--batch", str(batch), "--ways",
               ",".join(ways), "--repeat", str(arguments.repeat), "--dtype", "bfloat16",
               "--threads", str(arguments.threads)]
    if arguments.responses:
        command += ["--responses", str(arguments.responses)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    for line in lines:
        print(json.dumps({**line, "program": program}), flush=True)
    return {line["way"]: line for line in lines}


def compare(name, flags, tuner, drafters, arguments):
    fixed = [f"{drafter}:{strategy}" for drafter in drafters for strategy in arguments.strategies]
    speedups = collections.defaultdict(list)  # by batch and method
    speeds = collections.defaultdict(list)
    for _ in range(arguments.rounds):
        for batch in arguments.batch:
            new = run(arguments.new, flags, ["off", *fixed, tuner + ":BEG", tuner], batch,
                      arguments)
            speeds[batch].append(new["off"]["tokens_per_second"])
            for way, line in new.items():
                speedups[batch, way] += line["speedups"]
            if arguments.old:
                old = run(arguments.old, flags, ["off", tuner], batch, arguments)
                if old["off"]["tokens"] != new["off"]["tokens"]:
                    sys.exit(f"{name}, batch {batch}: the programs give different tokens")
                speedups[batch, "old"] += old[tuner]["speedups"]
    print(f"\n{name}, medians of {arguments.rounds * arguments.repeat} rounds\n\n"
          "| batch | off, tokens/s | best fixed strategy | BEG | tuner | old tuner |\n"
          "|---|---|---|---|---|---|", file=sys.stderr)
    for batch in arguments.batch:
        def median(way):
            return statistics.median(speedups[batch, way]) if speedups[batch, way] else None
        best = max(fixed, key=median)
        cells = [f"{median(best):.2f} (`{best}`)"]
        for way in [tuner + ":BEG", tuner, "old"]:
            cells.append("" if median(way) is None else f"{median(way):.2f}")
        print(f"| {batch} | {statistics.median(speeds[batch]):.0f} | {' | '.join(cells)} |",
              file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--new", default="build/tlt", help="the program")
    parser.add_argument("--old", help="the program of an earlier commit; without it: no column")
    parser.add_argument("--drafter", help="draft model of models/demo; without it: no demo")
    parser.add_argument("--models", nargs="*", choices=["demo", "60m"], help="default: all")
    parser.add_argument("--batch", nargs="*", type=int, default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--strategies", nargs="*", default=STRATEGIES)
    parser.add_argument("--rounds", type=int, default=4, help="runs of each program")
    parser.add_argument("--repeat", type=int, default=2, help="measured rounds of a run")
    parser.add_argument("--responses", type=int, default=0, help="of a round; 0: by batch size")
    parser.add_argument("--tokens", type=int, default=256, help="of a response of the 60m model")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    for name, (flags, tuner, drafters) in models(arguments).items():
        compare(name, flags, tuner, drafters, arguments)


if __name__ == "__main__":
    main()
