#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes models/word_problems/tokenizer.json: byte-level BPE of 512 tokens, trained on tools/word_problems.py's text.

  python3 tools/word_problems.py word_problems
  python3 tests/tools/make_word_problem_tokenizer.py word_problems/train.jsonl models/word_problems/tokenizer.json

Needs the package tokenizers (made with 0.23.3). Words keep their space, numbers up to 99 are one token.
"""
import json
import sys

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

PIECES = r"\n| ?[A-Za-z]+|[0-9]{1,2}| ?[^A-Za-z0-9\s]+| "


def main():
    rows_path, tokenizer_path = sys.argv[1:]
    with open(rows_path, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PIECES), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=512, special_tokens=["<|endoftext|>"],
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator([f"{row['question']}\n{row['answer']}" for row in rows], trainer)
    tokenizer.save(tokenizer_path)


if __name__ == "__main__":
    main()
