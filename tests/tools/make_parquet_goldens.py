#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/parquet: small Parquet files as users of verl and TRL have them, and every row of each as JSON.

    python tests/tools/make_parquet_goldens.py [--out tests/golden/parquet]

Needs pyarrow. FILE.parquet is what the program reads, FILE.jsonl what it must read there: pyarrow's own values. It
refuses those in limits/.
"""
import argparse
import base64
import datetime
import decimal
import json
import os

import pyarrow as pa
import pyarrow.parquet as pq

INSTRUCTION = 'Let\'s think step by step and output the final answer after "####".'
NAMES = ["Ana", "Bo", "Çelik", "Dmitri", "Eve", "冯"]


def problem(i):
    """(question, worked answer, result) of an arithmetic word problem."""
    boxes, each, gone = 2 + i % 5, 3 + i % 7, i % 4
    question = (f"{NAMES[i % len(NAMES)]} has {boxes} boxes of {each} apples and gives {gone} away. "
                "How many apples are left?")
    result = boxes * each - gone
    return question, f"{boxes} * {each} = {boxes * each} apples; {boxes * each} - {gone} = {result}.\n#### {result}", str(result)


def user(text):
    return [{"role": "user", "content": text}]


def gsm8k_row(i):
    """A row as verl's examples/data_preprocess/gsm8k.py lays it out."""
    question, answer, result = problem(i)
    return {"data_source": "openai/gsm8k", "prompt": user(f"{question} {INSTRUCTION}"), "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": result},
            "extra_info": {"split": "train", "index": i, "answer": answer, "question": question}}


def trl_row(i):
    question, _, result = problem(i)
    return {"prompt": question, "solution": f"${result}$", "level": i % 3}


def trl_chat_row(i):
    question, _, result = problem(i)
    return {"prompt": [{"role": "system", "content": "Answer with a number."}] + user(question), "ground_truth": result}


def types_table():
    day = datetime.date(2026, 2, 3)
    moment = datetime.datetime(2026, 2, 3, 4, 5, 6)
    columns = {
        "bool": pa.array([True, None, False]),
        "int8": pa.array([-128, None, 127], pa.int8()),
        "uint64": pa.array([2**64 - 1, None, 0], pa.uint64()),
        "half": pa.array([0.5, None, -65504.0], pa.float16()),
        "float": pa.array([0.25, None, 1e30], pa.float32()),
        "double": pa.array([0.1, None, -1e300], pa.float64()),
        "text": pa.array(["", None, "naïve 冯 \U0001f34e\n"]),
        "large_text": pa.array(["a", None, "b"], pa.large_string()),
        "word": pa.array(["x", None, "x"]).dictionary_encode(),
        "bytes": pa.array([b"\x00\xff", None, b""], pa.binary()),
        "day": pa.array([day, None, day], pa.date32()),
        "moment": pa.array([moment, None, moment], pa.timestamp("us")),
        "price": pa.array([decimal.Decimal("1.20"), None, decimal.Decimal("-0.05")], pa.decimal128(9, 2)),
        "lists": pa.array([[[1], [], [2, 3]], None, []], pa.list_(pa.list_(pa.int32()))),
        "pair": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2)),
        "map": pa.array([[("a", 1), ("b", None)], None, []], pa.map_(pa.string(), pa.int32())),
        "numbered": pa.array([[(7, "x")], None, []], pa.map_(pa.int32(), pa.string())),
        "deep": pa.array([{"a": [{"b": "c", "d": None}]}, None, {"a": None}],
                         pa.struct([("a", pa.list_(pa.struct([("b", pa.string()), ("d", pa.int32())])))])),
        "nothing": pa.nulls(3),
    }
    return pa.table(columns)


def plain(value, kind):
    """pyarrow's value as the program shows it."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        pairs = [[plain(k, kind.key_type), plain(v, kind.item_type)] for k, v in value]
        return dict(pairs) if pa.types.is_string(kind.key_type) else pairs
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return [plain(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {field.name: plain(value[field.name], field.type) for field in kind}
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, (datetime.date, datetime.datetime, decimal.Decimal)):
        return str(value) + (".000000" if pa.types.is_timestamp(kind) else "")
    return value


def write(folder, name, table, **options):
    path = os.path.join(folder, name)
    pq.write_table(table, path + ".parquet", **options)
    with open(path + ".jsonl", "w", encoding="utf-8") as file:
        for row in table.to_pylist():
            row = {field.name: plain(row[field.name], field.type) for field in table.schema}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def write_large(folder):
    """Small files that stand for gigabytes."""
    os.makedirs(folder, exist_ok=True)

    def save(name, columns, **options):
        pq.write_table(pa.table(columns), os.path.join(folder, name + ".parquet"), compression="zstd",
                       dictionary_pagesize_limit=1 << 30, **options)

    count = 100_000
    first = pa.array([0] * count, pa.int32())
    word = pa.DictionaryArray.from_arrays(first, pa.array(["x" * 50_000]))
    save("repeated_dictionary_word", {"word": word})
    save("repeated_word", {"word": word}, store_schema=False)  # read as plain strings
    unused = pa.DictionaryArray.from_arrays(pa.array([1] * count, pa.int32()), pa.array(["x" * 20_000_000, "a"]))
    save("unused_word", {"word": unused})
    save("large_page", {"word": pa.array(["x" * 300_000_000])}, use_dictionary=False)
    pairs = [[(str(key), key) for key in range(keys)] for keys in (2000, 2001)]
    save("many_keys", {"map": pa.array(pairs, pa.map_(pa.string(), pa.int32()))})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="tests/golden/parquet")
    folder = parser.parse_args().out
    os.makedirs(folder, exist_ok=True)
    rows = [gsm8k_row(i) for i in range(24)]
    write(folder, "verl_gsm8k", pa.Table.from_pylist(rows), row_group_size=10, compression="zstd")
    # Larger than a batch of the reader, in pages of a few rows.
    write(folder, "trl", pa.Table.from_pylist([trl_row(i) for i in range(600)]), row_group_size=250, data_page_size=512)
    write(folder, "trl_chat", pa.Table.from_pylist([trl_chat_row(i) for i in range(5)]), compression="gzip")
    write(folder, "types", types_table())
    write(folder, "wrong_type", pa.table({"prompt": [1, 2], "data_source": ["x", "x"], "label": ["1", "2"]}))
    write(folder, "empty", pa.Table.from_pylist(rows[:1]).slice(0, 0))
    not_text = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0\4\0\0\0"), pa.py_buffer(b"ok\xff\xfe")])
    pq.write_table(pa.table({"prompt": not_text}), os.path.join(folder, "not_utf8.parquet"))
    write_large(os.path.join(folder, "limits"))


if __name__ == "__main__":
    main()
