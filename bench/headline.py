#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same RL steps with several ways to decode: what speculation gains where it pays.

Makes the model by recipes/headline_sft.toml, once, and then runs recipes/headline.toml with each way,
a few steps of one way after those of another, so that changes of the machine's speed affect all.
Every way must give the same rollouts and the same weights, bit for bit, or this ends with an error.

  plain        no speculation
  model_free   drafts from a suffix tree over the responses: no draft model (the paper's TLT-Base)
  static       an EAGLE draft model with one strategy for all steps
  full         EAGLE and suffix drafts, chosen for each step; the draft model learns on idle workers
  full_early   the same, and idle workers compute gradients of finished groups

An interrupted run continues with the same command. Writes OUT/summary.json and prints a table.
"""

import argparse
import collections
import hashlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SFT, RECIPE = ROOT / "recipes/headline_sft.toml", ROOT / "recipes/headline.toml"
MODEL = pathlib.Path("runs/headline_sft/policy")  # in RECIPE
LATE = "actor.early_gradients=false"
WAYS = {
    "plain": ["speculative.enable=false", LATE],
    "model_free": ['speculative.drafters=["suffix"]', LATE],
    "static": ['speculative.drafters=["eagle"]', LATE,
               "speculative.bs_threshold=100000", "speculative.eagle.tune_algorithm=BEG",
               'speculative.eagle.mab_configs=["3_1_4"]'],
    "full": [LATE],
    "full_early": [],
}
NEEDED_BYTES = 4 << 30  # checkpoints and draft buffers of all ways


def run(*command):
    done = subprocess.run([str(word) for word in command], check=False)
    if done.returncode != 0:
        sys.exit(f"headline: {' '.join(map(str, command))} ended with code {done.returncode}; "
                 "the same command continues the run")


def folder_of(arguments, way, seed):
    return arguments.out / f"seed_{seed}" / way


def train(arguments, way, seed, steps):
    validation = []
    if way == arguments.ways[0]:  # the weights are the same for all ways
        is_last = steps == arguments.steps
        validation = ["trainer.val_before_train=true",
                      f"trainer.test_freq={arguments.steps if is_last else 0}"]
    run(arguments.program, "train", RECIPE, f"trainer.default_local_dir={folder_of(arguments, way, seed)}",
        f"trainer.seed={seed}", f"trainer.total_training_steps={steps}",
        *validation, *WAYS[way], "--workers", arguments.workers)


def sha256_of(parts):
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def rollouts_sha256(folder):
    def lines():
        for path in sorted((folder / "rollouts").glob("*.jsonl")):
            for line in path.read_text().splitlines():
                row = json.loads(line)
                yield json.dumps([row["step"], row["input"], row["output"], row["score"]]).encode()
    return sha256_of(lines())


def weights_sha256(folder, steps):
    path = folder / f"checkpoints/step_{steps:06}/policy/model.safetensors"
    return sha256_of([path.read_bytes()])


def idle_of(row):
    total = row["rollout/idle_share"] * row["rollout/worker_seconds"]
    idle = {"drafter": row.get("drafter/used_seconds", 0.0),
            "gradients": row.get("rollout/early_gradient_seconds", 0.0)}
    return {"total": total, **idle, "lost": max(0.0, total - sum(idle.values()))}


def rows_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def steps_of(folder):
    return [{"rollout_seconds": row["timing_s/gen"],
             "update_seconds": row["timing_s/update_actor"],
             "step_seconds": row["timing_s/step"],
             "plain_seconds": row.get("rollout/plain_seconds", row["timing_s/gen"]),
             "acceptance_length": row.get("rollout/spec_accept_length", 1.0),
             "acceptance_length_by_position": {
                 name.rsplit("/", 1)[1]: value for name, value in row.items()
                 if name.startswith("rollout/accept_length_by_position/")},
             "idle": idle_of(row), "score": row["critic/score/mean"],
             "response_length": {name: row[f"response_length/{name}"]
                                 for name in ("mean", "p50", "p99", "max", "clip_ratio")}}
            for row in rows_of(folder) if "timing_s/gen" in row]


def summary_of(arguments, seed, steps):
    ways = {}
    for way in arguments.ways:
        folder = folder_of(arguments, way, seed)
        done = len(steps_of(folder))
        if done != steps:
            sys.exit(f"headline: {folder} has {done} steps and {steps} are asked for; give "
                     f"--steps {done}, or --out another folder")
        ways[way] = {"steps": steps_of(folder), "rollouts_sha256": rollouts_sha256(folder),
                     "weights_sha256": weights_sha256(folder, steps)}
    rows = rows_of(folder_of(arguments, arguments.ways[0], seed))
    held_out = {row["step"]: row["main/validation_score"]
                for row in rows if "main/validation_score" in row}
    return {"seed": seed, "held_out": held_out, "ways": ways}


def check_equal(summary):
    for what in ("rollouts_sha256", "weights_sha256"):
        values = {way: found[what] for way, found in summary["ways"].items()}
        if len(set(values.values())) > 1:
            sys.exit(f"headline: {what} differs between the ways: {values}; this is a bug")


def seconds(summaries, way, key, first=0):
    return sum(step[key] for summary in summaries for step in summary["ways"][way]["steps"][first:])


def print_table(summaries, ways, steps):
    late = steps // 2
    print(f"\n{steps} steps, {len(summaries)} seed(s); speedups against plain: all steps "
          f"(last {steps - late})\n\n"
          "| way | rollout, s | update, s | step, s | rollout speedup | step speedup | "
          "estimated rollout speedup | acceptance length | idle time used |\n"
          "|---|---|---|---|---|---|---|---|---|")
    count = steps * len(summaries)
    for way in ways:
        all_steps = [step for summary in summaries for step in summary["ways"][way]["steps"]]
        cells = [f"{seconds(summaries, way, key) / count:.1f}"
                 for key in ("rollout_seconds", "update_seconds", "step_seconds")]
        for key in ("rollout_seconds", "step_seconds"):
            speedup = [seconds(summaries, "plain", key, first) / seconds(summaries, way, key, first)
                       for first in (0, late)]
            cells.append(f"{speedup[0]:.2f}x ({speedup[1]:.2f}x)")
        estimate = (seconds(summaries, way, "plain_seconds") /
                    seconds(summaries, way, "rollout_seconds"))
        cells.append(f"{estimate:.2f}x")
        cells.append(f"{statistics.mean(s['acceptance_length'] for s in all_steps[late:]):.2f}")
        idle = collections.Counter()
        for step in all_steps:
            idle.update(step["idle"])
        cells.append(f"{1 - idle['lost'] / max(idle['total'], 1e-9):.0%}")
        print(f"| {way} | {' | '.join(cells)} |")


def draw(summary, picture):
    script = pathlib.Path(__file__).with_name("headline_picture.py")
    for python in (sys.executable, "/usr/bin/python3"):  # the second has Debian's packages
        found = subprocess.run([python, "-c", "import matplotlib"], stderr=subprocess.DEVNULL)
        if found.returncode == 0:
            run(python, script, summary, picture)
            print(picture)
            return
    print(f"for a picture: setup/setup.sh --picture; {script} {summary} {picture}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/tlt")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/headline"))
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=list(WAYS))
    parser.add_argument("--steps", type=int, default=int(os.environ.get("HEADLINE_STEPS", "30")),
                        help="RL steps of each way (default: HEADLINE_STEPS, or 30)")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--turn", type=int, default=5, help="steps of a way before the next one")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    if "plain" not in arguments.ways:
        parser.error("argument --ways: plain is what the others are compared with")
    arguments.out.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(arguments.out).free
    if free < NEEDED_BYTES:
        sys.exit(f"headline: {arguments.out} has {free >> 20} MiB free and needs "
                 f"{NEEDED_BYTES >> 20} MiB for checkpoints; make room, or give --out another disk")
    if not (MODEL / "config.json").exists():
        run(arguments.program, "sft", SFT)  # one worker with all cores is the fastest
    for seed in arguments.seeds:
        for done in range(0, arguments.steps, arguments.turn):
            for way in arguments.ways:
                train(arguments, way, seed, min(done + arguments.turn, arguments.steps))
    summaries = [summary_of(arguments, seed, arguments.steps) for seed in arguments.seeds]
    for summary in summaries:
        check_equal(summary)
    path = arguments.out / "summary.json"
    path.write_text(json.dumps(summaries[0] if len(summaries) == 1 else summaries, indent=1) + "\n")
    print_table(summaries, arguments.ways, arguments.steps)
    for summary in summaries:
        scores = ", ".join(f"{score:.3f} after {step} steps"
                           for step, score in summary["held_out"].items())
        print(f"\nseed {summary['seed']}: held-out score {scores}")
    print(f"\nsame rollouts and same weights with every way; {path}")
    draw(path, arguments.out / "headline.svg")


if __name__ == "__main__":
    main()
