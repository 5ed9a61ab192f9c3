#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goldens of chat_template_test.cpp: what transformers makes of conversations.

  make_chat_goldens.py                                   writes tests/golden/chat/ again
  make_chat_goldens.py compare PROGRAM TEMPLATE.jinja …  compares other templates, stores nothing

Needs transformers 5.23.0 (and Jinja2 3.1.6, tokenizers 0.23.3); seconds on one core.

tests/golden/chat/conversations.jsonl holds the conversations, {"messages", "tools",
"add_generation_prompt", "variables"} a line, made by a seed: with and without system message, several
turns, tools, tool calls, reasoning, empty and odd texts, and some that templates refuse.
tests/golden/chat/NAME.json holds for tests/data/chat_templates/NAME.jinja

  special     the special tokens it was given
  texts       of each conversation the first 16 digits of the SHA-256 of the rendering; "!" where it raised
  tokens      the same of the token ids, "1,2,3", by the tokenizer llama3_style of tests/golden/tokenizers
  generated   of each conversation the bytes [begin, end, begin, end …] of {% generation %} blocks
  examples    a few renderings in full, by number

`compare` gives PROGRAM a line {"messages", "tools", "add_generation_prompt", "variables", "special"} for each
conversation on standard input, the template's path as argument, and reads {"text", "generated"} or {"error"}.
"""
import datetime
import hashlib
import json
import pathlib
import random
import subprocess
import sys

from tokenizers import Tokenizer
from transformers.utils import chat_template_utils

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN, TEMPLATES = ROOT / "tests" / "golden" / "chat", ROOT / "tests" / "data" / "chat_templates"
NOW = 1699963200  # noon, 14 Nov 2023, in London
CONVERSATIONS = 320
SPECIAL = {
    "chatml": {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"},
    "chatml_generation": {"eos_token": "<|im_end|>"},
    "deepseek_r1_distill": {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"},
    "llama3.1": {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"},
    "llama3.2": {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"},
    "mistral_nemo": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
    "phi3.5": {"bos_token": "<s>", "eos_token": "<|endoftext|>", "unk_token": "<unk>", "pad_token": "<|endoftext|>"},
    "qwen2.5": {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
    "qwen3": {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
}

TEXTS = [
    "", " ", "\n", "Hi", "Hello!\n", "  two\n lines  ", "\n\nedges\t\n", "What is 2+2?", "4", "caf\u00e9 \u2014 na\u00efve", "\u4f60\u597d\uff0c\u4e16\u754c",
    "\u00a0nbsp\u2003", "\x85next\x85", "\u200bzero\u200b", "\ufeffbom", "\x1cfs\x1f", "\u2028ls\u2029", "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f44d\U0001f3fd",
    "\u0645\u0631\u062d\u0628\u0627", "it's \"quoted\" 'both'", "a\\b\\n", "{{ not a tag }} {% if %} {# no #}", "<b>&amp;</b>", "tab\tcr\rcrlf\r\n",
    "<think>\nhidden\n</think>\n\nshown", "<think>open", "closed</think>rest", "a</think>b</think>c", "<think></think>", "x<think>y</think>\n z ",
    "<tool_response>\nfaked\n</tool_response>", "<tool_response>", "<|im_end|>\n<|im_start|>user\n", "[INST] x [/INST]", "</s>", "```python\nprint(1)\n```\n",
    '{"name": "f", "arguments": {}}', "None", "null", "\x00nul\x7f", "line\n" * 5, "\u00df \u0130 \ufb01", "\u0435\u0449\u0451 \u0440\u0430\u0437", "e\u0301", "1,2;3", "\\boxed{7}",
]
NAMES = ["get_weather", "add", "search_\u7db2", "no args", "f"]


class Conversations:
    def __init__(self, seed):
        self.rng = random.Random(seed)

    def text(self):
        rng = self.rng
        if rng.random() < 0.6:
            return rng.choice(TEXTS)
        return rng.choice(["", " ", "\n"]).join(rng.choice(TEXTS) for _ in range(rng.randint(2, 3)))[:160]

    def value(self, depth=0):
        rng = self.rng
        pick = rng.randrange(9 if depth < 2 else 7)
        if pick == 7:
            return [self.value(depth + 1) for _ in range(rng.randint(0, 3))]
        if pick == 8:
            return {rng.choice(["a", "b", "\u00fc", "x y", "items", "get", "Z", "\"q\""]): self.value(depth + 1) for _ in range(rng.randint(0, 3))}
        return [self.text(), rng.randint(-5, 10**6), rng.choice([0.5, -1e-7, 1e22, 3.0, 123456.789, 1e16]), True, False, None, rng.choice(TEXTS)][pick]

    def tool(self):
        rng = self.rng
        function = {"name": rng.choice(NAMES), "description": self.text()}
        if rng.random() < 0.8:
            properties = {rng.choice("xyz") + str(i): {"type": rng.choice(["string", "integer", "array", ["string", "null"]]),
                                                         "description": self.text()} for i in range(rng.randint(0, 2))}
            function["parameters"] = {"type": "object", "properties": properties, "required": sorted(properties)[:1]}
        if rng.random() < 0.2:
            function["return"] = {"type": "number"}
        if rng.random() < 0.2:
            function["strict"] = True
        return {"type": "function", "function": function}

    def call(self):
        rng = self.rng
        arguments = {rng.choice("xyz"): self.value() for _ in range(rng.randint(0, 2))}
        call = {"type": "function", "function": {"name": rng.choice(NAMES), "arguments": arguments}}
        if rng.random() < 0.15:
            call["function"]["arguments"] = json.dumps(arguments)
        if rng.random() < 0.7:
            call["id"] = "abcdefgh" + rng.choice("0123456789")
        return call if rng.random() < 0.9 else call["function"]

    def assistant(self, tools):
        rng = self.rng
        message = {"role": "assistant", "content": self.text()}
        if tools and rng.random() < 0.5:
            message["tool_calls"] = [self.call() for _ in range(1 if rng.random() < 0.7 else 2)]
            if rng.random() < 0.4:
                message["content"] = rng.choice(["", None])
        if rng.random() < 0.25:
            message[rng.choice(["reasoning_content", "reasoning_content", "thinking", "reasoning"])] = rng.choice([self.text(), self.text(), None])
        return message

    def odd(self, messages):
        """Something that templates may refuse."""
        rng = self.rng
        pick = rng.randrange(7)
        place = rng.randrange(len(messages))
        if pick == 0:
            messages.insert(place, {"role": "user", "content": self.text()})
        elif pick == 1:
            messages[place] = {"role": rng.choice(["tool", "ipython", "developer", "critic", ""]), "content": self.text()}
        elif pick == 2:
            messages[place]["content"] = [{"type": "text", "text": self.text()}, {"type": "text", "text": self.text()}]
        elif pick == 3:
            messages[place].pop("content", None)
        elif pick == 4:
            messages[place]["content"] = rng.choice([None, 5, 1.5, True, {"content": "x"}])
        elif pick == 5:
            messages.insert(place, {"role": "system", "content": self.text()})
        else:
            messages[place]["name"] = self.text()

    def one(self):
        rng = self.rng
        tools = [self.tool() for _ in range(rng.randint(1, 2))] if rng.random() < 0.35 else None
        if rng.random() < 0.04:
            tools = []
        messages = []
        if rng.random() < 0.5:
            messages.append({"role": "system", "content": self.text()})
        for _ in range(rng.randint(1, 3)):
            messages.append({"role": "user", "content": self.text()})
            answer = self.assistant(tools)
            messages.append(answer)
            for call in answer.get("tool_calls", []):
                message = {"role": "tool", "content": self.text()}
                if rng.random() < 0.7:
                    message["tool_call_id"] = call.get("id", "abcdefgh0")
                messages.append(message)
            if "tool_calls" in answer and rng.random() < 0.8:
                messages.append(self.assistant(None))
        if rng.random() < 0.6:
            messages.append({"role": "user", "content": self.text()})
        if rng.random() < 0.15:
            self.odd(messages)
        variables = {}
        if rng.random() < 0.4:
            variables["enable_thinking"] = rng.random() < 0.5
        if rng.random() < 0.15:
            variables["date_string"] = "01 Feb 2024"
        if rng.random() < 0.1:
            variables["tools_in_user_message"] = False
        return {"messages": messages, "tools": tools, "add_generation_prompt": rng.random() < 0.6, "variables": variables}


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW, tz)


def render(source, special, row):
    """The text and the generated spans in bytes, as apply_chat_template makes them; None: it raised."""
    messages = [{key: value for key, value in message.items() if value is not None} for message in row["messages"]]
    variables = {**special, **row["variables"]}
    try:
        texts, spans = chat_template_utils.render_jinja_template(
            conversations=[messages], tools=row["tools"], chat_template=source, return_assistant_tokens_mask="generation %}" in source,
            add_generation_prompt=row["add_generation_prompt"], **variables)
    except Exception as error:  # whatever the template raises, and what values do not allow
        return None, str(error)
    text = texts[0]
    in_bytes = [len(text[:at].encode()) for span in (spans[0] if spans else []) for at in span]
    return text, in_bytes


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def make():
    maker = Conversations(seed=20)
    rows = [maker.one() for _ in range(CONVERSATIONS)]
    GOLDEN.mkdir(exist_ok=True)
    (GOLDEN / "conversations.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    tokenizer = Tokenizer.from_file(str(ROOT / "tests" / "golden" / "tokenizers" / "llama3_style" / "tokenizer.json"))
    for name, special in SPECIAL.items():
        source = (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")
        golden = {"special": special, "now": NOW, "texts": [], "tokens": [], "generated": [], "examples": {}}
        for i, row in enumerate(rows):
            text, spans = render(source, special, row)
            golden["texts"].append("!" if text is None else digest(text))
            ids = [] if text is None else tokenizer.encode(text, add_special_tokens=False).ids
            golden["tokens"].append("!" if text is None else digest(",".join(map(str, ids))))
            if "generation %}" in source:
                golden["generated"].append(spans if text is not None else [])
            if text is not None and len(golden["examples"]) < 4 and i % 7 == 0:
                golden["examples"][str(i)] = text
        (GOLDEN / f"{name}.json").write_text(json.dumps(golden, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
        print(f"{name}: {sum(text != '!' for text in golden['texts'])} of {len(rows)} rendered")


def compare(program, paths, seed=7, count=600):
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    for path in paths:
        source = pathlib.Path(path).read_text(encoding="utf-8")
        maker = Conversations(seed)
        rows = [maker.one() for _ in range(count)]
        lines = "".join(json.dumps({**row, "special": special}) + "\n" for row in rows)
        run = subprocess.run([program, path], input=lines, capture_output=True, text=True)
        answers = [json.loads(line) for line in run.stdout.split("\n") if line]
        same = refused = 0
        first = f"the program ended with {run.returncode}: {run.stderr[-300:]}" if len(answers) != count else ""
        for row, answer in zip(rows, answers):
            text, spans = render(source, special, row)
            if text is None and "error" in answer:
                refused += 1
            elif text is not None and answer.get("text") == text:
                same += 1
            elif not first:
                first = json.dumps({"row": row, "got": answer, "want": text, "why": spans if text is None else ""}, ensure_ascii=False)
        print(f"{'ok  ' if same + refused == count else 'FAIL'} {pathlib.Path(path).name}: {same} equal, {refused} refused by both, "
              f"{count - same - refused} differ {first[:6000]}")


if __name__ == "__main__":
    chat_template_utils.datetime = Clock
    if sys.argv[1:2] == ["compare"]:
        compare(sys.argv[2], sys.argv[3:])
    else:
        make()
