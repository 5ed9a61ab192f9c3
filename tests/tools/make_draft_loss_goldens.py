#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/draft: what PyTorch says about an EAGLE drafter's losses and their gradients.

    python tests/tools/make_draft_loss_goldens.py [--out tests/golden]

Needs torch and safetensors; takes a few seconds. Weights, states and tokens follow from formulas (wave() and below),
so that only numbers to compare with are stored. Network, losses and gradients are written out here after EAGLE
(forward() and losses()) and differentiated by autograd; nothing comes from our own program.
"""
import argparse
import json
import math
import os

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

MODELS = ["qwen2_tied", "qwen2_untied", "llama_tied"]
SAMPLES = [(5, 2), (12, 4), (19, 0), (9, 8)]  # tokens, where the response begins
SETTINGS = [("response", 1.0, 0.1), ("all", 0.5, 0.7)]  # positions that count, weights of the two losses


def wave(shape, step, shift, scale, middle=0.0):
    """middle + scale * sin(step * i + shift) for element i."""
    i = torch.arange(math.prod(shape), dtype=torch.float64)
    return (middle + scale * torch.sin(step * i + shift)).float().reshape(shape)


def weights(config):
    d, h = config["hidden_size"], config["head_dim"]
    q, k, f = config["num_attention_heads"] * h, config["num_key_value_heads"] * h, config["intermediate_size"]
    shapes = {"fc.weight": (d, 2 * d), "self_attn.q_proj.weight": (q, d), "self_attn.k_proj.weight": (k, d),
              "self_attn.v_proj.weight": (k, d), "self_attn.o_proj.weight": (d, q),
              "post_attention_layernorm.weight": (d,), "mlp.gate_proj.weight": (f, d), "mlp.up_proj.weight": (f, d),
              "mlp.down_proj.weight": (d, f)}
    if config["model_type"] == "qwen2":
        shapes |= {f"self_attn.{x}_proj.bias": (n,) for x, n in (("q", q), ("k", k), ("v", k))}
    result = {}
    for name, shape in shapes.items():
        shift = float(sum(map(ord, name)) % 100)
        if "layernorm" in name:
            result[name] = wave(shape, 0.73, shift, 0.1, 1.0)
        else:
            result[name] = wave(shape, 0.73, shift, 0.1 if len(shape) == 2 else 0.05)
    return {name: w.requires_grad_() for name, w in result.items()}


def samples(config):
    for s, (n, begin) in enumerate(SAMPLES):
        tokens = torch.tensor([(7 * i + 11 * s + 3) % config["vocab_size"] for i in range(n)])
        yield tokens, wave((n, config["hidden_size"]), 0.61, float(s), 1.5), begin


def rotate(x, theta):
    """Rotary embedding of x [T, heads, H], halves as in Hugging Face's models."""
    t, _, h = x.shape
    angles = torch.arange(t)[:, None] * theta ** (-torch.arange(0, h, 2).float() / h)
    cos, sin = angles.cos().repeat(1, 2)[:, None], angles.sin().repeat(1, 2)[:, None]
    return x * cos + torch.cat([-x[..., h // 2:], x[..., :h // 2]], -1) * sin


def forward(config, w, embedding, tokens, states):
    """h' for the pairs (h_t, x_{t+1}), t = 0 .. n-2."""
    heads, kv, h = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    z = torch.cat([embedding[tokens[1:]], states[:-1]], -1) @ w["fc.weight"].T
    project = lambda x, n: F.linear(z, w[f"self_attn.{x}_proj.weight"], w.get(f"self_attn.{x}_proj.bias")).view(-1, n, h)
    q, k, v = rotate(project("q", heads), config["theta"]), rotate(project("k", kv), config["theta"]), project("v", kv)
    k, v = (x.repeat_interleave(heads // kv, 1) for x in (k, v))
    scores = torch.einsum("tnh,snh->nts", q, k) / math.sqrt(h)
    scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
    a = z + torch.einsum("nts,snh->tnh", scores.softmax(-1), v).reshape(len(z), -1) @ w["self_attn.o_proj.weight"].T
    x = a * (a.square().mean(-1, keepdim=True) + config["rms_norm_eps"]).rsqrt() * w["post_attention_layernorm.weight"]
    gated = F.silu(x @ w["mlp.gate_proj.weight"].T) * (x @ w["mlp.up_proj.weight"].T)
    return a + gated @ w["mlp.down_proj.weight"].T


def losses(head, predicted, wanted):
    """For each row: SmoothL1, cross-entropy, rank of the target's best token, its probability of the drafter's best."""
    p, q = (wanted @ head.T).softmax(-1), predicted @ head.T
    best = p.argmax(-1, keepdim=True)
    return {"vloss": F.smooth_l1_loss(predicted, wanted, reduction="none").mean(-1),
            "ploss": -(p * q.log_softmax(-1)).sum(-1),
            "rank": (q > q.gather(-1, best)).sum(-1),
            "acceptance": p.gather(-1, q.argmax(-1, keepdim=True)).squeeze(-1)}


def case(config, embedding, head, positions, hidden_weight, logits_weight):
    w, rows = weights(config), []
    for tokens, states, begin in samples(config):
        first = 0 if positions == "all" else max(0, begin - 2)  # the pair whose target state predicts the first token
        rows.append({k: v[first:] for k, v in losses(head, forward(config, w, embedding, tokens, states), states[1:]).items()})
    rows = {k: torch.cat([r[k] for r in rows]) for k in rows[0]}
    loss = (hidden_weight * rows["vloss"] + logits_weight * rows["ploss"]).mean()
    loss.backward()
    norm = math.sqrt(sum(x.grad.double().square().sum().item() for x in w.values()))
    return {"positions": positions, "hidden_weight": hidden_weight, "logits_weight": logits_weight,
            "rows": len(rows["rank"]), "loss": loss.item(), "vloss": rows["vloss"].mean().item(),
            "ploss": rows["ploss"].mean().item(), "expected_acceptance": rows["acceptance"].mean().item(),
            **{f"top{k}_accuracy": (rows["rank"] < k).float().mean().item() for k in (1, 2, 3)}, "grad_norm": norm,
            "gradients": {name: {"norm": x.grad.norm().item(), "first": x.grad.flatten()[:6].tolist()}
                          for name, x in w.items()}}


def near_case(head, hidden_weight=1.0, logits_weight=0.1):
    """The losses alone, of draft logits near enough to the target's that some tokens are accepted."""
    wanted = wave((40, head.shape[1]), 0.61, 2.0, 1.5)
    predicted = (wanted + wave(wanted.shape, 0.37, 1.0, 1.2)).requires_grad_()
    rows = losses(head, predicted, wanted)
    (hidden_weight * rows["vloss"] + logits_weight * rows["ploss"]).mean().backward()
    return {"vloss": rows["vloss"].tolist(), "ploss": rows["ploss"].tolist(), "rank": rows["rank"].tolist(),
            "acceptance": rows["acceptance"].tolist(), "gradient_norm": predicted.grad.norm().item(),
            "gradient_first": predicted.grad[:, :6].tolist()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="tests/golden")
    out = parser.parse_args().out
    torch.set_num_threads(1)
    os.makedirs(f"{out}/draft", exist_ok=True)
    for name in MODELS:
        config = json.load(open(f"{out}/models/{name}/config.json"))
        config["head_dim"] = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        config["theta"] = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
        tensors = load_file(f"{out}/models/{name}/model.safetensors")
        embedding = tensors["model.embed_tokens.weight"].float()
        head = tensors.get("lm_head.weight", embedding).float()
        with open(f"{out}/draft/{name}.json", "w") as file:
            json.dump({"samples": SAMPLES, "near": near_case(head),
                       "settings": [case(config, embedding, head, *s) for s in SETTINGS]}, file)
            file.write("\n")


if __name__ == "__main__":
    main()
