#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cookbook_loops.py prepare FOLDER MODEL | run FOLDER URL: the recipes sl_loop and rl_loop of the package
tinker-cookbook, unmodified, against a running `tlt serve --train`.

prepare: makes FOLDER/Qwen/Qwen3-8B-Base, MODEL's weights with a tokenizer that has letters, and, under the names that
the recipes load, two data sets of a few rows. Names are those of the cookbook's tables; in FOLDER they are paths.
run: in FOLDER, fine-tunes with sl_loop, continues from its last checkpoint with rl_loop, and does both again from the
beginning. Prints "ok"; an assertion names what differs. A test of src/apps/serve_tinker_test.cpp runs it.
"""
import json
import math
import os
import shutil
import string
import sys
from pathlib import Path

MODEL = "Qwen/Qwen3-8B-Base"  # the cookbook renders its conversations as "User: …\n\nAssistant: …"
SFT_BATCHES, RL_BATCHES, SFT_ROWS, RL_ROWS = 8, 3, 8, 2
ANSWERS = "123"


def tokenizer():
    """Bytes, as Qwen's has them, and answers as one token, so that a tiny model finds them soon."""
    words = ["<pad>", "<eos>", "\u010a", "\u0120"] + [c for c in string.printable if " " < c <= "~"]
    boxed = [f"\\boxed{{{digit}}}" for digit in string.digits]
    words += boxed
    words += [f"<unused{i}>" for i in range(120 - len(words))]
    added = [
        {"id": i, "content": word, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": i < 2}
        for i, word in enumerate(words) if i < 2 or word in boxed
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {word: i for i, word in enumerate(words)}, "merges": []}}


def write_rows(path, rows):
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def prepare(folder, model):
    copy = Path(folder) / MODEL
    shutil.copytree(model, copy)
    (copy / "tokenizer.json").write_text(json.dumps(tokenizer()))
    suffix = " Provide a numerical answer without units, written inside \\boxed{}."
    questions = [f"How many legs have {n} hens and {n + 1} dogs?" for n in range(100)]
    answers = [ANSWERS[n % len(ANSWERS)] for n in range(100)]
    conversations = [
        [{"role": "user", "content": q + suffix}, {"role": "assistant", "content": f"\\boxed{{{a}}}"}]
        for q, a in zip(questions, answers)
    ]
    write_rows(Path(folder) / "HuggingFaceH4/no_robots/train.jsonl",
               [{"messages": messages} for messages in conversations[: SFT_BATCHES * SFT_ROWS]])
    gsm8k = Path(folder) / "openai/gsm8k"
    rows = (SFT_BATCHES + RL_BATCHES) * RL_ROWS  # rl_loop begins after the batches of sl_loop
    write_rows(gsm8k / "train.jsonl",
               [{"question": q, "answer": f"It is so. #### {a}"} for q, a in zip(questions[:rows], answers)])
    (gsm8k / "README.md").write_text("---\nconfigs:\n- config_name: main\n  data_files: train.jsonl\n---\n")


def metrics_of(log):
    rows = [json.loads(line) for line in open(f"{log}/metrics.jsonl")]
    return [{k: v for k, v in row.items() if not k.startswith("time")} for row in rows]


def run_loop(loop, words):
    """Runs a recipe with the words of its command line, and ends its session, which it leaves to its process's end."""
    import chz
    import tinker

    clients, make_client = [], tinker.ServiceClient

    def make_known_client(*values, **named):
        clients.append(make_client(*values, **named))
        return clients[-1]

    tinker.ServiceClient = make_known_client
    try:
        chz.nested_entrypoint(loop.main, argv=words)
    finally:
        tinker.ServiceClient = make_client
        for client in clients:
            client.close("success").result()


def loops(url, log):
    from tinker_cookbook.recipes import rl_loop, sl_loop

    common = [f"base_url={url}", f"model_name={MODEL}", f"log_path={log}", "lora_rank=8"]
    run_loop(sl_loop, common + [f"batch_size={SFT_ROWS}", "learning_rate=1e-2", "save_every=4"])
    sft = metrics_of(log)
    # The same log path: rl_loop resumes from the checkpoint of sl_loop, with its optimizer.
    run_loop(rl_loop, common + [
        f"batch_size={RL_ROWS}", "group_size=8", "max_tokens=8", "learning_rate=1e-3", "save_every=2",
        "loss_fn=importance_sampling"])
    checkpoints = [json.loads(line)["name"] for line in open(f"{log}/checkpoints.jsonl")]
    return sft, metrics_of(log)[len(sft):], checkpoints


def run(folder, url):
    sys.path.append(str(Path(__file__).parent / "torch_stand_in"))  # last: an installed torch takes precedence
    os.chdir(folder)
    sft, rl, checkpoints = loops(url, "first")
    print([row["train_mean_nll"] for row in sft], [row["reward/total"] for row in rl], checkpoints)
    losses = [row["train_mean_nll"] for row in sft]
    assert len(losses) == SFT_BATCHES and losses[-1] < 0.5 * losses[0], losses
    assert len(rl) == RL_BATCHES and all(math.isfinite(row["reward/total"]) for row in rl), rl
    assert any(row.get("grad_norm:mean", 0) > 0 for row in rl), f"no batch with an advantage: {rl}"
    assert checkpoints == ["000004", "final", "000008", "000010", "final"], checkpoints
    assert loops(url, "second") == (sft, rl, checkpoints), "the same loops twice give the same metrics"


if __name__ == "__main__":
    {"prepare": prepare, "run": run}[sys.argv[1]](*sys.argv[2:])
    print("ok", flush=True)
    os._exit(0)  # the client's daemon thread can abort a Python before 3.14 that ends (python/cpython#87135)
