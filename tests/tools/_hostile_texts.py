# SPDX-License-Identifier: Apache-2.0
"""What the hostile files of all parsers are made of: texts that are JSON or nearly so, extreme values, headers."""

import json
import pathlib
import struct

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden"
MOST_BYTES = 1_000_000

ESCAPES = "\x1b]0;title\x07\x1b[2J\r\nI forged line\u202e\u2066\x7f\x9b31m\x00"
NUMBERS = ["1e999999999", "-1e999999999", "1" * 100_000, "0." + "0" * 100_000 + "1", "9223372036854775808",
           "-9223372036854775809", "18446744073709551616", "1e-400", "-0", "00", "0x10", "NaN", "Infinity", "1e", "."]
EDGES = [None, True, -1, 0, 1, 2**31, 2**32, 2**53, 2**63 - 1, -2**63, 1e308, 0.5, "", "x", "9" * 400, [], [[]], {},
         {"a": None}, ESCAPES]


def fit(data):
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogatepass")
    return data[:MOST_BYTES]


def nested(depth, opening="[", closing="]", inside=""):
    return opening * depth + inside + closing * depth


def as_json(value):
    return json.dumps(value, ensure_ascii=False)


def json_texts():
    """Texts of JSON, or nearly so, by name."""
    yield from {
        "empty": "", "blank": " \n" * 1000, "null": "null", "number": "7", "bom": "\ufeff{}", "open": "{", "nul": "\0",
        "trailing_comma": "[1,]", "comment": "/* */ {}", "single_quotes": "{'a': 1}", "two_values": "{} {}",
        "open_string": '{"a": "' + "x" * 900_000, "long_string": as_json({"a": "x" * 900_000}),
        "long_key": as_json({"k" * 900_000: 1}), "escapes_in_key": as_json({ESCAPES: ESCAPES}),
        "raw_escapes_in_key": '{"' + ESCAPES + '": 1}', "lone_surrogate": '{"a": "\\ud800"}',
        "wrong_pair": '{"a": "\\udc00\\ud800"}', "bad_escape": '{"a": "\\x41"}', "spaces": "[" + " " * 900_000 + "]",
        "brackets": "[" * 1_000_000, "braces": '{"a":' * 150_000, "deep_list": nested(400_000),
        "deep_object": nested(150_000, '{"a":', "}", "1"), "below_depth_limit": nested(499),
        "deep_and_wide": "[" + ",".join([nested(300)] * 1500) + "]", "many_values": "[" + "1," * 499_000 + "1]",
        "many_lists": "[" + "[]," * 300_000 + "[]]", "many_objects": "[" + "{}," * 300_000 + "{}]",
        "many_keys": "{" + ",".join(f'"{i}":1' for i in range(80_000)) + "}",
        "same_key": "{" + ",".join(['"a":1'] * 150_000) + "}",
        "long_equal_keys": "{" + ",".join(f'"{"k" * 450}{i:04}":1' for i in range(2_000)) + "}",
        "many_small_objects": "[" + ",".join(['{"a":1,"b":2,"c":3}'] * 45_000) + "]",
    }.items()
    for i, number in enumerate(NUMBERS):
        yield f"number_{i}", '{"a": ' + number + "}"
    for name, damage in not_utf8().items():
        yield name, b'{"a": "' + damage + b'"}'


def not_utf8():
    return {"utf8_overlong": b"\xc0\x80", "utf8_cut": b"\xe4\xb8", "utf8_surrogate": b"\xed\xa0\x80",
            "utf8_too_large": b"\xf7\xbf\xbf\xbf", "utf8_lone": b"\x80" * 1000, "latin1": b"na\xefve",
            "utf16": "text".encode("utf-16")}


def in_row(before, after):
    """The same texts as the value of a field that no command reads or expects to be a string."""
    for name, text in json_texts():
        text = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        yield "value_" + name, before.encode() + text[:MOST_BYTES - 100] + after.encode()


def edges_of(valid, keys=None):
    """A copy of a JSON object for each of its members and each extreme value of the member."""
    for key in keys or valid:
        for i, edge in enumerate(EDGES):
            yield f"{key}_{i}", as_json({**valid, key: edge})


def safetensors_file(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else (header if isinstance(header, str) else as_json(header)).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data
