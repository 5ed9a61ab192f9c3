#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Serves a model with and without an exported draft model in vLLM, and reports the acceptance of draft tokens.

    tlt export drafter RUN --target MODEL --format vllm --out DRAFTER
    python tools/check_drafter.py MODEL DRAFTER runs/demo/rollouts/000030.jsonl

Prompts are the distinct "input" fields of a rollout dump. Greedy, bfloat16. Prints one JSON line. Exit code 1 if more
than a fifth of the responses differ from those without the draft model (bfloat16 results of vLLM depend on the batch
shape).
"""

import argparse
import json
import sys


def read_prompts(path, count):
    prompts = []
    with open(path) as rows:
        for row in map(json.loads, rows):
            if row["input"] not in prompts:
                prompts.append(row["input"])
    return prompts[:count]


def run(llm, prompts, new_tokens):
    from vllm import SamplingParams

    sampling = SamplingParams(max_tokens=new_tokens, temperature=0.0)
    outputs = llm.generate(prompts, sampling, use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("drafter")
    parser.add_argument("prompts")
    parser.add_argument("--count", type=int, default=16)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--draft-tokens", "--guesses", dest="draft_tokens", type=int, default=4)
    arguments = parser.parse_args()

    from vllm import LLM
    from vllm import __version__ as version

    with open(arguments.drafter + "/config.json") as file:
        config = json.load(file)
    method = config.get("speculators_model_type", "eagle")
    prompts = read_prompts(arguments.prompts, arguments.count)
    common = dict(dtype="bfloat16", max_model_len=1024, enable_prefix_caching=False, seed=1, enforce_eager=True)
    want = run(LLM(arguments.model, **common), prompts, arguments.new_tokens)
    llm = LLM(
        arguments.model,
        speculative_config=dict(method=method, model=arguments.drafter, num_speculative_tokens=arguments.draft_tokens),
        disable_log_stats=False,
        **common,
    )
    got = run(llm, prompts, arguments.new_tokens)

    drafts, positions = 0, [0] * arguments.draft_tokens
    for metric in llm.get_metrics():
        if metric.name == "vllm:spec_decode_num_drafts":
            drafts += metric.value
        if metric.name == "vllm:spec_decode_num_accepted_tokens_per_pos":
            positions = [a + b for a, b in zip(positions, metric.values)]
    equal = sum(a == b for a, b in zip(want, got))
    report = dict(
        vllm=version,
        method=method,
        responses=len(prompts),
        equal_responses=equal,
        drafts=drafts,
        accept_length=round(1 + sum(positions) / max(drafts, 1), 3),
        acceptance_rate_pos=[round(value / max(drafts, 1), 3) for value in positions],
    )
    print(json.dumps(report))
    sys.exit(0 if equal >= 0.8 * len(prompts) else 1)


if __name__ == "__main__":
    main()
