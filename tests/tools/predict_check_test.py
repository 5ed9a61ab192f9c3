#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/predict_check.py on a run folder that is written here, with the real `tlt simulate` and measured costs that are
written here too, so that nothing depends on the machine's load.

    predict_check_test.py BUILD/tlt
"""
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPTIONS = """[model]
path = "{root}/models/demo"
[data]
train_batch_size = 4
max_response_length = 64
[rollout]
n = 2
max_num_seqs = 8
[actor]
ppo_max_token_len_per_gpu = 4096
entropy_coeff = {entropy}
use_kl_loss = false
ppo_mini_batch_size = 0
ppo_epochs = {epochs}
[algorithm]
adv_estimator = "{estimator}"
use_kl_in_reward = false
[distillation]
teacher = ""
[speculative]
enable = {speculates}
drafters = {drafters}
"""
# The two responses of a group, 40 tokens each. No token follows the same one twice, so no draft is accepted.
SYMBOLS = "+-*/=,:>()\n"
OUTPUTS = ["".join(SYMBOLS[step * i % 11] for step in range(first, first + 4) for i in range(10)) for first in (1, 5)]
GRADIENT_SUM = 0.021  # seconds
# Measures nothing: a pass takes a millisecond, whatever its rows. A run is a copy of the one that is given as good.
PROGRAM = """#!{python}
import json, os, shutil, sys
words = sys.argv[1:]
with open("{log}", "a") as log:
    print(words[0], file=log)
if words[:2] == ["bench", "forward"]:
    assert words[-2:] == ["--threads", str(max(1, os.cpu_count() // 2))], words
    context = int(words[words.index("--context") + 1])
    assert words[words.index("--as") + 1] == "tree,trees,sequences", words
    passes = [("tree", 1, 1), ("tree", 64, 64), ("trees", 64, 2), ("sequences", 1, 1), ("sequences", 64, 1)]
    for kind, rows, tree_rows in passes:
        print(json.dumps({{"as": kind, "rows": rows, "tree_rows": tree_rows, "context": context,
                          "forward_seconds_p50": 0.9, "head_seconds_p50": 0.9, "forward_seconds_mean": 0.0008,
                          "head_seconds_mean": 0.0002}}))
elif words[:2] == ["bench", "train"]:
    print(json.dumps({{"train_tokens_per_second": 10000.0}}))
elif words[0] == "train":
    assert words[1].endswith("slow/options.toml") and words[3:] == ["--workers", "2"], words
    shutil.copytree("{good}", words[2].removeprefix("trainer.default_local_dir="))
else:
    os.execv("{program}", ["tlt", *words])
"""


def write_run(folder, drafters, seconds, groups_with_equal_scores=0, entropy=0.0, epochs=1,
              estimator="grpo"):
    (folder / "rollouts").mkdir(parents=True)
    options = OPTIONS.format(root=ROOT, speculates=str(bool(drafters)).lower(), drafters=json.dumps(drafters),
                             entropy=entropy, epochs=epochs, estimator=estimator)  # fmt: skip
    (folder / "options.toml").write_text(options)
    rows = []
    for step in (1, 2, 3):
        is_first = step == 1  # would be seen in each of the figures
        rows_of_step = ({"response_tokens": 20 if is_first else 40, "input": str(10 * step + group),
                         "output": output[: 20 if is_first else 40],
                         "score": 1.0 if group < groups_with_equal_scores else number}
                        for group in range(4) for number, output in enumerate(OUTPUTS))  # fmt: skip
        (folder / "rollouts" / f"{step:06}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows_of_step))
        rows.append({"step": step, "timing_s/step": 9.0 if is_first else seconds,
                     "timing_s/gen": 8.0 if is_first else 0.042, "rollout/idle_share": 0.5 if is_first else 0.0,
                     "rollout/workers": 2, "prompt_length/mean": 8.0, "response_length/mean": 40.0,
                     "response_length/max": 64.0})  # fmt: skip
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def check(program, *runs):
    return subprocess.run([sys.executable, ROOT / "tools/predict_check.py", *runs, "--program", program],
                          capture_output=True, text=True, check=False)  # fmt: skip


def error_of(output, what):
    line = next(line for line in output.splitlines() if what in line)
    return float(line.split()[-1].rstrip("%")) / 100


def main():
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        fake = folder / "tlt"
        log = folder / "log"
        fake.write_text(PROGRAM.format(python=sys.executable, program=pathlib.Path(sys.argv[1]).resolve(), log=log,
                                       good=folder / "good"))  # fmt: skip
        fake.chmod(0o755)
        # 4 groups of 2 on 2 workers: 42 passes, the prompts' included; 4 groups' tokens by two workers at 10,000 a second;
        # the sum of the gradients of 2.4 M parameters over a network of 1 GB/s, and the moments.
        write_run(folder / "good", [], 0.042 + 176 / 10000 + GRADIENT_SUM)
        ended = check(fake, folder / "good")
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "plain" in ended.stdout and abs(error_of(ended.stdout, "rollout, s")) <= 0.05, ended.stdout
        assert abs(error_of(ended.stdout, "step, s")) <= 0.1, ended.stdout
        # Two of the groups have no gradient, but with an entropy bonus or a greedy baseline; they have forward passes in
        # a second epoch.
        for number, (entropy, epochs, estimator, trained) in enumerate((
                (0.0, 1, "grpo", 88), (0.0, 2, "grpo", 88 + 88 / 3), (0.1, 1, "grpo", 176),
                (0.0, 1, "remax", 176))):  # fmt: skip
            run = folder / f"equal_{number}"
            seconds = 0.042 + trained / 10000 + GRADIENT_SUM
            write_run(run, [], seconds, groups_with_equal_scores=2, entropy=entropy, epochs=epochs,
                      estimator=estimator)
            ended = check(fake, run)
            assert abs(error_of(ended.stdout, "step, s")) <= 0.03, ended.stdout + ended.stderr
        write_run(folder / "slow", ["suffix", "eagle"], 1.0)
        ended = check(fake, folder / "slow")
        assert ended.returncode == 1 and error_of(ended.stdout, "step, s") < -0.5, ended.stdout + ended.stderr
        assert " tlt " in ended.stdout, ended.stdout
        write_run(folder / "suffix", ["suffix"], 1.0)
        ended = check(fake, folder / "suffix")
        assert " model-free " in ended.stdout, ended.stdout + ended.stderr
        # What counts is what the runs of the rounds took, each between two measurements.
        log.unlink()
        ended = check(fake, folder / "slow", "--rounds", "2")
        assert ended.returncode == 0 and abs(error_of(ended.stdout, "step, s")) <= 0.1, ended.stdout + ended.stderr
        called = [key for key, _ in itertools.groupby(log.read_text().split())]
        assert called == ["bench", "train", "bench", "train", "bench", "simulate"], called
        for missing in ("options.toml", "metrics.jsonl", "rollouts/000003.jsonl"):
            run = folder / ("no_" + pathlib.Path(missing).stem)
            write_run(run, [], 1.0)
            (run / missing).unlink()
            ended = check(fake, run)
            assert ended.returncode == 1 and missing in ended.stderr and ended.stderr.count("\n") == 1, ended.stderr
    print("predict_check: as expected")


if __name__ == "__main__":
    main()
