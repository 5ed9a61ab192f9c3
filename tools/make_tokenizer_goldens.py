#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goldens of tokenizer_test.cpp, made with the Hugging Face `tokenizers` library (0.23.3).

  make_tokenizer_goldens.py goldens --data DATA --demo DEMO_FOLDER     writes tests/golden/tokenizers/
  make_tokenizer_goldens.py full    --data DATA --demo DEMO_FOLDER --output FOLDER [--random 20000]

DATA holds gsm8k/, math/ and tokenizers/ (the last for the qwen3 and minimind cases). `goldens` trains three
small tokenizers on GSM8K (GPT-2 style, Llama-3 style, and one with every flag) and writes for each tokenizer
a few hundred texts with their tokens. `full` writes every text of the data and many random ones, for a
comparison by hand.

A row: {"text", "tokens", "decoded", "plain"}: encode without added special tokens, decode with special tokens
and without. A row without "text" is a random list of ids, to decode only.
"""
import argparse
import json
import pathlib
import random
import shutil

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "tokenizers"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")

NASTY = [
    "", " ", "  ", "\n", "\r\n", "\t\t", "a", " a", "a ", "  a  b  ", "\n\n a\n \n", "\u00a0\u2003 x\u3000\u3000y",
    "\u180e a\u180e\u180eb", "\u0085x\u0085\u0085y", "\x1c\x1d\x1e\x1f", "\x00\x01\x7f\x80\x9f", "\ufeffBOM\ufeff",
    "it's IT'S it'S we'LL they'Re i'M I'd you'vE 'tis ''s", "it'\u017f we'\u017f", "\u017ft\u017f K\u212a",
    "1234567 12 3 ١٢٣٤ ५६७ ⅷ ½ ²³ 一二", "x=-1.5e+10;y:=3//2**4!=5", "....!!!???---___", "(((a)))[[b]]{{c}}",
    "e\u0301 E\u0301 o\u0302\u0323 a\u0323\u0302", "\u212b \u2126 \u1e9b\u0323", "\u1100\u1161\u11a8 가각",
    "\u0958 \u09dc \u0a33 \ufb1d \u2adc \U0001d15e", "a\u0300\u0301\u0302\u0303\u0304", "\u0301\u0301", "\u0344 \u0340",
    "日本語のテキスト。中文文本，测试！", "Привет, мир! Ёлка", "مرحبا بالعالم", "नमस्ते दुनिया", "สวัสดีชาวโลก",
    "👩‍👩‍👧‍👦 👍🏽 🇩🇪🇫🇷 ❤️ 🏴󠁧󠁢󠁥󠁮󠁧󠁿", "\U0001f9d1\u200d\U0001f680", "ﬁ ﬂ ﬆ ß ẞ İ ı ŉ", "\ufffd \ufffe \uffff \U0010ffff",
    "\U00010400\U00010428 \U0001d400", "\U00031350 \U0002ebf0", "<|endoftext|>", "<|im_start|>user\nhi<|im_end|>\n",
    "<|im_start|<|im_end|>", "<|endoftext|><|endoftext|>", " <|endoftext|> ", "<think>\n1+1\n</think>", "<tool_call>{}</tool_call>",
    "<<48/2=24>>24", "<<<|im_end|>>>", "<|im_end|", "def f(x):\n    return x\n\n\n\tif y:\n\t\tz\r\n\r\n",
    "a" * 300, "ab" * 120, " " * 200 + "x", "0" * 100, "\n" * 77, "!" * 90, "é" * 100, "aaaa bbbb " * 12,
    "100,200:99<think>100,200:99>7*6=42\n</think><answer>(7+3)*6</answer><eos>",
    "MARK", " MARK ", "xMARKx", "\t\n MARK\u00a0\u2003 y", "café CAFÉ cafe\u0301", "word", " word.", "swords wordy",
    "_word é.word", "word\u0301 word\u200d", "  LEFT  LEFT", "RIGHT  RIGHT ", "LEFT RIGHT LEFT", "LEFTRIGHT", "longer long long", "é word",
]


def data_texts(data):
    """Every text of the data files."""
    for name in ("train", "test"):
        for line in (data / "gsm8k" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            yield row["question"]
            yield row["answer"]
    for row in json.loads((data / "math" / "math500.json").read_text(encoding="utf-8")):
        yield row["problem"]
        yield row["answer"]


class RandomTexts:
    """Texts made of everything that pre-tokenizers and normalizers treat differently."""

    def __init__(self, seed, tokens, words):
        self.rng, self.tokens, self.words = random.Random(seed), tokens, words

    def code_point(self, low, high):
        while True:
            point = self.rng.randint(low, high)
            if not 0xD800 <= point <= 0xDFFF:
                return chr(point)

    def piece(self):
        pick = self.rng.randrange(15)
        if pick == 0:
            return self.code_point(0, 0x10FFFF)
        if pick == 1:
            return self.code_point(0, 0x2FFF)
        if pick == 2:
            return self.code_point(0, 0xFF)
        if pick == 3:
            return self.rng.choice("aeioucnsAEOU가ㄱकxω") + "".join(
                self.code_point(0x300, 0x36F) for _ in range(self.rng.randint(1, 3)))
        if pick == 4:
            return self.rng.choice([" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u2003", "\u180e", "\u0085", "\u3000", "\x1c"])
        if pick == 5:
            return self.rng.choice("'’") + self.rng.choice(["s", "T", "re", "VE", "m", "lL", "d", "\u017f", "x"])
        if pick == 6:
            return str(self.rng.randrange(10 ** self.rng.randint(1, 12)))
        if pick == 7:
            return "".join(self.rng.choice("!?.,;:-_=+*/<>()[]{}|\\\"'#$%^&@~`") for _ in range(self.rng.randint(1, 4)))
        if pick == 8:
            return self.rng.choice(self.tokens)
        if pick == 9:
            return self.rng.choice(self.tokens)[:self.rng.randint(1, 6)]
        if pick == 10:
            return self.code_point(0x1F300, 0x1FAFF) + self.rng.choice(["", "\u200d", "\ufe0f", "\U0001f3fd"])
        if pick == 11:
            return chr(self.rng.choice([0x660, 0x966, 0xFF10, 0x2160, 0xBC, 0x1D7CE]) + self.rng.randrange(3))
        if pick == 12:
            return self.code_point(0x1100, 0x11FF) + self.code_point(0x1161, 0x11FF)
        return self.rng.choice(["", " ", " "]) + self.rng.choice(self.words)

    def text(self):
        return "".join(self.piece() for _ in range(self.rng.randint(1, 24)))


def train(data, tokenizer, size, special):
    """A small vocabulary from the first 2000 questions."""
    texts = [t for _, t in zip(range(4000), data_texts(data))]
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return tokenizer


def gpt2_style(data):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return train(data, t, 900, ["<|endoftext|>"])


def llama3_style(data):
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    train(data, t, 1000, [])
    t.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
                         + [f"<|reserved_special_token_{i}|>" for i in range(20)])
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", t.token_to_id("<|begin_of_text|>"))])])
    return t


def every_flag(data):
    """NFC, digits, a removed separator, a space in front, and added tokens with each flag."""
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Sequence([normalizers.NFC()])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split("|", "removed"), pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=True)])
    t.decoder = decoders.ByteLevel()
    train(data, t, 600, [])
    t.add_special_tokens([AddedToken("MARK", lstrip=True, rstrip=True, special=True)])
    t.add_tokens([AddedToken("caf\u00e9", normalized=True), AddedToken("word", single_word=True, normalized=False),
                  AddedToken("LEFT", lstrip=True, normalized=False), AddedToken("RIGHT", rstrip=True, normalized=False),
                  AddedToken("long", normalized=False), AddedToken("longer", normalized=False), AddedToken("é", normalized=False)])
    return t


def row_of(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    return {"text": text, **decoded(tokenizer, ids)}


def decoded(tokenizer, ids):
    return {"tokens": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False),
            "plain": tokenizer.decode(ids, skip_special_tokens=True)}


def write_rows(path, rows):
    with open(path, "w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=True, separators=(",", ":")) + "\n")


def rows_of(tokenizer, texts, id_lists, seed):
    yield from (row_of(tokenizer, text) for text in texts)
    rng, size = random.Random(seed), tokenizer.get_vocab_size()
    for _ in range(id_lists):
        yield decoded(tokenizer, [rng.randrange(size) for _ in range(rng.randint(1, 12))])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["goldens", "full"])
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--demo", type=pathlib.Path, required=True, help="folder with the demo's tokenizer.json")
    parser.add_argument("--output", type=pathlib.Path, default=GOLDEN)
    parser.add_argument("--random", type=int, default=20000)
    args = parser.parse_args()

    made = {"gpt2_style": gpt2_style(args.data), "llama3_style": llama3_style(args.data), "every_flag": every_flag(args.data)}
    for name, tokenizer in made.items():
        (args.output / name).mkdir(parents=True, exist_ok=True)
        tokenizer.save(str(args.output / name / "tokenizer.json"), pretty=False)
    (args.output / "demo").mkdir(parents=True, exist_ok=True)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(args.demo / file, args.output / "demo" / file)
    made["demo"] = Tokenizer.from_file(str(args.demo / "tokenizer.json"))
    made["qwen3"] = Tokenizer.from_file(str(args.data / "tokenizers" / "qwen3" / "tokenizer.json"))
    made["minimind"] = Tokenizer.from_file(str(args.data / "tokenizers" / "minimind.tokenizer.json"))

    texts = list(data_texts(args.data))
    words = sorted({w for t in texts[:400] for w in t.split()})
    for seed, (name, tokenizer) in enumerate(made.items()):
        tokens = sorted(t.content for t in tokenizer.get_added_tokens_decoder().values())
        maker = RandomTexts(seed, tokens, words)
        if args.what == "goldens":
            chosen = NASTY + texts[:20] + [maker.text() for _ in range(200)]
            write_rows(args.output / f"{name}.jsonl", rows_of(tokenizer, chosen, 40, seed))
        else:
            chosen = NASTY + texts + [maker.text() for _ in range(args.random)]
            write_rows(args.output / f"{name}.jsonl", rows_of(tokenizer, chosen, 2000, seed))


if __name__ == "__main__":
    main()
