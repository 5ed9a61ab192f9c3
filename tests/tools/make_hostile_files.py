#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes hostile input files for every parser of tlt: at most 1 MB each, the same bytes for the same seed.

  tests/tools/make_hostile_files.py OUT [--seed 1] [--mutants 30]

OUT/PARSER/NAME.EXT, instead of an earlier call's; tests/tools/run_hostile_files.py gives each to the program. Most are
written for one weakness: deep nesting, many keys, huge numbers, contradictory headers, overflowing sizes, aliases that
multiply, strings that are not UTF-8 or control a terminal. --mutants more per parser are valid files with bits flipped,
parts cut, repeated or exchanged.
"""

import argparse
import json
import pathlib
import random
import shutil
import struct
import sys

import _hostile_folders
import _hostile_requests
from _hostile_folders import mutate
from _hostile_texts import (ESCAPES, GOLDEN, MOST_BYTES, NUMBERS, ROOT, as_json, edges_of, fit, in_row, json_texts,
                            nested, not_utf8, safetensors_file)

# ---- the parsers: pairs of a name and the bytes or text of a file


def data_json():
    yield from json_texts()
    yield from in_row('[{"prompt": "x", "extra_info": ', "}]")
    yield "rows_of_lists", as_json([[1], [2]])
    yield "row_of_many_rows", as_json([{"prompt": "x"}] * 50_000)


def data_jsonl():
    row = as_json({"prompt": "1+1", "reward_model": {"ground_truth": "2"}})
    for name, text in json_texts():
        first = (row + "\n").encode()
        text = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        yield name, first + text.replace(b"\n", b" ") + b"\n"
    yield from in_row('{"prompt": "x", "extra_info": ', "}\n")
    yield "many_lines", "{}\n" * 300_000
    yield "many_columns", "".join(as_json({f"column{i}": i}) + "\n" for i in range(40_000))
    yield "one_line_no_end", row * 15_000


def data_rows():
    """Rows whose strings are JSON again: tests of the reward `code`."""
    def row(truth):
        return as_json({"response": "no code here", "ground_truth": truth, "data_source": "code", "prompt": "p",
                        "extra_info": {}}) + "\n"
    for name, text in json_texts():
        if isinstance(text, str):
            yield name, row(text[:600_000])
    for name, inside in (("lists", nested(200_000)), ("objects", nested(100_000, '{"a":', "}", "1")),
                         ("shallow", nested(200)), ("wide", "[" + "1," * 200_000 + "1]"), ("number", "1" * 300_000)):
        for i, place in enumerate(('{{"inputs":[{0}],"outputs":["1"]}}', '{{"inputs":["1"],"outputs":[{0}]}}',
                                   '{{"fn_name":"f","inputs":[[{0}]],"outputs":[1]}}', '["assert f({0}) == 1"]', '"{0}"')):
            yield f"{name}_{i}", row(place.format(inside))
    yield "many_tests", row(as_json({"inputs": ["1"] * 40_000, "outputs": ["1"] * 40_000}))
    yield "unequal_counts", row(as_json({"inputs": ["1"] * 5, "outputs": ["1"]}))


def safetensors():
    def tensor(shape, offsets, dtype="F32"):
        return {"dtype": dtype, "shape": shape, "data_offsets": offsets}
    for length in (0, 1, 7, 2**20, 2**27, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 8, 10**8):
        yield f"length_{length}", safetensors_file({}, length=length)
    for name, text in json_texts():
        yield "header_" + name, safetensors_file(text[:900_000])
    entries = {
        "overlap": {"a": tensor([4], [0, 16]), "b": tensor([4], [8, 24])},
        "gap": {"a": tensor([1], [0, 4]), "b": tensor([1], [8, 12])}, "backwards": {"a": tensor([1], [4, 0])},
        "outside": {"a": tensor([1000], [0, 4000])}, "wrong_size": {"a": tensor([3], [0, 16])},
        "negative": {"a": tensor([-1], [0, 4])}, "negative_offset": {"a": tensor([1], [-4, 0])},
        "overflow": {"a": tensor([2**32, 2**32, 4], [0, 16])}, "overflow_to_zero": {"a": tensor([2**62, 4], [0, 0])},
        "huge_offsets": {"a": tensor([1], [2**64 - 4, 2**64])}, "type": {"a": tensor([1], [0, 4], "F128")},
        "no_type": {"a": {"shape": [1], "data_offsets": [0, 4]}}, "float_shape": {"a": tensor([1.5], [0, 4])},
        "three_offsets": {"a": tensor([1], [0, 4, 8])}, "escapes": {ESCAPES: tensor([1], [0, 5])},
        "many_dimensions": {"a": tensor([1] * 100_000, [0, 4])},
        "many_empty": {f"t{i}": tensor([0], [0, 0]) for i in range(14_000)},
        "metadata": {"__metadata__": {"a": 1}}, "large_metadata": {"__metadata__": {str(i): "x" for i in range(50_000)}},
        "deep_metadata": {"__metadata__": json.loads(nested(400))},
    }
    for name, header in entries.items():
        yield name, safetensors_file(header, b"x" * 16)
    yield "same_name", safetensors_file('{"a":' + as_json(tensor([1], [0, 4])) + ',"a":' + as_json(tensor([1], [4, 8]))
                                        + "}", b"x" * 8)


def index():
    valid = json.loads((GOLDEN / "models/qwen3_sharded/model.safetensors.index.json").read_text())
    yield from json_texts()
    yield from edges_of(valid)
    names = list(valid["weight_map"])
    for name, file in {"parent": "../model.safetensors", "absolute": "/dev/zero", "folder": ".", "escapes": ESCAPES,
                       "long": "x" * 5000, "missing": "none.safetensors", "nul": "a\0b", "empty": ""}.items():
        yield f"file_{name}", as_json({"weight_map": dict.fromkeys(names, file)})
    yield "value_deep", '{"weight_map":{"a":' + nested(200_000) + "}}"
    yield "many_tensors", as_json({"weight_map": {f"t{i}": "model-00001-of-00003.safetensors" for i in range(18_000)}})
    yield "many_files", as_json({"weight_map": {f"t{i}": f"f{i}" for i in range(1_900)}})


def config():
    valid = json.loads((GOLDEN / "models/qwen2_tied/config.json").read_text())
    yield from json_texts()
    yield from in_row(as_json(valid)[:-1] + ', "unused": ', "}")
    yield from edges_of(valid, ["hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
                                "vocab_size", "num_hidden_layers", "eos_token_id", "rope_parameters", "model_type"])
    yield "huge_model", as_json({**valid, "hidden_size": 2**20, "num_hidden_layers": 2**20, "vocab_size": 2**31 - 1})
    for kind in ("linear", "llama3", "yarn", "longrope", "dynamic"):
        yield f"rope_{kind}", as_json({**valid, "rope_parameters": {"rope_type": kind, "factor": 1e308,
                                                                   "rope_theta": -1, "beta_fast": 0}})


def adapter():
    valid = json.loads((GOLDEN / "lora/all_linear/adapter_config.json").read_text())
    yield from json_texts()
    yield from edges_of(valid, ["r", "lora_alpha", "target_modules", "use_rslora"])
    yield "huge_rank", as_json({**valid, "r": 2**40})


def tokenizer():
    valid = json.loads((GOLDEN / "tokenizers/llama3_style/tokenizer.json").read_text())
    yield from json_texts()
    yield from edges_of(valid, ["model", "added_tokens", "normalizer", "pre_tokenizer", "decoder", "post_processor"])
    model = valid["model"]
    vocabulary = model["vocab"]
    for name, change in {
            "negative_ids": {"vocab": {word: -i for i, word in enumerate(vocabulary)}},
            "huge_ids": {"vocab": {word: 2**40 + i for i, word in enumerate(vocabulary)}},
            "far_id": {"vocab": {**vocabulary, "far": 2**31 - 1}}, "same_ids": {"vocab": dict.fromkeys(vocabulary, 0)},
            "many_merges": {"merges": model["merges"] * 100}, "unknown_merge": {"merges": ["qqqq zzzz"] * 1000},
            "three_parts": {"merges": ["a b c"]}, "long_merge": {"merges": ["a" * 400_000 + " b"]},
            "long_word": {"vocab": {**vocabulary, "a" * 800_000: len(vocabulary)}}, "no_merges": {"merges": None},
            "numbers_as_merges": {"merges": [[1, 2]] * 1000}}.items():
        yield name, as_json({**valid, "model": {**model, **change}})
    for i, pattern in enumerate(["(a+)+b", "(a|aa)*c", "[a]*b|a", "(?=", "(" * 2000, "a{1000}{1000}{1000}", "(?R)",
                                 "[\\s\\S]*", "\\1", "x" * 200_000, "(?<=a+)b", "(((a*)*)*)*b", "\\p{Nonsense}", ""]):
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        yield f"pattern_{i}", as_json({**valid, "pre_tokenizer": split})
        yield f"replaced_{i}", as_json({**valid, "normalizer": {"type": "Replace", "pattern": {"Regex": pattern},
                                                                "content": "y" * 1000}})
    replace = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}
    yield "growing", as_json({**valid, "normalizer": {"type": "Sequence", "normalizers": [replace] * 20}})
    yield "huge_content", as_json({**valid, "normalizer": {**replace, "content": "b" * 900_000}})
    yield "deep_normalizer", as_json(valid).replace('"normalizer": null', '"normalizer": ' + nested(
        3_000, '{"type":"Sequence","normalizers":[', "]}", '{"type":"NFC"}'))
    added = {"special": False, "single_word": False, "lstrip": False, "rstrip": False, "normalized": True}
    yield "many_added", as_json({**valid, "added_tokens": [{**added, "id": 5000 + i, "content": "a" * (i % 50) + str(i)}
                                                           for i in range(7_000)]})
    yield "long_added", as_json({**valid, "added_tokens": [{**added, "id": 5000, "content": "a" * 900_000}]})
    yield "prefixes_added", as_json({**valid, "added_tokens": [{**added, "id": 5000 + i, "content": "a" * (i + 1)}
                                                               for i in range(1_200)]})


TEMPLATES = [
    "{{", "{% if", "{% for x in messages %}", "{% endfor %}", "{{ " + "(" * 100_000, "{{ " + "[" * 100_000,
    "{{ " + "not " * 100_000 + "1 }}", "{{ " + "-" * 300_000 + "1 }}", "{{ 1" + " + 1" * 200_000 + " }}",
    "{{ 'a'" + " ~ 'a'" * 100_000 + " }}", "{{ a" + ".b" * 300_000 + " }}", "{{ a" + "[0]" * 200_000 + " }}",
    "{% if 1 %}" * 80_000 + "{% endif %}" * 10, "{{ 9 ** 9 ** 9 ** 9 }}", "{{ 2 ** 1000000000 }}",
    "{{ 'a' * 10000000000 }}", "{{ range(10 ** 12) | list }}", "{{ [1] * 10 ** 10 }}",
    "{% for i in range(10 ** 9) %}x{% endfor %}", "{% for i in range(10000) %}{% for j in range(10000) %}{% endfor %}{% endfor %}",
    "{% set t = 'a' * 20000000 %}{{ t.find('a' * 10000000 ~ 'b') }}",
    "{% set t = 'a' * 20000000 %}{{ t.replace('a' * 1000, 'b' * 2000) | length }}",
    "{% set t = 'a' * 20000000 %}{{ t.split('a') | length }}", "{% set t = 'ab' * 9000000 %}{{ t.count('aa' * 999) }}",
    "{{ ('a' * 5000000).strip('abcdefghij' * 100000) }}", "{{ ('a' * 9999999) in ('a' * 9999999 ~ 'b') }}",
    "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
    "{% set ns = namespace(t='ab') %}{% for i in range(60) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}{{ ns.t }}",
    "{% set ns = namespace(l=[]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
    "{{ '%999999999d' % 1 }}", "{{ '%.999999999f' % 1 }}", "{{ 'a'.center(9999999999) }}", "{{ '7'.zfill(10 ** 12) }}",
    "{{ ('\t' * 1000000).expandtabs(1000000) }}", "{{ 'a'.__class__.__mro__ }}", "{{ self }}", "{{ raise_exception(messages) }}",
    "{{ raise_exception('\x1b[2J\x1b]0;t\x07\u202e') }}", "{{ messages | tojson(indent=100000000) }}", "{{ strftime_now('%Y' * 100000) }}",
    "{{ strftime_now('%99999999Y') }}", "{{ range(3000000) | sort | unique | list | length }}", "{{ 'a' | indent(1000000000) }}",
    "{{ ('a,' * 1000000).split(',') | join(',' * 1000) }}", "{# " + "x" * 900_000, "{% raw %}" + "{{" * 300_000, "x" * 999_000,
    "{{ \"" + "\\n" * 400_000 + "\" }}", "{% set " + "a" * 900_000 + " = 1 %}", "{{ unknown_filter_" + "x" * 1000 + "(1) | nothing }}",
    "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}", "{{ [1,2,3] | batch(10 ** 10) | list }}",
    "{{ lipsum(10 ** 9) }}", "{{ cycler(1).next() }}" * 20_000, "{% call f() %}" * 30_000, "{{ messages[99999999999999999999] }}",
    "{{ 'abc'[::0] }}", "{{ 'abc'[-10**30:10**30] }}", "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ 1 % 0 }}", "{{ -2**63 // -1 }}",
    "{{ 1e308 * 10 }}", "{{ (1e308 * 10) | int }}", "{{ 9223372036854775807 + 1 }}", "{{ '9' * 100000 | int }}",
]


def chat_template():
    valid = {"chat_template": "{{ messages[0].content }}"}
    for i, template in enumerate(TEMPLATES):
        yield f"template_{i}", as_json({**valid, "chat_template": template})
    yield from json_texts()
    yield from in_row(as_json(valid)[:-1] + ', "unused": ', "}")
    yield from edges_of({**valid, "bos_token": "3", "eos_token": {"content": "4"}, "additional_special_tokens": []})
    yield "many_templates", as_json({**valid, "chat_template": [{"name": f"t{i}", "template": "{{ 1 }}"}
                                                                for i in range(10_000)]})


def toml():
    head = '[reward]\nfunctions = ["math"]\n'
    yield from {
        "empty": "", "deep_list": "a = " + nested(300_000), "deep_table": "a = " + nested(100_000, "{b=", "}", "1"),
        "dots": "a" + ".a" * 400_000 + " = 1", "table_dots": "[a" + ".a" * 400_000 + "]",
        "array_tables": "[[a]]\n" * 150_000, "many_tables": "".join(f"[t{i}]\n" for i in range(90_000)),
        "many_keys": "".join(f"k{i} = 1\n" for i in range(70_000)), "same_key": "a = 1\n" * 100_000,
        "huge_list": head + "[data]\ntrain_files = [" + '"x",' * 200_000 + "]", "open_string": 'a = """' + "x" * 900_000,
        "long_value": head + '[model]\npath = "' + "x" * 900_000 + '"', "long_key": "k" * 900_000 + " = 1",
        "escapes": f'"{as_json(ESCAPES)[1:-1]}" = 1', "raw_escapes": f'[reward]\n"{ESCAPES}" = 1',
        "value_escapes": head + '[model]\npath = "\\u001b[2J\\u0007"\n[trainer]\nexperiment_name = "\\u001b]0;x"',
        "date": "a = 2026-99-99T99:99:99Z", "bom": "\ufeff" + head, "crlf": head.replace("\n", "\r"), "binary": "\0" * 1000,
        "table_twice": "[reward]\n[reward]\n", "table_of_value": "reward = 1\n[reward]\n", "unknown": "[rewards]\na = 1\n",
        "comments": "#" * 900_000, "blank": "\n" * 900_000, "equals": "=" * 10_000, "unicode": "\\U00110000 = 1",
    }.items()
    for i, number in enumerate([*NUMBERS, "0b" + "1" * 1000, "0o777777777777777777777777", "1_" * 1000 + "1", "+inf", "nan"]):
        yield f"number_{i}", head + f"[trainer]\nseed = {number}\n"
        yield f"rate_{i}", head + f"[actor.optim]\nlr = {number}\n"
    for name, damage in not_utf8().items():
        yield name, head.encode() + b'[model]\npath = "' + damage + b'"\n'
    for option in ("rollout.n", "data.train_batch_size", "data.train_files", "trainer.seed", "actor.optim.betas"):
        for i, value in enumerate(["-1", "0", "9223372036854775807", "1e300", '"x"', "[]", "[[]]", "{}", "true", "nan"]):
            yield f"{option}_{i}", head + f"{option} = {value}\n"


def yaml():
    aliases = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
    maps = "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{x: *a{i - 1}, y: *a{i - 1}}}\n" for i in range(1, 40))
    yield from {
        "empty": "", "alias_lists": aliases, "alias_maps": maps, "recursive": "a: &a [*a]\n", "recursive_map": "a: &a {b: *a}\n",
        "self_merge": "a: &a\n  <<: *a\n", "unknown_alias": "a: *b\n", "deep_flow": nested(300_000),
        "deep_flow_map": nested(150_000, "{a: ", "}", "1"), "deep_block": "".join(" " * i + "a:\n" for i in range(1_300)),
        "deep_sequence": "- " * 300_000 + "x", "many_keys": "".join(f"k{i}: 1\n" for i in range(90_000)),
        "same_key": "a: 1\n" * 150_000, "many_items": "a:\n" + "- 1\n" * 200_000, "many_anchors": "".join(f"a{i}: &b{i} 1\n" for i in range(60_000)),
        "documents": "---\na: 1\n" * 90_000, "tabs": "\ta: 1\n", "tag": "a: !!python/object/apply:os.system ['true']\n",
        "binary_tag": "a: !!binary " + "A" * 500_000 + "\n", "long_key": "k" * 900_000 + ": 1\n", "long_value": "a: " + "x" * 900_000,
        "quoted": 'a: "' + "\\x1b" * 200_000 + '"\n', "escapes": f'"{as_json(ESCAPES)[1:-1]}": 1\n', "raw_escapes": f"{ESCAPES}: 1\n",
        "question": "? " * 100_000, "complex_key": "? [a, b]\n: 1\n", "list_root": "- 1\n- 2\n", "scalar_root": "x\n",
        "brackets": "[" * 900_000, "open_quote": 'a: "' + "x" * 900_000, "directive": "%YAML 99.9\n---\na: 1\n", "nul": "a: \0\n",
        "self_reference": "a: ${a}\n", "two_references": "a: ${b}\nb: ${a}\n", "relative": "a:\n  b: ${.b}\n",
        "reference_bomb": "a0: xxxxxxxxxx\n" + "".join(f"a{i}: {f'${{a{i - 1}}}' * 10}\n" for i in range(1, 30)),
        "deep_reference": "a: " + "${" * 100_000 + "}" * 100_000 + "\n", "open_reference": "a: " + "${" * 300_000 + "\n",
        "select": "a: ${oc.select:" + "a." * 100_000 + ",b}\n", "environment": "a: ${oc.env:HOME}\n", "anchor_scalar": "a: &" + "x" * 500_000 + " 1\n",
    }.items()
    for i, number in enumerate(NUMBERS):
        yield f"number_{i}", f"actor_rollout_ref:\n  rollout:\n    n: {number}\n"
        yield f"rate_{i}", f"actor_rollout_ref:\n  actor:\n    optim:\n      lr: {number}\n"
    for name, damage in not_utf8().items():
        yield name, b"a: " + damage + b"\n"


ANSWERS = [
    "\\frac{" * 30_000 + "1" + "}{2}" * 30_000, "\\sqrt{" * 30_000 + "2" + "}" * 30_000, "(" * 100_000 + "1" + ")" * 100_000,
    "\\left(" * 20_000, "{" * 200_000, "^" * 100_000, "2" + "^{2" * 20_000 + "}" * 20_000, "9^{9^{9^{9}}}", "2^{2^{2^{2^{2^{2}}}}}",
    "10^{10^{10}}", "99999999999999999999!", "100000!", "((((100!)!)!)!)", "5" + "!" * 50_000, "1" * 100_000, "0." + "3" * 100_000,
    "1e999999999", "1e-999999999", "(a+b+c+d)^{200}", "(x+1)^{100000}", "\\binom{1000000}{500000}", "\\binom{99999999999}{2}",
    "\\{" + ",".join(map(str, range(40_000))) + "\\}", "\\{" + "\\{" * 10_000, "(" + "1," * 60_000 + "1)", "[1," * 50_000,
    "\\begin{pmatrix}" + "1 & " * 60_000 + "\\end{pmatrix}", "\\begin{pmatrix}" * 10_000, "\\begin{array}{" + "c" * 100_000 + "}",
    "1 + " * 100_000 + "1", "1 - " * 100_000 + "1", "x" * 100_000, "\\pi" * 50_000, "\\cdot" * 50_000, "\\frac" * 60_000, "-" * 200_000 + "1",
    "\\sin" * 50_000 + "1", "\\log_" * 50_000 + "2", "|" * 100_000, "\\overline{3}" * 20_000, "0.\\overline{" + "3" * 100_000 + "}",
    "1_{" * 50_000, "1_{99999}", "\\text{" * 50_000, "\\boxed{" * 50_000, "1" + " = 1" * 50_000, "1 < x < " * 20_000, "\\infty" * 20_000,
    "\\pm" * 50_000 + "1", "\\cup" * 50_000, "(-\\infty," * 20_000, "i" * 50_000, "e^{i\\pi}" * 10_000, "\\sqrt[99999999]{2}", "\\sqrt[0]{2}",
    "0^0", "1/0", "\\frac{0}{0}", "\\tan(\\frac{\\pi}{2})", "\\ln(0)", "\\log_1(2)", "\\arcsin(2)", ESCAPES, "\u0301" * 50_000, "\U0001f600" * 20_000,
    "\\" * 100_000, "$" * 100_000, "%" * 100_000, "&" * 100_000, "1,234" * 20_000, "1.2.3.4" * 1000, "cm" * 20_000, "\\sin(\\sin(" * 10_000 + "1",
    "\\frac{" + "7" * 50_000 + "}{" + "3" * 50_000 + "}", "(10^{18})!", "2^{10^{9}} \\mod 7", "\\sum_{i=1}^{10^9} i", "\\int_0^1 x dx",
]


def latex():
    truths = ["1", "\\frac{1}{2}", None]
    for i, answer in enumerate(ANSWERS):
        for j, truth in enumerate(truths):
            row = {"response": f"\\boxed{{{answer}}}", "ground_truth": answer if truth is None else truth, "prompt": "",
                   "data_source": "math", "extra_info": {}}
            yield f"answer_{i}_{j}", json.dumps(row) + "\n"


def manifest():
    yield from json_texts()
    digest = "0" * 64
    for name, files in {"none": {}, "list": [], "parent": {"../../x": {"bytes": 1, "sha256": digest}},
                        "device": {"/dev/zero": {"bytes": 0, "sha256": digest}}, "escapes": {ESCAPES: {"bytes": 1, "sha256": digest}},
                        "negative": {"state/loop.json": {"bytes": -1, "sha256": digest}}, "no_sum": {"state/loop.json": {"bytes": 1}},
                        "huge": {"state/loop.json": {"bytes": 2**64, "sha256": digest}}, "deep": json.loads(nested(400)),
                        "many": {f"f{i}": {"bytes": 0, "sha256": digest} for i in range(9_000)}}.items():
        yield f"files_{name}", as_json({"files": files})


def loop_state():
    valid = {"step": 1, "gen_batches": 1, "epoch": 0, "index": 4, "optimizer_steps": 2}
    yield from json_texts()
    yield from in_row(as_json(valid)[:-1] + ', "unused": ', "}")
    yield from edges_of(valid)


def parquet():
    whole = (GOLDEN / "parquet/types.parquet").read_bytes()
    for file in sorted((GOLDEN / "parquet/limits").glob("*.parquet")):
        yield f"limits_{file.stem}", file.read_bytes()
    yield "empty", b""
    yield "magic", b"PAR1"
    yield "two_magics", b"PAR1PAR1"
    for length in (0, 1, 8, 2**16, 2**31 - 1, 2**31, 2**32 - 1):
        yield f"footer_{length}", whole[:-8] + struct.pack("<I", length) + b"PAR1"
    footer = struct.unpack("<I", whole[-8:-4])[0]
    for value in (0x00, 0xff, 0x80, 0x19, 0x7f):
        for part in range(4):
            begin = len(whole) - 8 - footer + part * footer // 4
            yield f"footer_{value}_{part}", whole[:begin] + bytes([value]) * 16 + whole[begin + 16:]
    yield "encrypted", whole[:-4] + b"PARE"
    yield "padding", whole + b"\0" * 900_000
    yield "before", b"\0" * 900_000 + whole
    yield "zeros", b"PAR1" + b"\0" * 900_000 + b"PAR1"


def recorded_tokens():
    """Lines of the two responses that the command has, or more."""
    tokens = {"prompt": [1, 2], "response": [3, 4, 3, 4]}
    def lines(*rows):
        return "".join(as_json(row) + "\n" for row in rows)
    yield from json_texts()
    for name, text in edges_of(tokens):
        yield name, lines(tokens, json.loads(text))
    for value in (-1, 2**31 - 1, 2**31, 2**64, 1e300, 0.5, None):
        yield f"token_{value}", lines(tokens, {**tokens, "response": [0, value, 1]})
    for name, ids in (("equal", [0] * 300_000), ("period", [0, 1] * 150_000), ("different", list(range(120_000)))):
        yield f"{name}_tokens", lines(tokens, {**tokens, "response": ids})
        yield f"{name}_prompt", lines(tokens, {**tokens, "prompt": ids})
    yield "many_responses", lines(*[tokens] * 18_000)


def forward_costs():
    tree = {"as": "tree", "rows": 1, "context": 64, "forward_seconds_p50": 1, "head_seconds_p50": 0.5}
    yield from json_texts()
    for kind in ("tree", "sequences"):
        for name, text in edges_of({**tree, "as": kind}):
            yield f"{kind}_{name}", as_json(tree) + "\n" + text + "\n"
    yield "contexts", "".join(as_json({**tree, "context": i}) + "\n" for i in range(9_000))
    yield "batches", as_json(tree) + "\n" + "".join(as_json({**tree, "as": "sequences", "rows": i}) + "\n"
                                                    for i in range(2, 8_000))


def measurements():
    ratio = {"device": "H100", "model": "Qwen2.5-7B", "tensor_parallel": 1, "batch": 2, "context": 100,
             "strategy": "8_8_48", "accept_length": 8.2, "speedup": 3.6}
    time = {"device": "H100", "model": "Qwen2.5-7B", "tokens_per_second": 164}
    yield from json_texts()
    for row in (ratio, time):
        for name, text in edges_of(row):
            yield f"{len(row)}_{name}", as_json(time) + "\n" + text + "\n"
    for name in ("0_0_1", "off", "999999999_1_2", "1_999999999_2", "8_8_9223372036854775807", "8_8", "8" * 5000):
        yield f"strategy_{name[:20]}", as_json({**ratio, "strategy": name}) + "\n"
    for count in (500, 5_000):
        yield f"{count}_lines", (as_json(ratio) + "\n") * count


def files_of(folder, pattern):
    return [path.read_bytes()[:MOST_BYTES] for path in sorted((GOLDEN / folder).glob(pattern))]


# Parser: extension, maker, and valid files to mutate.
PARSERS = {
    "json": ("json", data_json, lambda: [b'[{"prompt": "1+1", "answer": 2}, {"prompt": "2", "answer": [1.5, null, "x"]}]']),
    "jsonl": ("jsonl", data_jsonl, lambda: [data[:20_000] for data in files_of("parquet", "*.jsonl") if data]),
    "rows": ("jsonl", data_rows, lambda: [text.encode() for name, text in data_rows() if name.startswith("shallow")]),
    "parquet": ("parquet", parquet, lambda: files_of("parquet", "*.parquet")),
    "safetensors": ("safetensors", safetensors, lambda: files_of("models/qwen2_tied", "model.safetensors")),
    "index": ("json", index, lambda: files_of("models/qwen3_sharded", "*.index.json")),
    "config": ("json", config, lambda: files_of("models/qwen2_tied", "config.json")),
    "adapter": ("json", adapter, lambda: files_of("lora/all_linear", "adapter_config.json")),
    "tokenizer": ("json", tokenizer, lambda: files_of("tokenizers", "*/tokenizer.json")),
    "chat_template": ("json", chat_template, lambda: [as_json({"chat_template": path.read_text()}).encode() for path in
                                                      sorted((ROOT / "tests/data/chat_templates").iterdir())]),
    "toml": ("toml", toml, lambda: [path.read_bytes() for path in sorted((ROOT / "recipes").glob("*.toml"))]),
    "yaml": ("yaml", yaml, lambda: files_of("verl", "*.yaml")),
    "latex": ("jsonl", latex, lambda: []),
    "manifest": ("json", manifest, lambda: [as_json({"files": {"state/loop.json": {"bytes": 1, "sha256": "0"}}}).encode()]),
    "loop_state": ("json", loop_state, lambda: [as_json({"step": 1, "gen_batches": 1, "epoch": 0, "index": 4,
                                                         "optimizer_steps": 2}).encode()]),
    "recorded_tokens": ("jsonl", recorded_tokens, lambda: [text.encode() for name, text in recorded_tokens()
                                                           if name == "token_2147483647"]),
    "forward_costs": ("jsonl", forward_costs, lambda: [text.encode() for name, text in forward_costs()
                                                       if name == "sequences_rows_1"]),
    "measurements": ("jsonl", measurements, lambda: [(GOLDEN.parent / "data/simulate/figure13.jsonl").read_bytes()]),
    **_hostile_folders.makers(),
    **_hostile_requests.makers(),
}


def remove_earlier(out):
    """Removes what an earlier call wrote to the folder; refuses a folder that holds anything else."""
    names = {path.name for path in out.iterdir()} if out.exists() else set()
    if names and names != set(PARSERS):
        sys.exit(f"make_hostile_files: {out} holds other things than its files; give another folder or delete it")
    for name in names:
        shutil.rmtree(out / name)


def mutant(draw, extension, whole):
    data, other = draw.choice(whole), draw.choice(whole)
    if extension != "body":
        return mutate(draw, data, other)
    line, _, data = data.partition(b"\n")  # of the request: its mutants are in http
    return line + b"\n" + mutate(draw, data, other.partition(b"\n")[2])


def make(out, seed, mutants):
    """Writes the corpus; returns the number of files of each parser."""
    counts = {}
    for parser, (extension, maker, valid) in PARSERS.items():
        chooser = random.Random(f"{seed}/{parser}")
        files = dict(maker())
        whole = valid()
        for i in range(mutants if whole else 0):
            files[f"mutant_{i:03}"] = mutant(chooser, extension, whole)
        folder = out / parser
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (folder / f"{name}.{extension}").write_bytes(fit(data))
        counts[parser] = len(files)
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutants", type=int, default=30, help="mutated valid files per parser")
    arguments = parser.parse_args()
    remove_earlier(arguments.out)
    counts = make(arguments.out, arguments.seed, arguments.mutants)
    print(f"{sum(counts.values())} files: " + ", ".join(f"{count} {name}" for name, count in counts.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
