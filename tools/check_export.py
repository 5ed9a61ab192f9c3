#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads policies written by tlt with transformers: no warning, no missing tensor, the same logits as `tlt score`.

    python tools/check_export.py [--program build/tlt] runs/demo/checkpoints/latest/policy [FOLDER ...]

Needs torch, transformers 5 and safetensors. Prints a line per folder; exit code 1 if any check fails.
Logits are compared in float32, also for bfloat16 weights, on random rows; the tolerance is 1e-4. The tokenizer of a
folder must load, and the tokens of transformers must equal those of `tlt tokenize`.
"""
import argparse
import contextlib
import json
import logging
import os
import subprocess
import sys
import tempfile
import warnings

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file

from _check_each import check_each

TOLERANCE = 1e-4
LENGTHS = [1, 2, 17, 64, 129]
TEXT = "Using 3, 4 and 21: (21 - 4) * 3 = 51\n"


class Complaint(Exception):
    pass


class Collector(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.said = []

    def emit(self, record):
        self.said.append(record.getMessage())


@contextlib.contextmanager
def silence_is_golden():
    """Raises a Complaint for any warning inside, of Python's warnings or of a logger."""
    collector = Collector()
    loggers = [logging.getLogger(), logging.getLogger("transformers")]  # the second does not propagate
    for logger in loggers:
        logger.addHandler(collector)
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            yield
    finally:
        for logger in loggers:
            logger.removeHandler(collector)
    said = collector.said + [str(w.message) for w in warned]
    if said:
        raise Complaint("transformers warns: " + " | ".join(said))


def run(program, arguments, text=None):
    ended = subprocess.run([program, *arguments], input=text, capture_output=True, text=True)
    if ended.returncode != 0:
        raise Complaint(f"tlt {arguments[0]}: exit code {ended.returncode}: {ended.stderr.strip()}")
    return ended.stdout


def weight_files(folder):
    return sorted(f for f in os.listdir(folder) if f.endswith(".safetensors"))


def stored_tensors(folder):
    """{name: dtype} of all weight files."""
    stored = {}
    for name in weight_files(folder):
        with safe_open(os.path.join(folder, name), "pt") as file:
            for tensor in file.keys():
                stored[tensor] = file.get_tensor(tensor).dtype
    return stored


def load(folder, dtype):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        if info.get(kind):
            raise Complaint(f"{kind}: {sorted(map(str, info[kind]))}")
    return model.eval()


def check_types(folder, model):
    """Checks that type and tying of the weights agree with config.json."""
    types = set(stored_tensors(folder).values())
    if types != {model.dtype}:
        raise Complaint(f"config.json says {model.dtype}, the files have {types}")
    tied = model.get_input_embeddings().weight.data_ptr() == model.get_output_embeddings().weight.data_ptr()
    if tied != model.config.tie_word_embeddings:
        raise Complaint(f"tie_word_embeddings is {model.config.tie_word_embeddings}, yet tied is {tied}")


@torch.no_grad()
def logits_difference(folder, program, scratch):
    model = load(folder, torch.float32)
    generator = torch.Generator().manual_seed(1)
    lengths = [n for n in LENGTHS if n <= model.config.max_position_embeddings]
    rows = [torch.randint(0, model.config.vocab_size, (n,), generator=generator).tolist() for n in lengths]
    inputs, outputs, logits = (os.path.join(scratch, n) for n in ("in.jsonl", "out.jsonl", "logits.safetensors"))
    with open(inputs, "w") as file:
        file.writelines(json.dumps({"tokens": row}) + "\n" for row in rows)
    run(program, ["score", "--model", folder, "--dtype", "float32", "--input", inputs, "--output", outputs,
                  "--logits", logits])
    ours = load_file(logits)
    worst = 0.0
    for i, row in enumerate(rows):
        theirs = model(torch.tensor([row]), use_cache=False).logits[0].float()
        if ours[f"row{i}"].shape != theirs.shape:
            raise Complaint(f"logits are {tuple(ours[f'row{i}'].shape)}, transformers' {tuple(theirs.shape)}")
        worst = max(worst, float((ours[f"row{i}"] - theirs).abs().max()))
    if not worst <= TOLERANCE:
        raise Complaint(f"logits differ by {worst:.3g}")
    return worst


def check_tokenizer(folder, program):
    if not os.path.exists(os.path.join(folder, "tokenizer.json")):
        return "no tokenizer"
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(folder).encode(TEXT, add_special_tokens=False)
    ours = json.loads(run(program, ["tokenize", "--model", folder, "encode"], json.dumps({"text": TEXT}) + "\n"))
    if ours["tokens"] != theirs:
        raise Complaint(f"tokens of {TEXT!r}: {ours['tokens']}, transformers' {theirs}")
    chosen = transformers.AutoTokenizer.from_pretrained(folder)
    if chosen.encode(TEXT, add_special_tokens=False) != theirs:
        # transformers 5 gives every model of type qwen2 its own pre-tokenizer, whatever tokenizer.json says.
        return f"tokens equal (not those of {type(chosen).__name__}, which AutoTokenizer takes)"
    return "tokens equal"


def check(folder, program):
    with silence_is_golden(), tempfile.TemporaryDirectory() as scratch:
        model = load(folder, "auto")
        transformers.GenerationConfig.from_pretrained(folder)
        check_types(folder, model)
        tokenizer = check_tokenizer(folder, program)
        worst = logits_difference(folder, program, scratch)
    config = model.config
    return (f"{type(model).__name__}, {'tied' if config.tie_word_embeddings else 'untied'}, "
            f"{str(model.dtype).removeprefix('torch.')}, {len(stored_tensors(folder))} tensors in "
            f"{len(weight_files(folder))} file(s), {tokenizer}, logits within {worst:.1e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    parser.add_argument("--program", default="build/tlt")
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    return check_each(arguments.folders, lambda folder: check(folder, arguments.program))


if __name__ == "__main__":
    sys.exit(main())
