#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tlt's tokenizer compared with the Hugging Face `tokenizers` library (0.23.3), of eight kinds of tokenizer.

  compare_tokenizers.py ids   --data DATA --tlt build/tlt [--random 20000] [--only llama2_style ...]
  compare_tokenizers.py speed --data DATA --tlt build/tlt [--rounds 5]     one thread each, in turns

`ids` compares the tokens of random texts and of the texts of the data, and what the tokens decode to; it exits
with 1 when something differs. `speed` encodes GSM8K: in each round tlt first, then the library (encode_batch_fast:
no offsets, one thread), each after a pass that is not counted; the ratio is that of the medians. DATA as in
make_tokenizer_goldens.py, whose tokenizers these are, with SentencePiece's kind in its true size.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

from tokenizers import Tokenizer  # noqa: E402

import make_tokenizer_goldens as goldens  # noqa: E402


def make_folders(data, root):
    """{name: folder with its tokenizer.json}"""
    made = {
        "qwen3": data / "tokenizers" / "qwen3" / "tokenizer.json",
        "minimind": data / "tokenizers" / "minimind.tokenizer.json",
        **{style.__name__: style(data) for style in (
            goldens.gpt2_style, goldens.llama3_style, goldens.every_flag, goldens.odd_pieces)},
        "llama2_style": goldens.llama2_style(data, 32000),
        "mistral_style": goldens.mistral_style(data, 32000),
    }
    for name, tokenizer in made.items():
        if isinstance(tokenizer, pathlib.Path):
            tokenizer = Tokenizer.from_file(str(tokenizer))
        goldens.save(tokenizer, root / name, old_merges=name == "llama2_style")
    return {name: root / name for name in made}


def ask(tlt, mode, folder, rows):
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    answer = subprocess.run([tlt, "tokenize", "--model", folder, mode], input=lines, capture_output=True, text=True,
                            encoding="utf-8", check=True)
    return [json.loads(line) for line in answer.stdout.split("\n") if line]


def compare_ids(tlt, folder, texts, seed):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    want = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    got = [row["tokens"] for row in ask(tlt, "encode", folder, ({"text": text} for text in texts))]
    wrong = [i for i in range(len(texts)) if got[i] != want[i]]
    rng, size = random.Random(seed), tokenizer.get_vocab_size()
    lists = want + [[rng.randrange(size) for _ in range(rng.randint(1, 12))] for _ in range(2000)]
    decoded = [row["text"] for row in ask(tlt, "decode", folder, ({"tokens": tokens} for tokens in lists))]
    wrong_texts = [i for i in range(len(lists))
                   if decoded[i] != tokenizer.decode(lists[i], skip_special_tokens=False)]
    for i in wrong[:3]:
        print(f"  {texts[i]!r}\n    tlt {got[i]}\n    HF  {want[i]}", file=sys.stderr)
    for i in wrong_texts[:3]:
        print(f"  {lists[i]}: tlt {decoded[i]!r}", file=sys.stderr)
    round_trips = sum(decoded[i] == texts[i] for i in range(len(texts)))
    print(json.dumps({"tokenizer": folder.name, "vocabulary": size, "texts": len(texts), "tokens": sum(map(len, want)),
                      "texts_that_differ": len(wrong), "decoded": len(lists), "decoded_that_differ": len(wrong_texts),
                      "round_trips": round_trips}), flush=True)
    return not wrong and not wrong_texts


def compare_speed(tlt, folder, files, rounds):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    texts = [row[key] for file in files for row in map(json.loads, file.read_text(encoding="utf-8").splitlines())
             for key in ("question", "answer")]
    size = sum(len(text.encode()) for text in texts)
    command = [tlt, "bench", "tokenize", "--model", folder, "--repeat", "1"]
    command += [part for file in files for part in ("--data", file)]
    tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    ours, theirs = [], []
    for _ in range(rounds):
        report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        ours.append(report["encode_seconds_p50"])
        begin = time.perf_counter()
        encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        theirs.append(time.perf_counter() - begin)
        assert report["tokens"] == sum(len(one.ids) for one in encoded)
        del encoded
    ours, theirs = statistics.median(ours), statistics.median(theirs)
    print(json.dumps({"tokenizer": folder.name, "bytes": size, "tokens": report["tokens"], "rounds": rounds,
                      "tlt_mb_per_second": round(size / ours / 1e6, 2), "hf_mb_per_second": round(size / theirs / 1e6, 2),
                      "ratio": round(theirs / ours, 2), "commit": report["commit"], "machine": report["machine"]}),
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["ids", "speed"])
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--tlt", default="build/tlt")
    parser.add_argument("--random", type=int, default=20000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        folders = make_folders(args.data, pathlib.Path(root))
        texts = list(goldens.data_texts(args.data))
        words = sorted({word for text in texts[:400] for word in text.split()})
        is_same = True
        for seed, (name, folder) in enumerate(folders.items()):
            if args.only and name not in args.only:
                continue
            if args.what == "speed":
                compare_speed(args.tlt, folder, [args.data / "gsm8k" / f"{part}.jsonl" for part in ("train", "test")], args.rounds)
                continue
            tokens = sorted(token.content for token in Tokenizer.from_file(
                str(folder / "tokenizer.json")).get_added_tokens_decoder().values())
            maker = goldens.RandomTexts(100 + seed, tokens, words)
            chosen = goldens.NASTY + texts + [maker.text() for _ in range(args.random)]
            is_same &= compare_ids(args.tlt, folder, chosen, seed)
    return 0 if is_same else 1


if __name__ == "__main__":
    sys.exit(main())
