#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""_gpu_peer.py BATCHES: tokens a second of transformers on a random model of Qwen2.5-7B's shape, one JSON line a batch size.

A part of tools/gpu_check.sh: what the same card gives with a library that everyone has. Greedy decoding of 64 tokens
after 64, in bfloat16; the steps alone are timed.
"""
import json
import sys
import time


def main():
    try:
        import torch
        import transformers
    except ImportError as error:
        print(f"skipped: {error}")
        return 77
    torch.manual_seed(1)
    config = transformers.Qwen2Config(
        vocab_size=152064, hidden_size=3584, intermediate_size=18944, num_hidden_layers=28, num_attention_heads=28,
        num_key_value_heads=4, tie_word_embeddings=False)  # fmt: skip
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
    tokens = 64
    for batch in map(int, sys.argv[1].split(",")):
        ids = torch.randint(config.vocab_size, (batch, tokens), device="cuda")
        with torch.no_grad():
            step = model(ids, use_cache=True)
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(tokens):
                following = step.logits[:, -1:].argmax(-1)
                step = model(following, past_key_values=step.past_key_values, use_cache=True)
            torch.cuda.synchronize()
        rate = batch * tokens / (time.perf_counter() - start)
        print(json.dumps({"peer": f"transformers {transformers.__version__}", "batch": batch, "tokens_per_second": rate}),
              flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
