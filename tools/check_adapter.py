#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads adapters written by tlt with PEFT: base + adapter must equal the merged policy next to it.

    python tools/check_adapter.py BASE runs/a/checkpoints/step_000010 [FOLDER ...]

Each FOLDER has adapter/ and policy/. Needs torch, transformers and safetensors. With peft installed, peft loads and
merges the adapter (PeftModel.from_pretrained, merge_and_unload); without it this program computes W + (alpha / r) B A.
Compared in float32: every weight within 1e-5 (policies in bfloat16: half a unit in the last place, relative 2^-8), every
frozen weight exactly, and the logits of random tokens of the two models within 1e-5 of the largest. Exit code 1 if any
check fails.
"""
import argparse
import json
import sys

import torch
import transformers
from safetensors.torch import load_file

from _check_each import check_each

try:
    import peft
except ImportError:
    peft = None


def load(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def adapter_tensors(folder):
    """{weight's name: B A scaled} by PEFT's rule."""
    with open(f"{folder}/adapter_config.json") as file:
        config = json.load(file)
    tensors = load_file(f"{folder}/adapter_model.safetensors")
    scale = config["lora_alpha"] / (config["r"] ** 0.5 if config["use_rslora"] else config["r"])
    added = {}
    for name, a in tensors.items():
        if ".lora_A." in name:
            module = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
            added[module + ".weight"] = scale * tensors[name.replace(".lora_A.", ".lora_B.")] @ a
    return added


def merge(base, folder, added):
    """(logits of base + adapter not merged or None, the merged model)."""
    tokens = torch.randint(0, 40, (1, 33), generator=torch.Generator().manual_seed(1))
    model = load(base)
    if peft is None:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name in added:
                    parameter.add_(added[name])
        return tokens, None, model
    model = peft.PeftModel.from_pretrained(model, f"{folder}/adapter").eval()
    with torch.no_grad():
        logits = model(tokens, use_cache=False).logits
    return tokens, logits, model.merge_and_unload()


@torch.no_grad()
def check(base, folder):
    added = adapter_tensors(f"{folder}/adapter")
    tokens, unmerged, want = merge(base, folder, added)
    policy = load(f"{folder}/policy")
    with open(f"{folder}/policy/config.json") as file:
        config = json.load(file)
    exact = config.get("dtype", config.get("torch_dtype")) == "float32"
    theirs, ours = want.state_dict(), policy.state_dict()
    if theirs.keys() != ours.keys():
        raise ValueError(f"other weights: {sorted(theirs.keys() ^ ours.keys())}")
    worst = moved = 0.0
    for name, value in theirs.items():
        difference = (ours[name] - value).abs()
        tied_to_target = name in added
        if not tied_to_target and not exact:
            value = value.bfloat16().float()
            difference = (ours[name] - value).abs()
        limit = 0.0 if not tied_to_target else 1e-5 if exact else value.abs() * 2**-8 + 1e-6
        if bool((difference > limit).any()):
            raise ValueError(f"{name} differs by {float(difference.max()):.2g}")
        worst = max(worst, float(difference.max()))
        if tied_to_target:
            moved = max(moved, float(added[name].abs().max()))
    if moved == 0:
        raise ValueError("the adapter adds nothing")
    logits = policy(tokens, use_cache=False).logits
    text = f"{len(added)} matrices changed by up to {moved:.2g}, weights within {worst:.1e}"
    for what, other in (("merged", want(tokens, use_cache=False).logits), ("not merged", unmerged)):
        if other is not None:
            difference = float((logits - other).abs().max() / other.abs().max())
            text += f", logits ({what}) within {difference:.1e}"
            if exact and difference > 1e-5:
                raise ValueError(text)
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", metavar="BASE")
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    print(f"PEFT {peft.__version__}" if peft else "PEFT is not installed: merging in plain torch")
    return check_each(arguments.folders, lambda folder: check(arguments.base, folder))


if __name__ == "__main__":
    sys.exit(main())
