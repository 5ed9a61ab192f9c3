#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds unrolled.safetensors to tests/golden/drafters/NAME: several training passes, as PyTorch computes them.

    python tests/tools/make_unrolled_goldens.py [--out tests/golden] [--only NAME ...]

After make_draft_goldens.py, whose drafters and inputs it reads. Pass k's rows follow those of the passes before as
one long sequence, and a mask says which of them a row sees (EAGLE-3's training-time test; HASS's aligned contexts):
pass 0's rows up to t - k, and row t - k + j of each pass j = 1 .. k. Everything is computed again for each pass, in float64
with eager attention and autograd. Nothing here is compared with our own program.
"""
import argparse
import os

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from make_draft_goldens import DRAFTERS, EAGLE3, Eagle, Eagle3, drafter_config

PASSES = 3


def mask_and_positions(n, passes):
    """Of `passes` blocks of n rows: additive mask [1, 1, P n, P n], positions [1, P n]."""
    seen = torch.zeros(passes * n, passes * n, dtype=torch.bool)
    for k in range(passes):
        for t in range(n):
            seen[k * n + t, k * n + t] = True  # rows without a path see themselves, and no other row sees them
            if t < k:
                continue
            seen[k * n + t, :t - k + 1] = True
            for j in range(1, k + 1):
                seen[k * n + t, j * n + t - k + j] = True
    mask = torch.where(seen, 0.0, float("-inf")).double()[None, None]
    return mask, torch.arange(n).repeat(passes)[None]


def run_eagle(model, embeddings, features, mask, positions):
    x = model.fc(torch.cat([embeddings, features], -1))[None]
    out = model.layers[0](x, attention_mask=mask, position_ids=positions, position_embeddings=model.rotary(x, positions))
    return (out[0] if isinstance(out, tuple) else out)[0]


def run_eagle3(model, embeddings, features, mask, positions):
    m, g = model.midlayer, features[None]
    x = torch.cat([m.input_layernorm(embeddings)[None], m.hidden_norm(g)], -1)
    a = g + m.self_attn(x, position_embeddings=model.rotary(x, positions), attention_mask=mask)[0]
    return (a + m.mlp(m.post_attention_layernorm(a)))[0]


def unroll(run, model, embeddings, features):
    """One sequence -> next states of each pass [n, D]."""
    n, blocks, outs = len(embeddings), [features], []
    for k in range(PASSES):
        mask, positions = mask_and_positions(n, k + 1)
        out = run(model, embeddings.repeat(k + 1, 1), torch.cat(blocks), mask, positions)
        outs.append(out[-n:])
        blocks.append(torch.cat([torch.zeros_like(out[:1]), outs[-1][:-1]]))
    return outs


def make(out, name, spec, is_eagle3):
    folder = os.path.join(out, "drafters", name)
    golden = load_file(os.path.join(folder, "golden.safetensors"))
    with safe_open(os.path.join(folder, "golden.safetensors"), "pt") as file:
        target_folder = os.path.join(out, "models", file.metadata()["target"])
    target = AutoModelForCausalLM.from_pretrained(target_folder, dtype=torch.float64)
    weights = load_file(os.path.join(folder, "model.safetensors"))
    if is_eagle3:
        config = AutoConfig.from_pretrained(folder)
        config._attn_implementation = "eager"
        model = Eagle3(config, spec["head_rows"])
        weights = {k: v for k, v in weights.items() if k not in ("d2t", "t2d")}
    else:
        config = drafter_config(target_folder, spec)
        model = Eagle(config)
    model.load_state_dict(weights)
    model = model.double()
    lengths = golden["lengths"].tolist()
    embeddings = target.get_input_embeddings()(golden["tokens"].long()).detach().split(lengths)
    shown = golden["captured" if is_eagle3 else "features"].double().split(lengths)
    run = run_eagle3 if is_eagle3 else run_eagle
    outs = [unroll(run, model, e, model.fc(s) if is_eagle3 else s) for e, s in zip(embeddings, shown)]
    nexts = [torch.cat(rows) for rows in zip(*outs)]
    reads = [model.norm(x) if is_eagle3 else x for x in nexts]
    generator = torch.Generator().manual_seed(6000)
    valid = [torch.cat([torch.arange(n) >= k for n in lengths]) for k in range(PASSES)]
    directions = [torch.randn(x.shape, generator=generator) * v[:, None] for x, v in zip(reads, valid)]
    sum((x * d.double()).sum() for x, d in zip(reads, directions)).backward()
    result = {}
    for k in range(PASSES):
        result[f"next.{k}"] = (nexts[k] * valid[k][:, None]).detach().float().contiguous()
        result[f"d_read.{k}"] = directions[k].contiguous()
    for key, p in model.named_parameters():
        if p.grad is not None:
            result[f"d/{key}"] = p.grad.float().contiguous()
    save_file(result, os.path.join(folder, "unrolled.safetensors"))
    print(f"{name}: next {', '.join(f'{x.std():.2f}' for x in nexts)}")


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=os.path.join(here, "..", "golden"))
    parser.add_argument("--only", nargs="*", help="names of drafters (default: all)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    for name, spec in {**DRAFTERS, **EAGLE3}.items():
        if not args.only or name in args.only:
            make(args.out, name, spec, name in EAGLE3)


if __name__ == "__main__":
    main()
