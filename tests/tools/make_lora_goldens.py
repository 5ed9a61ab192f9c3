#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/lora: adapters as PEFT saves them, and what PEFT makes of them and of their base.

    python tests/tools/make_lora_goldens.py [--out tests/golden]

Needs torch, transformers, safetensors and peft; takes a few seconds. For each adapter: the folder that PEFT's
save_pretrained writes, with random A and B, and golden.safetensors with the targets' weights after merge_and_unload
and the logits of the adapter that is not merged, both in float32. Before it is written the merge is compared with the
rule in plain torch, base + s B A in float64.
"""
import argparse
import json
import math
import os

import peft
import torch
import transformers
from safetensors.torch import load_file, save_file

TOKENS = [5, 17, 99, 4, 250, 31, 77, 8, 8, 140]
# name, base, LoraConfig, type of the adapter's tensors
ADAPTERS = [
    ("short_names", "qwen2_tied", {"r": 3, "lora_alpha": 6, "target_modules": ["q_proj", "v_proj", "down_proj"]},
     torch.float32),
    ("all_linear", "qwen3_untied", {"r": 4, "lora_alpha": 8, "target_modules": "all-linear"}, torch.float32),
    ("rslora_bf16", "llama_tied", {"r": 9, "lora_alpha": 5, "target_modules": ["k_proj", "o_proj", "gate_proj"],
                                   "use_rslora": True, "lora_dropout": 0.05}, torch.bfloat16),
]


def load(base):
    return transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager").eval()


@torch.no_grad()
def make(name, base, options, dtype, models, folder):
    generator = torch.Generator().manual_seed(sum(name.encode()))
    config = peft.LoraConfig(task_type="CAUSAL_LM", **options)
    model = peft.get_peft_model(load(f"{models}/{base}"), config, autocast_adapter_dtype=False)
    for key, value in model.named_parameters():
        if "lora_" in key:
            value.copy_(torch.randn(value.shape, generator=generator).mul_(0.2).to(dtype))
    model.save_pretrained(folder)
    adapter = load_file(f"{folder}/adapter_model.safetensors")
    save_file({key: value.to(dtype) for key, value in adapter.items()}, f"{folder}/adapter_model.safetensors",
              {"format": "pt"})
    path = f"{folder}/adapter_config.json"
    with open(path) as file:
        written = json.load(file)
    written["base_model_name_or_path"] = base
    written["target_modules"].sort()  # PEFT has a set of them
    with open(path, "w") as file:
        json.dump(written, file, indent=2, sort_keys=True)
        file.write("\n")
    if os.path.exists(f"{folder}/README.md"):
        os.remove(f"{folder}/README.md")  # an empty model card

    golden = {"logits": model.eval()(torch.tensor([TOKENS]), use_cache=False).logits[0].float()}
    merged = model.merge_and_unload().state_dict()
    weights = load(f"{models}/{base}").state_dict()
    scale = options["lora_alpha"] / (math.sqrt(options["r"]) if options.get("use_rslora") else options["r"])
    worst = 0.0
    for key, a in adapter.items():
        if "lora_A" not in key:
            continue
        module = key.removeprefix("base_model.model.").removesuffix(".lora_A.weight") + ".weight"
        b = adapter[key.replace("lora_A", "lora_B")]
        plain = weights[module].double() + scale * b.double() @ a.double()
        worst = max(worst, float((plain - merged[module].double()).abs().max()))
        golden[module] = merged[module].contiguous()
    assert worst < 1e-6, worst
    save_file(golden, f"{folder}/golden.safetensors")
    print(f"{name}: {len(golden) - 1} matrices of {base}, merged within {worst:.1e} of plain torch")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="tests/golden")
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    for name, base, options, dtype in ADAPTERS:
        folder = f"{arguments.out}/lora/{name}"
        os.makedirs(folder, exist_ok=True)
        make(name, base, options, dtype, f"{arguments.out}/models", folder)


if __name__ == "__main__":
    main()
