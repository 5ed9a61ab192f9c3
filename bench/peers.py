#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Greedy responses to the same prompts in tlt, vLLM and llama.cpp: speed, with and without drafts.

Every engine continues the same prompts by as many tokens, with as many threads, in turns.
Speculation needs no draft model in any of them: suffix drafts in tlt (chosen by its tuner), prompt
lookup in vLLM (`ngram`) and llama.cpp (`ngram-simple`, `llama-lookup`; one sequence only, as its
programs have it). llama-batched-bench decodes random tokens without sampling.

  tlt        build/tlt
  vLLM       --vllm PYTHON: of an environment in which `import vllm` works
  llama.cpp  --llamacpp FOLDER --gguf FILE: its programs, and the model converted by
             convert_hf_to_gguf.py --outtype bf16

Prints a JSON object for each measurement to standard output and a table to standard error.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

VLLM_WAYS = {"vLLM": None,
             "vLLM, ngram": {"method": "ngram", "num_speculative_tokens": 5,
                             "prompt_lookup_max": 4, "prompt_lookup_min": 2}}
LLAMA_WAYS = {  # of one sequence
    "llama.cpp, ngram-simple": ["llama-speculative-simple", "--spec-type", "ngram-simple",
                                "--spec-draft-n-max", "8", "--spec-ngram-simple-size-n", "4",
                                "--spec-ngram-simple-size-m", "8"],
    "llama.cpp, lookup": ["llama-lookup", "--spec-draft-n-max", "5"]}
ANSWER = "peers: "  # begins a line with an answer of a vLLM process


def output_of(command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    text = (done.stdout + done.stderr).decode(errors="replace")
    if done.returncode != 0:
        sys.exit(f"peers: {command[0]} ended with code {done.returncode}: {text[-500:]}")
    return text


def long_prompts(arguments, folder):
    """Countdown prompts with a greedy response longer than --tokens: their file, their tokens."""
    numbers = random.Random(7)
    candidates = folder / "candidates.jsonl"
    candidates.write_text("".join(
        json.dumps({"id": i, "prompt": ",".join(str(numbers.randint(1, 12)) for _ in range(4)) +
                    f":{numbers.randint(10, 99)}<think>"}) + "\n" for i in range(256)))
    responses = folder / "responses.jsonl"
    output_of([arguments.tlt, "generate", "--model", arguments.model, "--prompts", candidates,
               "--temperature", "0", "--max-new-tokens", arguments.tokens, "--output", responses])
    rows = [json.loads(line) for line in responses.read_text().splitlines()]
    chosen = [row for row in rows if len(row["tokens"]) == arguments.tokens]
    chosen = chosen[:max(arguments.batch)]
    if len(chosen) < max(arguments.batch):
        sys.exit(f"peers: only {len(chosen)} responses have {arguments.tokens} tokens; "
                 "give a smaller --tokens or --batch")
    ids = {row["id"] for row in chosen}
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(line + "\n" for line in candidates.read_text().splitlines()
                               if json.loads(line)["id"] in ids))
    return prompts, chosen


def bench_tlt(arguments, prompts, batch):
    text = output_of([arguments.tlt, "bench", "rollout", "--model", arguments.model, "--prompts",
                      prompts, "--samples", "1", "--batch", batch, "--responses",
                      max(arguments.batch), "--temperature", "0", "--ignore-eos",
                      "--max-new-tokens", arguments.tokens, "--ways", "off,auto", "--threads",
                      arguments.threads, "--repeat", "1"])
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return {{"off": "tlt", "auto": "tlt, suffix"}[line["way"]]: line["tokens_per_second"]
            for line in lines}


class VllmProcess:
    """One engine: its settings cannot be changed."""

    def __init__(self, arguments, way):
        cores = "0" if arguments.threads == 1 else f"0-{arguments.threads - 1}"
        env = {**os.environ, "VLLM_CPU_OMP_THREADS_BIND": cores, "VLLM_CPU_KVCACHE_SPACE": "1",
               "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
        environment = pathlib.Path(arguments.vllm).parent.parent
        libraries = [environment / "lib/libiomp5.so",
                     pathlib.Path("/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4")]
        env["LD_PRELOAD"] = ":".join(str(path) for path in libraries if path.exists())
        self.process = subprocess.Popen(
            [arguments.vllm, __file__, "--vllm-way", way, "--model", arguments.model,
             "--tokens", str(arguments.tokens), "--batch", *map(str, arguments.batch)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def ask(self, question):
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith(ANSWER):
                return json.loads(line[len(ANSWER):])
        return sys.exit(f"peers: vLLM ended with code {self.process.wait()}")

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


def serve_vllm(arguments):
    from vllm import LLM, SamplingParams
    llm = LLM(str(arguments.model), dtype="bfloat16", max_model_len=4096,
              max_num_seqs=max(arguments.batch), enable_prefix_caching=False, seed=1,
              speculative_config=VLLM_WAYS[arguments.vllm_way])
    for line in sys.stdin:
        question = json.loads(line)
        prompts, batch = question["prompts"], question["batch"]
        sampling = SamplingParams(max_tokens=arguments.tokens, temperature=0.0, ignore_eos=True,
                                  detokenize=False)
        tokens, start = [], time.perf_counter()
        for first in range(0, len(prompts), batch):
            outputs = llm.generate([{"prompt_token_ids": prompt}
                                    for prompt in prompts[first:first + batch]], sampling,
                                   use_tqdm=False)
            tokens += [list(output.outputs[0].token_ids) for output in outputs]
        print(ANSWER + json.dumps({"seconds": time.perf_counter() - start, "tokens": tokens}),
              flush=True)


def bench_vllm(processes, chosen, batch):
    speeds = {}
    for way, process in processes.items():
        answer = process.ask({"prompts": [row["prompt_tokens"] for row in chosen], "batch": batch})
        same = sum(a == b for row, tokens in zip(chosen, answer["tokens"])
                   for a, b in zip(row["tokens"], tokens))
        count = sum(map(len, answer["tokens"]))
        speeds[way] = count / answer["seconds"]
        print(json.dumps({"engine": way, "batch": batch, "same_tokens": same / count}), flush=True)
    return speeds


def llama_run(arguments, program, flags, prompt):
    """Tokens and seconds of one response."""
    for _ in range(5):  # the program may end before it has printed its last lines
        text = output_of([arguments.llamacpp / program, "-m", arguments.gguf,
                          "-t", arguments.threads, "-p", prompt, "-n", arguments.tokens,
                          "-c", 4096, "--temp", 0, "--ignore-eos", *flags])
        found = re.search(r"decoded\s+(\d+) tokens in\s+([\d.]+) seconds", text)
        if found:
            return int(found[1]), float(found[2])
    return sys.exit(f"peers: no speed in what {program} printed: {text[-500:]}")


def bench_llama(arguments, prompts, batch):
    text = output_of([arguments.llamacpp / "llama-batched-bench", "-m", arguments.gguf,
                      "-t", arguments.threads, "-tb", arguments.threads, "-npp", 16,
                      "-ntg", arguments.tokens, "-npl", batch,
                      "-c", 2 * batch * arguments.tokens, "--output-format", "jsonl"])
    speeds = {"llama.cpp": float(re.search(r'"speed_tg": ([\d.]+)', text)[1])}
    for way, (program, *flags) in LLAMA_WAYS.items() if batch == 1 else []:
        runs = [llama_run(arguments, program, flags, json.loads(line)["prompt"])
                for line in prompts.read_text().splitlines()]
        speeds[way] = sum(tokens for tokens, _ in runs) / sum(seconds for _, seconds in runs)
    return speeds


def print_table(arguments, speeds):
    ways = list(dict.fromkeys(way for way, _ in speeds))
    print(f"\nTokens per second, medians of {arguments.rounds} rounds\n\n| engine | "
          + " | ".join(f"batch {batch}" for batch in arguments.batch) + " |\n|---|"
          + "---|" * len(arguments.batch), file=sys.stderr)
    medians = {key: statistics.median(values) for key, values in speeds.items()}
    for way in ways:
        cells = [f"{medians[way, batch]:.0f}" if (way, batch) in medians else ""
                 for batch in arguments.batch]
        print(f"| {way} | {' | '.join(cells)} |", file=sys.stderr)
    ratios = []
    for batch in arguments.batch:
        own = max(medians[way, batch] for way in ways if way.startswith("tlt"))
        peers = [medians[way, batch] for way in ways
                 if not way.startswith("tlt") and (way, batch) in medians]
        ratios.append(f"{own / max(peers):.2f}x" if peers else "")
    print(f"| tlt / best of the others | {' | '.join(ratios)} |", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path,
                        default=pathlib.Path("runs/headline_sft/policy"))
    parser.add_argument("--tlt", default="build/tlt", help="the program")
    parser.add_argument("--vllm", help="Python of vLLM's environment; without it: no vLLM")
    parser.add_argument("--llamacpp", type=pathlib.Path,
                        help="folder of llama.cpp's programs; without it: no llama.cpp")
    parser.add_argument("--gguf", help="the model for llama.cpp")
    parser.add_argument("--batch", nargs="*", type=int, default=[1, 4, 8])
    parser.add_argument("--tokens", type=int, default=512, help="of a response")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--vllm-way", choices=VLLM_WAYS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.vllm_way:
        return serve_vllm(arguments)
    if arguments.llamacpp and not arguments.gguf:
        parser.error("--llamacpp needs --gguf")
    processes = {way: VllmProcess(arguments, way) for way in VLLM_WAYS} if arguments.vllm else {}
    speeds = collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        prompts, chosen = long_prompts(arguments, pathlib.Path(folder))
        for process in processes.values():  # compiles at the first call
            process.ask({"prompts": [chosen[0]["prompt_tokens"]], "batch": 1})
        for round_number in range(arguments.rounds):
            for batch in arguments.batch:
                found = bench_tlt(arguments, prompts, batch)
                found |= bench_vllm(processes, chosen, batch)
                if arguments.llamacpp:
                    found |= bench_llama(arguments, prompts, batch)
                for way, speed in found.items():
                    speeds[way, batch].append(speed)
                    print(json.dumps({"engine": way, "batch": batch, "round": round_number,
                                      "tokens_per_second": speed}), flush=True)
    for process in processes.values():
        process.stop()
    print_table(arguments, speeds)


if __name__ == "__main__":
    main()
