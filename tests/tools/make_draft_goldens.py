#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/drafters: tiny EAGLE drafters and what PyTorch says about them.

    python tests/tools/make_draft_goldens.py [--out tests/golden] [--only NAME ...]

Needs torch 2.11.0, transformers 5.23.0 and safetensors, and tests/golden/models (make_model_goldens.py);
takes seconds. The decoder layers are transformers' own, in float64 with eager attention; what makes them a
drafter is in Eagle below. Nothing here is compared with our own program.
"""
import argparse
import json
import os

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.llama.modeling_llama import (LlamaAttention, LlamaDecoderLayer, LlamaMLP, LlamaRMSNorm,
                                                      LlamaRotaryEmbedding)
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer, Qwen2RotaryEmbedding
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer, Qwen3RotaryEmbedding

FAMILIES = {"llama": ("Llama", LlamaDecoderLayer, LlamaRotaryEmbedding),
            "qwen2": ("Qwen2", Qwen2DecoderLayer, Qwen2RotaryEmbedding),
            "qwen3": ("Qwen3", Qwen3DecoderLayer, Qwen3RotaryEmbedding)}
# name -> target; `layer`: another family than the target's, with sizes of its own.
DRAFTERS = {
    "llama": dict(target="llama_untied_rope_llama3"),
    "qwen2": dict(target="qwen2_tied"),
    "qwen3": dict(target="qwen3_tied_head32"),
    "llama_for_qwen3": dict(target="qwen3_untied", layer="llama", heads=2, kv_heads=1, head_dim=32, intermediate=32),
}
# EAGLE-3's layer is Llama's for every target. `captured`: what goes into these layers of the target it reads.
EAGLE3 = {"eagle3": dict(target="qwen2_bf16", captured=[0, 1, 2], head_rows=200)}
LENGTHS = [1, 5, 33, 18]  # pairs of the packed sequences; 33 and 18 end after a page of 16


class Eagle(nn.Module):
    """EAGLE: one decoder layer without its first norm, after FC [embedding; feature], no norm after it."""

    def __init__(self, config):
        super().__init__()
        _, layer, rotary = FAMILIES[config.model_type]
        self.fc = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        self.layers = nn.ModuleList([layer(config, 0)])
        self.layers[0].input_layernorm = nn.Identity()
        self.rotary = rotary(config)

    def forward(self, embeddings, features):
        """One sequence: embeddings of x_1 .. x_n and features h_0 .. h_{n-1} -> h'_1 .. h'_n."""
        x = self.fc(torch.cat([embeddings, features], -1))[None]
        n = x.shape[1]
        positions = torch.arange(n)[None]
        mask = torch.full((n, n), float("-inf"), dtype=x.dtype).triu(1)[None, None]
        out = self.layers[0](x, attention_mask=mask, position_ids=positions,
                             position_embeddings=self.rotary(x, positions))
        return (out[0] if isinstance(out, tuple) else out)[0]


class Eagle3(nn.Module):
    """EAGLE-3, the first pass: g = FC captured; attention over [Norm embedding; Norm g] next to the residual g."""

    def __init__(self, config, head_rows):
        super().__init__()
        size = config.hidden_size
        self.fc = nn.Linear(3 * size, size, bias=False)
        self.midlayer = nn.Module()
        for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm"):
            setattr(self.midlayer, name, LlamaRMSNorm(size, config.rms_norm_eps))
        self.midlayer.self_attn = LlamaAttention(config, 0)
        for name in ("q_proj", "k_proj", "v_proj"):
            rows = getattr(self.midlayer.self_attn, name).out_features
            setattr(self.midlayer.self_attn, name, nn.Linear(2 * size, rows, bias=False))
        self.midlayer.mlp = LlamaMLP(config)
        self.norm = LlamaRMSNorm(size, config.rms_norm_eps)
        self.lm_head = nn.Linear(size, head_rows, bias=False)
        self.rotary = LlamaRotaryEmbedding(config)

    def forward(self, embeddings, captured):
        """One sequence -> g'_1 .. g'_n before and after the last norm."""
        m = self.midlayer
        g = self.fc(captured)[None]
        n = g.shape[1]
        positions = torch.arange(n)[None]
        mask = torch.full((n, n), float("-inf"), dtype=g.dtype).triu(1)[None, None]
        x = torch.cat([m.input_layernorm(embeddings)[None], m.hidden_norm(g)], -1)
        a = g + m.self_attn(x, position_embeddings=self.rotary(x, positions), attention_mask=mask)[0]
        out = a + m.mlp(m.post_attention_layernorm(a))
        return out[0], self.norm(out)[0]


def drafter_config(target_folder, spec):
    config = AutoConfig.from_pretrained(target_folder)
    if "layer" in spec:
        old = config
        config = AutoConfig.for_model(spec["layer"], vocab_size=old.vocab_size, hidden_size=old.hidden_size,
                                      intermediate_size=spec["intermediate"], num_attention_heads=spec["heads"],
                                      num_key_value_heads=spec["kv_heads"], head_dim=spec["head_dim"],
                                      max_position_embeddings=old.max_position_embeddings, rms_norm_eps=1e-5,
                                      rope_parameters={"rope_type": "default", "rope_theta": 20000.0})
    config.num_hidden_layers = 1
    config.tie_word_embeddings = False
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:1]
    config._attn_implementation = "eager"
    return config


@torch.no_grad()
def fill_weights(model, generator):
    """Large enough that every term shows: biases of size 0.5, uneven norms, neither half of fc small."""
    for name, p in sorted(model.named_parameters()):
        if name.endswith("norm.weight"):
            p.copy_(1.0 + 0.3 * torch.randn(p.shape, generator=generator))
        elif name.endswith(".bias"):
            p.copy_(0.5 * torch.randn(p.shape, generator=generator))
        else:
            p.copy_(torch.randn(p.shape, generator=generator) / p.shape[1] ** 0.5)


def write_config(path, config):
    out = config.to_dict()
    out.pop("_attn_implementation", None)
    out["architectures"] = [FAMILIES[config.model_type][0] + "ForCausalLMEagle"]
    out["dtype"] = "float32"
    with open(path, "w") as file:
        json.dump(out, file, indent=2, sort_keys=True)
        file.write("\n")


def make_golden(models, out, name, spec, seed):
    target_folder, folder = os.path.join(models, spec["target"]), os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    target = AutoModelForCausalLM.from_pretrained(target_folder, dtype=torch.float64, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(4000 + seed)
    config = drafter_config(target_folder, spec)
    model = Eagle(config)  # float32 weights: they are what is saved
    fill_weights(model, generator)
    weights = {k: v.detach().clone() for k, v in model.named_parameters()}
    save_file(weights, os.path.join(folder, "model.safetensors"))
    write_config(os.path.join(folder, "config.json"), config)

    model = model.double()
    rows = sum(LENGTHS)
    # One token more than pairs: x_0 is seen by the target alone.
    sequences = [torch.randint(3, config.vocab_size, (n + 1,), generator=generator) for n in LENGTHS]
    with torch.no_grad():
        hidden = [target.model(s[None, :-1]).last_hidden_state[0] for s in sequences]
    features = torch.cat(hidden).float().double().requires_grad_()  # as the file has them
    direction = torch.randn(rows, config.hidden_size, generator=generator)
    logits_direction = torch.randn(rows, config.vocab_size, generator=generator) / config.vocab_size ** 0.5
    embedding = target.get_input_embeddings()
    outs = [model(embedding(s[1:]).detach(), f) for s, f in zip(sequences, features.split(LENGTHS))]
    next_hidden = torch.cat(outs)
    logits = target.lm_head(next_hidden)
    loss = (next_hidden * direction.double()).sum() + (logits * logits_direction.double()).sum()
    loss.backward()
    golden = {"tokens": torch.cat([s[1:] for s in sequences]).int(), "lengths": torch.tensor(LENGTHS).int(),
              "features": features.detach(), "next": next_hidden.detach(), "logits": logits.detach(),
              "d_next": direction, "d_logits": logits_direction, "d_features": features.grad}
    golden.update({f"d/{k}": p.grad for k, p in model.named_parameters()})
    golden = {k: (v if v.dtype == torch.int32 else v.float()).contiguous() for k, v in golden.items()}
    save_file(golden, os.path.join(folder, "golden.safetensors"), metadata={"target": spec["target"]})
    again = load_file(os.path.join(folder, "model.safetensors"))
    size = sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder))
    print(f"{name}: {size / 1000:.0f} kB, {sum(v.numel() for v in again.values())} parameters, loss {loss:.4f}, "
          f"next {next_hidden.std():.2f}, logits {logits.std():.2f}")


def make_eagle3_golden(models, out, name, spec, seed):
    target_folder, folder = os.path.join(models, spec["target"]), os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    target = AutoModelForCausalLM.from_pretrained(target_folder, dtype=torch.float64, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(5000 + seed)
    old = target.config
    config = AutoConfig.for_model("llama", vocab_size=old.vocab_size, hidden_size=old.hidden_size,
                                  intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                                  max_position_embeddings=512, rms_norm_eps=1e-5, num_hidden_layers=1,
                                  tie_word_embeddings=False, rope_parameters={"rope_type": "default", "rope_theta": 5e4})
    config._attn_implementation = "eager"
    model = Eagle3(config, spec["head_rows"])
    fill_weights(model, generator)
    tokens = torch.randperm(config.vocab_size, generator=generator)[:spec["head_rows"]].sort().values
    t2d = torch.zeros(config.vocab_size, dtype=torch.bool)
    t2d[tokens] = True
    weights = {k: v.detach().clone() for k, v in model.named_parameters()}
    save_file({**weights, "d2t": tokens - torch.arange(spec["head_rows"]), "t2d": t2d},
              os.path.join(folder, "model.safetensors"))
    with open(os.path.join(folder, "config.json"), "w") as file:
        keys = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size",
                "max_position_embeddings", "rms_norm_eps", "num_hidden_layers", "tie_word_embeddings", "hidden_act",
                "model_type", "rope_parameters")
        row = {k: config.to_dict()[k] for k in keys}
        # SGLang counts outputs of layers: layer 0's input is -1.
        row.update(architectures=["LlamaForCausalLMEagle3"], draft_vocab_size=spec["head_rows"], dtype="float32",
                   target_hidden_size=config.hidden_size, eagle_config={
                       "eagle_aux_hidden_state_layer_ids": [i - 1 for i in spec["captured"]],
                       "use_aux_hidden_state": True})
        json.dump(row, file, indent=2, sort_keys=True)
        file.write("\n")

    model = model.double()
    sequences = [torch.randint(3, config.vocab_size, (n + 1,), generator=generator) for n in LENGTHS]
    with torch.no_grad():
        states = [target.model(s[None, :-1], output_hidden_states=True).hidden_states for s in sequences]
    captured = torch.cat([torch.cat([h[i][0] for i in spec["captured"]], -1) for h in states]).float().double()
    embedding = target.get_input_embeddings()
    pairs = [model(embedding(s[1:]).detach(), c) for s, c in zip(sequences, captured.split(LENGTHS))]
    next_hidden, normed = (torch.cat(rows) for rows in zip(*pairs))
    logits = model.lm_head(normed)
    direction = torch.randn(logits.shape, generator=generator) / spec["head_rows"] ** 0.5
    (logits * direction.double()).sum().backward()
    golden = {"tokens": torch.cat([s[1:] for s in sequences]).int(), "lengths": torch.tensor(LENGTHS).int(),
              "target_tokens": torch.cat([s[:-1] for s in sequences]).int(), "captured": captured,
              "next": next_hidden.detach(), "logits": logits.detach(), "d_logits": direction}
    golden.update({f"d/{k}": p.grad for k, p in model.named_parameters()})
    golden = {k: (v if v.dtype == torch.int32 else v.float()).contiguous() for k, v in golden.items()}
    save_file(golden, os.path.join(folder, "golden.safetensors"), metadata={"target": spec["target"]})
    size = sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder))
    print(f"{name}: {size / 1000:.0f} kB, next {next_hidden.std():.2f}, logits {logits.std():.2f}")


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=os.path.join(here, "..", "golden"))
    parser.add_argument("--only", nargs="*", help="names of drafters (default: all)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    for seed, (name, spec) in enumerate(DRAFTERS.items()):
        if not args.only or name in args.only:
            make_golden(os.path.join(args.out, "models"), os.path.join(args.out, "drafters"), name, spec, seed)
    for seed, (name, spec) in enumerate(EAGLE3.items()):
        if not args.only or name in args.only:
            make_eagle3_golden(os.path.join(args.out, "models"), os.path.join(args.out, "drafters"), name, spec, seed)


if __name__ == "__main__":
    main()
