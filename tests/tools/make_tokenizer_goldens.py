#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goldens of tokenizer_test.cpp, made with the Hugging Face `tokenizers` library (0.23.3).

  make_tokenizer_goldens.py goldens --data DATA --demo DEMO_FOLDER     writes tests/golden/tokenizers/
  make_tokenizer_goldens.py full    --data DATA --demo DEMO_FOLDER --output FOLDER [--random 20000]

DATA holds gsm8k/, math/ and tokenizers/ (the last for the qwen3 and minimind cases). `goldens` trains six
small tokenizers on GSM8K (byte-level: GPT-2 style, Llama-3 style, and one with every flag; with SentencePiece's
pieces: as in the tokenizer.json of Llama 2 and of Mistral, and one with everything odd) and writes for each
tokenizer a few hundred texts with their tokens. `full` writes every text of the data and many random ones, for a
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

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden" / "tokenizers"
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


BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def pieces(data, size, special, initial=BYTES, across_words=False):
    """SentencePiece's kind of vocabulary: special tokens, bytes, characters, merges of characters."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Replace(" ", "▁")
    if not across_words:
        t.pre_tokenizer = pre_tokenizers.Metaspace()
    texts = [t for _, t in zip(range(4000), data_texts(data))]
    if across_words:  # short ones: a text is one word
        texts = [" ".join(words[i:i + 4]) for words in (text.split(" ") for text in texts[:1500]) for i in range(0, len(words), 4)]
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, special_tokens=special + initial, show_progress=False))
    t.normalizer = None
    t.pre_tokenizer = None
    return t


def edited(tokenizer, edit):
    """With its tokenizer.json changed: bytes are no added tokens there, rows of spaces are merged, …"""
    described = json.loads(tokenizer.to_str())
    bytes_of = set(BYTES)
    described["added_tokens"] = [token for token in described["added_tokens"] if token["content"] not in bytes_of]
    edit(described)
    return Tokenizer.from_str(json.dumps(described))


def add_merge(described, left, right):
    vocabulary = described["model"]["vocab"]
    vocabulary.setdefault(left + right, max(vocabulary.values()) + 1)
    described["model"]["merges"].append([left, right])


def bos_template(tokenizer):
    return processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))])


def llama_decoder():
    return decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])


def llama2_style(data, size=1200):
    def edit(described):
        for length in (1, 2, 4):
            add_merge(described, "▁" * length, "▁" * length)
        add_merge(described, "▁▁", "▁")
    t = edited(pieces(data, size, ["<unk>", "<s>", "</s>"]), edit)
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = llama_decoder()
    t.post_processor = bos_template(t)
    return t


def mistral_style(data, size=1200):
    t = edited(pieces(data, size, ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]), lambda described: None)
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    t.decoder = llama_decoder()
    t.post_processor = bos_template(t)
    return t


def odd_pieces(data):
    """Tokens of several words, bytes that are missing or merged, normalized added tokens with every flag."""
    def edit(described):
        add_merge(described, "<0xC3>", "<0xA9>")
        described["model"]["ignore_merges"] = False
    t = edited(pieces(data, 1000, ["<unk>", "<s>", "</s>"], BYTES[0x80:0xD0], across_words=True), edit)
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(" ", "▁"), normalizers.Replace(Regex("\\t+"), "  ")])
    t.pre_tokenizer = pre_tokenizers.Split("|", "merged_with_previous")
    t.decoder = decoders.Metaspace()
    t.add_special_tokens([AddedToken("MARK", lstrip=True, rstrip=True, special=True)])
    t.add_tokens([AddedToken("cafe\u0301", normalized=True), AddedToken("word", single_word=True, normalized=True),
                  AddedToken("LEFT", lstrip=True, normalized=True), AddedToken("RIGHT", rstrip=True, normalized=False),
                  AddedToken("a b", normalized=True), AddedToken("long", normalized=False), AddedToken("longer", normalized=False)])
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


def save(tokenizer, folder, old_merges=False):
    """`old_merges`: "a b" instead of ["a", "b"], as the library wrote them until 2024."""
    folder.mkdir(parents=True, exist_ok=True)
    described = json.loads(tokenizer.to_str())
    if old_merges:
        described["model"]["merges"] = [" ".join(merge) for merge in described["model"]["merges"]]
    (folder / "tokenizer.json").write_text(json.dumps(described, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["goldens", "full"])
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--demo", type=pathlib.Path, required=True, help="folder with the demo's tokenizer.json")
    parser.add_argument("--output", type=pathlib.Path, default=GOLDEN)
    parser.add_argument("--random", type=int, default=20000)
    args = parser.parse_args()

    made = {style.__name__: style(args.data) for style in (gpt2_style, llama3_style, every_flag)}
    for name, tokenizer in made.items():
        save(tokenizer, args.output / name)
    (args.output / "demo").mkdir(parents=True, exist_ok=True)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(args.demo / file, args.output / "demo" / file)
    made["demo"] = Tokenizer.from_file(str(args.demo / "tokenizer.json"))
    made["qwen3"] = Tokenizer.from_file(str(args.data / "tokenizers" / "qwen3" / "tokenizer.json"))
    made["minimind"] = Tokenizer.from_file(str(args.data / "tokenizers" / "minimind.tokenizer.json"))

    for style in (llama2_style, mistral_style, odd_pieces):
        made[style.__name__] = style(args.data)
        save(made[style.__name__], args.output / style.__name__, old_merges=style is llama2_style)

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
