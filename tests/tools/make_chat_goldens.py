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

tests/golden/chat/blocks.json holds for jinja_test.cpp [template, its rendering; null where it raised] for macros, blocks and
loops.

tests/golden/chat/turns.json holds what conversations of several turns teach, for chat_spans_test.cpp

  conversations  as above, without add_generation_prompt
  templates      by name: added     tokens the tokenizer llama3_style is given, in this order, and of them
                          eos       those that end a response, and
                          turns     of each conversation [[prompt, learned] for each message of the assistant]: the digest
                                    of the token ids of the messages before it with the generation prompt, and the text
                                    written out by hand below; "!" where the conversation is to be refused
                          rows      of each conversation how many rows that takes: a message whose prompt and text a
                                    later message's prompt begins with shares its row

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

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
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


ENDS = {  # of a turn; what else ends a response
    "chatml": ["<|im_end|>"], "chatml_generation": ["<|im_end|>"], "qwen2.5": ["<|im_end|>", "<|endoftext|>"],
    "qwen3": ["<|im_end|>", "<|endoftext|>"], "deepseek_r1_distill": ["<\uff5cend\u2581of\u2581sentence\uff5c>"],
    "llama3.1": ["<|eot_id|>", "<|eom_id|>"], "llama3.2": ["<|eot_id|>", "<|eom_id|>"], "mistral_nemo": ["</s>"],
    "phi3.5": ["<|end|>", "<|endoftext|>", "<|assistant|>"],
}
ADDED = {
    "chatml": ["<|im_start|>"], "chatml_generation": ["<|im_start|>"], "qwen2.5": ["<|im_start|>"], "qwen3": ["<|im_start|>", "<think>", "</think>"],
    "deepseek_r1_distill": ["<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>"], "llama3.1": [], "llama3.2": [],
    "mistral_nemo": ["<s>", "[INST]", "[/INST]", "[TOOL_CALLS]"], "phi3.5": ["<|system|>", "<|user|>"],
}


def turn_conversations():
    def says(role, content, **more):
        return {"role": role, "content": content, **more}
    system, hi = says("system", "You add."), says("user", "1+1?")
    call = {"type": "function", "id": "abcdefgh0", "function": {"name": "add", "arguments": {"x": 1}}}
    tool = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {}}}}
    two, four = says("assistant", "assistant: 2"), says("assistant", "assistant: 2")
    thought = says("assistant", "<think>\nOne and one.\n</think>\n\n2")
    odd = says("assistant", "<think>\n<a>\n\n</think>\n\n<|Assistant <t>")
    by_field = says("assistant", "2", reasoning_content="One and one.")
    talks = [
        [hi, two], [system, hi, two], [hi, two, says("user", "2+0?"), four], [system, hi, two, says("user", "2+0?"), four, says("user", ""), two],
        [hi, thought], [hi, thought, hi, odd, says("user", "<think>"), thought], [system, hi, thought, hi, two, hi, thought],
        [hi, by_field, hi, by_field], [system, hi, two, says("user", "thanks")], [hi, says("assistant", "\n\n2\n\n"), hi, says("assistant", " \u4f60\u597d\U0001f600")],
        [hi, says("assistant", ""), hi, two], [hi, two, four], [hi, says("assistant", "a</think>b"), hi, thought],
    ]
    rows = [{"messages": talk, "tools": None, "variables": {}} for talk in talks]
    rows += [{"messages": talks[at], "tools": None, "variables": {"enable_thinking": False}} for at in (2, 5, 7)]
    calls = [hi, says("assistant", "", tool_calls=[call]), says("tool", "2", tool_call_id="abcdefgh0"), two, hi, four]
    rows += [{"messages": messages, "tools": [tool], "variables": {}} for messages in (calls, [system, *calls], [hi, says("assistant", "", reasoning_content="I must.", tool_calls=[call]), *calls[2:4]])]
    for row in rows:
        row["variables"]["date_string"] = "26 Jul 2024"  # not today's
    return rows


def written_by_hand(name, row, i):
    """What the message teaches; None: it cannot be learned from by this template."""
    message, think_off = row["messages"][i], row["variables"].get("enable_thinking") is False
    content, reasoning, end = message["content"], message.get("reasoning_content", ""), ENDS[name][0]
    if "tool_calls" in message:
        if name == "mistral_nemo" and row["messages"][0]["role"] == "system":
            return None  # the system message is gone once the assistant has answered
        special = SPECIAL[name]
        source = (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")
        before, through = (render(source, special, {**row, "messages": row["messages"][:i + more], "add_generation_prompt": not more})[0] for more in (0, 1))
        if before is None or through is None or not through.startswith(before):
            return None
        return through[len(before):].split(end)[0] + end
    if name == "qwen3":
        if row["messages"][i - 1]["role"] == "assistant":
            return None  # the one before is written with reasoning, and without once this is there
        if not reasoning and "</think>" in content:
            reasoning, content = content.split("</think>")[0].rstrip("\n").split("<think>")[-1].lstrip("\n"), content.split("</think>")[-1]
        if think_off:
            return None if reasoning else content.lstrip("\n") + end
        return "<think>\n" + reasoning.strip("\n") + "\n</think>\n\n" + content.lstrip("\n") + end
    if name == "deepseek_r1_distill":
        if row["messages"][i - 1]["role"] in ("tool", "assistant") and content:
            return content + end if row["messages"][i - 1]["role"] == "tool" else None
        return content.removeprefix("<think>\n") + end if content.startswith("<think>\n") and not reasoning else None
    return (content.strip() if name.startswith("llama") else content) + end


def make_turns():
    rows, templates = turn_conversations(), {}
    for name in SPECIAL:
        source = (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")
        tokenizer = Tokenizer.from_file(str(ROOT / "tests" / "golden" / "tokenizers" / "llama3_style" / "tokenizer.json"))
        added = [token for token in ADDED[name] + ENDS[name] if tokenizer.token_to_id(token) is None]
        tokenizer.add_special_tokens(added)
        golden = {"special": SPECIAL[name], "added": [[token, tokenizer.token_to_id(token)] for token in added], "eos": ENDS[name], "turns": [], "rows": []}
        for row in rows:
            turns, learned = [], []
            for i, message in enumerate(row["messages"]):
                if message["role"] != "assistant":
                    continue
                before, _ = render(source, SPECIAL[name], {**row, "messages": row["messages"][:i], "add_generation_prompt": True})
                through, _ = render(source, SPECIAL[name], {**row, "messages": row["messages"][:i + 1], "add_generation_prompt": False})
                text = None if before is None or through is None else written_by_hand(name, row, i)
                if text is None:
                    turns = "!"
                    break
                prompt = tokenizer.encode(before, add_special_tokens=False).ids
                turns.append([digest(",".join(map(str, prompt))), text])
                learned.append((prompt, prompt + tokenizer.encode(text, add_special_tokens=False).ids))
            golden["turns"].append(turns)
            golden["rows"].append(0 if turns == "!" else sum(
                not any(later[:len(whole)] == whole for later, _ in learned[at + 1:]) for at, (_, whole) in enumerate(learned)))
        templates[name] = golden
        print(f"{name}: {sum(turns != '!' for turns in golden['turns'])} of {len(rows)} conversations, {golden['rows']} rows")
    lines = ",\n".join(json.dumps(name) + ": " + json.dumps(golden, ensure_ascii=False, separators=(",", ":")) for name, golden in templates.items())
    talks = ",\n".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows)
    (GOLDEN / "turns.json").write_text('{"conversations": [\n' + talks + '],\n"templates": {\n' + lines + "}}\n", encoding="utf-8")


BLOCKS = [
    # macros: what they see is looked up when they are called
    "{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}{% for x in [9] %}{{ m() }}{% endfor %}",
    "{% if n > 2 %}{% macro m(a) %}<{{ a }}{{ n }}>{% endmacro %}{% endif %}{% for i in [1, 2] %}{{ m(i * 10) }}{% endfor %}",
    "{% if n > 5 %}{% macro m() %}x{% endmacro %}{% endif %}{{ m() if m else 'none' }}",
    "{% macro m() %}{{ loop is defined }}{{ i is defined }}{% endmacro %}{% for i in [1] %}{{ m() }}{{ loop.index }}{% endfor %}",
    "{% macro fib(k) %}{{ 1 if k < 2 else (fib(k - 1) | int) + (fib(k - 2) | int) }}{% endmacro %}{{ fib(4) }} {{ fib(6) }}",
    "{% macro m(a, b=n) %}{{ a }}{{ b }}{% endmacro %}{{ m(5) }}{{ m(5, b=6) }}{{ m() }}{{ m(b=1, a=2) }}",
    "{% macro m() %}{% set x = 5 %}{{ x }}{% endmacro %}{{ m() }}{{ x is defined }}",
    "{% macro m(a) %}{{ a | upper }}{% endmacro %}{{ m('x') ~ m('y') }}{{ m('z') | length }}{{ [m('q')] }}",
    "{% macro m(f) %}{{ f('x') }}{% endmacro %}{% macro g(a) %}[{{ a }}]{% endmacro %}{{ m(g) }}",
    "{% set ns = namespace(c=0) %}{% macro add(k) %}{% set ns.c = ns.c + k %}{% endmacro %}{{ add(2) }}{{ add(3) }}{{ ns.c }}",
    "{% macro walk(nodes) %}{% for t in nodes %}{{ t.k }}{% if t.c %}({{ walk(t.c) }}){% endif %}{{ ',' if not loop.last }}{% endfor %}{% endmacro %}{{ walk(tree) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=1) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}",
    "{{ m() }}{% macro m() %}x{% endmacro %}", "{% macro m() %}{{ upper() }}{% endmacro %}{% set upper = 5 %}{{ m() }}",
    # blocks and loops
    "{% macro m() %}in{% endmacro %}{% set s %}({{ m() }}){% set x = 1 %}{% endset %}{{ s }}{{ s | upper }}{{ x is defined }}",
    "{% for i in list %}{% for j in 'ab' %}{{ loop.index }}{{ j }}{% else %}none{% endfor %}{{ loop.index }};{% endfor %}{% for i in [] %}x{% else %}none{% endfor %}",
    "{% for t in tree %}{% if t.k == 'a' %}{% continue %}{% endif %}{{ t.k }}{% break %}{% endfor %}",
    "{% for i in [1, 2] %}{% for j in [1, 2] %}{% if j == 2 %}{% break %}{% endif %}{{ i }}{{ j }}{% endfor %}{{ loop.last }}{% endfor %}",
    "{% set x = 0 %}{% for i in list if i > 1 %}{% set x = i %}{{ x }}{{ loop.length }}{% endfor %}{{ x }}",
    "{% for k, v in {'a': {'b': 1}, 'c': {}}.items() %}{{ k }}[{% for a, b in v.items() %}{{ a }}={{ b }}{% endfor %}]{% endfor %}",
    "{% for t in tree %}{{ x }}{% set x = t.k %}{{ x }}{% endfor %}{{ x }}", "{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}",
    "{% for t in tree %}{{ loop.previtem.k if loop.previtem }}<{{ t.k }}>{{ loop.nextitem.k if loop.nextitem is defined }}{{ loop.revindex }}{{ loop.revindex0 }}{% endfor %}",
    "{% for t in tree %}{{ loop.previtem.k }}{% endfor %}",
]
BLOCK_VARIABLES = {"n": 3, "list": [3, 1], "upper": "no", "tree": [{"k": "a", "c": [{"k": "b"}, {"k": "c", "c": [{"k": "d", "c": []}, {"k": "e"}]}]}, {"k": "f", "c": [{"k": "g"}]}]}


def make_blocks():
    rendered = []
    for source in BLOCKS:
        try:
            rendered.append([source, chat_template_utils._compile_jinja_template(source).render(**BLOCK_VARIABLES)])
        except Exception as error:
            rendered.append([source, None])
            print(f"  raises {error}: {source}")
    lines = ",\n".join(json.dumps(pair, ensure_ascii=False) for pair in rendered)
    (GOLDEN / "blocks.json").write_text('{"variables": ' + json.dumps(BLOCK_VARIABLES) + ',\n"cases": [\n' + lines + "]}\n", encoding="utf-8")
    print(f"blocks: {len(rendered)}")


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
        make_turns()
        make_blocks()
