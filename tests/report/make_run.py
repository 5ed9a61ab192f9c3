# SPDX-License-Identifier: Apache-2.0
"""Makes run folders without a run, with the metrics, responses and timeline of one.

    make_run.py FOLDER [--steps 1000] [--seed 0]
"""
import argparse
import json
import math
import random
from pathlib import Path

# What a page must show as text and never run.
HOSTILE = ("</script><script>window.hacked=1</script>", "<img src=x onerror=window.hacked=1>", "<!--<script>",
           "{{data}}", "\u2028\u2029 \u202e \ufffd é 漢字", "<svg/onload=window.hacked=1>", "'\"`${window.hacked=1}")
ARMS = ("off", "suffix/1_1_2", "suffix/8_4_8", "suffix/3_1_4", "eagle/1_1_2", "eagle/5_2_16", "eagle/8_4_48",
        "mixed/5_2_16", "ngram/3_1_4")


def metrics_of(step, rng, arms):
    done = step / 1000
    score = 0.4 + 0.4 * (1 - math.exp(-4 * done)) + rng.gauss(0, 0.03)
    gen, update = 20 * (1 + 0.4 * rng.random()), 15 + rng.random()
    median = 200 + 400 * done + rng.gauss(0, 20)
    idle = gen * 0.3 * rng.random()
    used, early = idle * 0.4, idle * 0.35
    row = {
        "main/score": score, "main/tokens_per_second": 9000 + rng.gauss(0, 500), "critic/score/mean": score,
        "critic/score/max": 1.0, "critic/score/min": -0.5, "response_length/mean": median * 1.3,
        "response_length/p50": median, "response_length/p90": median * 2.6, "response_length/p99": median * 4.1,
        "response_length/max": min(4096.0, median * 6), "response_length/min": 12.0, "response_length/limit": 4096.0,
        "response_length/clip_ratio": max(0.0, rng.gauss(0.05, 0.02)), "rollout/tokens": float(int(median * 128)),
        "rollout/responses": 128.0, "rollout/tokens_per_second": 9000 + rng.gauss(0, 500),
        "rollout/spec_accept_length": 1.5 + 2 * done + rng.gauss(0, 0.2), "rollout/spec_accept_rate": 0.6,
        "rollout/accept_length_by_position/0-512": 2.2 + done, "rollout/accept_length_by_position/512-2K": 2.6 + done,
        "rollout/accept_length_by_position/2K-8K": 3.1 + done, "rollout/idle_share": idle / gen / 2,
        "rollout/half_empty_share": 0.4, "rollout/tail_share": 0.2, "rollout/plain_seconds": gen * 1.4,
        "rollout/frac_reward_zero_std": 0.2 + 0.1 * rng.random(), "timing_s/gen": gen, "timing_s/update_actor": update,
        "timing_s/reward": 0.4 * rng.random(), "timing_s/ref": 2.0, "timing_s/drafter": 0.2,
        "timing_s/step": gen + update + 3, "perf/throughput": 2000.0, "actor/grad_norm": abs(rng.gauss(0.2, 0.05)),
        "actor/entropy": 0.3 * math.exp(-done) + rng.gauss(0, 0.01), "actor/kl_loss": 0.02 * done, "actor/lr": 1e-6,
        "actor/pg_loss": rng.gauss(0, 1e-3), "actor/ppo_kl": 0.0, "actor/pg_clipfrac": 0.01,
        "drafter/idle_seconds": idle,
        "drafter/used_seconds": used, "drafter/gradient_seconds": early, "drafter/reference_seconds": 0.0,
        "drafter/lost_seconds": idle - used - early, "drafter/acceptance_length/before": 1.2 + 2 * done,
        "drafter/top1_accuracy/before": 0.4 + 0.4 * done, "drafter/top3_accuracy/before": 0.6 + 0.3 * done,
        "speculation/regret": 0.1, "speculation/step_share": 0.6,
    }
    for worker in range(2):
        for part, value in (("idle", idle), ("used", used), ("gradient", early), ("lost", idle - used - early)):
            row[f"drafter/worker_{worker}/{part}_seconds"] = value / 2
    for depth in range(1, 9):
        row[f"speculation/eagle/accept_rate_pos_{depth}"] = (0.7 + 0.2 * done) ** depth
        row[f"speculation/suffix/accept_rate_pos_{depth}"] = 0.8 ** depth
    for i, arm in enumerate(ARMS):
        arms[arm] += int(rng.random() * 100 * (1 + (i + step // 150) % 4))
        row[f"speculation/arm/{arm}/steps"] = float(arms[arm])
        row[f"speculation/arm/{arm}/accept_length"] = 2 + rng.random()
        row[f"speculation/arm/{arm}/tokens_per_second"] = 5000 + 1000 * rng.random()
    for i in range(40):
        row[f"extra/metric_{i}"] = rng.random()
    return row


def response(step, i, rng):
    text = rng.choice(HOSTILE) + "".join(f" step {k}: {k}+{i}={k + i}\n" for k in range(rng.randint(5, 60)))
    row = {"input": f"Problem {i // 8}: what is {i // 8} + {step}? {rng.choice(HOSTILE)}", "output": text,
           "gts": str(i // 8 + step), "score": float(rng.random() < 0.5), "step": step, "prompt_id": i // 8,
           "sample": i % 8,
           "finish_reason": "stop", "response_tokens": len(text) // 3, "data_source": "sums",
           "advantage": rng.gauss(0, 1), "format": 1.0}
    if i % 8 == 0:
        row["token_texts"] = [text[k:k + 3] for k in range(0, len(text), 3)]
        row["token_logprobs"] = [round(-rng.expovariate(2), 4) for _ in row["token_texts"]]
        row["accepted"] = [rng.random() < 0.5 for _ in row["token_texts"]]
    return row


def events_of(step, start):
    for worker in range(2):
        end = start + 2e7 - worker * 6e6
        yield worker, 0, f"step {step}", start, end
        at = end
        while at < start + 2e7:
            yield worker, 2, f"draft step {step}", at, at + 2e5
            at += 2.1e5
        yield worker, 1, f"step {step}", start + 2.05e7, start + 3.5e7


def write_lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def make_run(folder, steps=1000, seed=0):
    folder, rng, arms = Path(folder), random.Random(seed), dict.fromkeys(ARMS, 0)
    rows = []
    for step in range(steps + 1):
        row = {"step": step} | (metrics_of(step, rng, arms) if step else {})
        if step % 10 == 0:
            row["main/validation_score"] = 0.4 + 0.35 * (1 - math.exp(-4 * step / 1000)) + rng.gauss(0, 0.01)
            row |= {"val-aux/reward/mean": row["main/validation_score"], "val-aux/reward/standard_error": 0.015,
                    "timing_s/testing": 8.0, "val-core/sums/reward/mean@1": row["main/validation_score"]}
        rows.append(row)
    write_lines(folder / "metrics.jsonl", rows)
    for step in sorted({1, *range(steps // 20 or 1, steps + 1, steps // 20 or 1)}):
        write_lines(folder / f"rollouts/{step:06}.jsonl", (response(step, i, rng) for i in range(128)))
    for step in range(0, steps + 1, max(1, steps // 5)):
        write_lines(folder / f"validation/{step:06}.jsonl", (response(step, i, rng) for i in range(64)))
    events = [{"name": "thread_name", "ph": "M", "pid": worker, "tid": tid, "args": {"name": lane}}
              for worker in range(2) for tid, lane in enumerate(("rollout", "update", "draft training"))]
    for step in range(1, steps + 1):
        events += [{"name": name, "ph": "X", "pid": worker, "tid": tid, "ts": start, "dur": end - start}
                   for worker, tid, name, start, end in events_of(step, step * 3.6e7)]
    (folder / "timeline.json").write_text("[\n" + ",\n".join(map(json.dumps, events)) + "\n]\n")
    (folder / "options.toml").write_text(f"[actor.optim]\nlr = {1e-6 * (seed + 1)}\n[trainer]\nseed = {seed}\n")
    (folder / "run.json").write_text('{"command": "train", "started": "2026-01-01T00:00:00"}')
    (folder / "summary.txt").write_text("Run summary\n" + HOSTILE[0] + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Makes a run folder without a run.")
    parser.add_argument("folder")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    make_run(given.folder, given.steps, given.seed)
