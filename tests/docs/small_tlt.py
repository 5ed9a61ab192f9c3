#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`tlt` for the test of the commands in docs/: the same command with a few small steps. TLT_REAL is the program."""
import os
import sys

# Largest values of options and flags, given or not.
STEP = {"data.train_batch_size": 2, "data.train_max_samples": 16, "data.max_response_length": 16,
        "data.val_max_samples": 2, "rollout.n": 2, "rollout.max_num_seqs": 4, "rollout.kv_memory_bytes": 1 << 25,
        "rollout.val_kwargs.n": 2, "speculative.train.batch_size": 2, "trainer.threads": 1}  # fmt: skip
RECIPE_COMMANDS = ("train", "sft", "dpo", "draft")
SFT = {name: STEP[name] for name in STEP if name != "data.max_response_length"}
EVAL = {name: STEP[name] for name in STEP if not name.startswith("speculative")}
STEPS, STEPS_GIVEN = 1, 2
SIMULATED = {"workers": 2, "total_training_steps": 1, "train_batch_size": 2, "n": 2}
FLAGS = {
    ("generate",): {"--max-new-tokens": 16, "--samples": 2},
    ("chat",): {"--max-new-tokens": 16},
    ("bench", "rollout"): {"--max-new-tokens": 16, "--responses": 4, "--samples": 2, "--repeat": 1, "--threads": 1},
    ("bench", "forward"): {"--repeat": 2, "--threads": 1},
    ("bench", "draft-train"): {"--repeat": 1, "--batch": 2, "--max-tokens": 64, "--threads": 1},
    ("bench", "growth"): {"--repeat": 1, "--width": 64, "--new-tokens": 8},
    ("bench", "control"): {"--workers": 4, "--processes": 2, "--steps": 1, "--groups": 2},
}
# Flags with another value than a number.
REPLACED = {
    ("serve",): {"--port": "0", "--kv-memory": "32MB", "--max-running": "4", "--speculation": "off"},
    ("bench", "rollout"): {"--batch": "2", "--shape": "tiny"},
    ("bench", "forward"): {"--shape": "tiny"},
    ("bench", "draft-train"): {"--shape": "tiny"},
    ("bench", "growth"): {"--factor": "1,2"},
}
# The data sets that no test downloads.
DATA_OF_RECIPE = {
    "recipes/gsm8k_qwen2.5_0.5b.toml": ["data.train_files=gsm8k.jsonl", "data.val_files=gsm8k.jsonl"],
    "recipes/eval_gsm8k.toml": ["data.val_files=gsm8k.jsonl"],
    "recipes/eval_math500.toml": ["data.val_files=math500.jsonl"],
}


def capped(value, most):
    """The smaller one; -1 and 0 are no limits."""
    try:
        return min(int(value), most) if int(value) > 0 else most
    except ValueError:
        return most


def cap_options(words, caps):
    """Overrides with smaller values; the last one counts."""
    given = dict(word.split("=", 1) for word in words if "=" in word and not word.startswith("--"))
    return words + [f"{name}={capped(given.get(name, most), most)}" for name, most in caps.items()]


def shrink_simulation(words):
    """Each option may be given once; a sweep has two values."""
    if "--list" in words or "--options" in words:
        return words
    sweep = flag_of(words, "--sweep")
    kept = [word for word in words if word.split("=")[0] not in SIMULATED and word not in ("--sweep", sweep)]
    swept = sweep.split("=")[0]
    if swept:
        kept += ["--sweep", f"{swept}=2,3"]
    return kept + [f"{name}={value}" for name, value in SIMULATED.items() if name != swept]


def flag_of(words, name):
    return words[words.index(name) + 1] if name in words else ""


def set_flag(words, name, value):
    if name not in words:
        return [*words, name, value]
    place = words.index(name) + 1
    return words[:place] + [value] + words[place + 1 :]


def shrink(words):
    command = next((name for name in (*FLAGS, *REPLACED) if tuple(words[: len(name)]) == name), None)
    if "--help" in words or not words:
        return words
    for name, most in FLAGS.get(command, {}).items():
        words = set_flag(words, name, str(capped(flag_of(words, name), most)))
    for name, new in REPLACED.get(command, {}).items():
        if not (name == "--shape" and "--model" in words):
            words = set_flag(words, name, new)
    if words[0] in RECIPE_COMMANDS:
        given = any(word.startswith("trainer.total_training_steps=") for word in words)
        caps = SFT if words[0] in ("sft", "dpo") else STEP
        words = cap_options(words, {**caps, "trainer.total_training_steps": STEPS_GIVEN if given else STEPS})
    if words[0] == "simulate":
        words = shrink_simulation(words)
    if words[0] == "eval" and "--model" in words:
        words = cap_options(words, EVAL)
        words = set_flag(words, "--samples", str(capped(flag_of(words, "--samples"), 2)))
    for recipe, files in DATA_OF_RECIPE.items():
        words = words + files if recipe in words else words
    return words


if __name__ == "__main__":
    program = os.environ["TLT_REAL"]
    os.execv(program, [program, *shrink(sys.argv[1:])])
