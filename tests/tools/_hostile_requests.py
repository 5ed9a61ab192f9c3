# SPDX-License-Identifier: Apache-2.0
"""Hostile requests to `tlt serve` and its Tinker API (make_hostile_files.py; sent by _hostile_server.py).

A .body file has a line "METHOD PATH TYPE" and the body of a request; SESSION in it is the identifier of a session that
exists. A .http file has the bytes of a connection, whatever they are.
"""

import json
import struct

from _hostile_texts import ESCAPES, as_json, edges_of, fit, json_texts, nested

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
SESSION = "01234567-1"  # of the same length as a real one
MODEL, SAMPLER = f"{SESSION}:train:0", f"{SESSION}:sample:0"
LARGE = [10**6, 2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, 10**400, -2**63, 1e308, 5e-324]


def body(path, value, kind="application/json"):
    data = value if isinstance(value, (bytes, str)) else as_json(value)
    return f"POST {path} {kind}\n".encode() + fit(data)


def completions():
    valid = {"prompt": "4,6,8:", "max_tokens": 3, "n": 1, "seed": 1, "temperature": 1.0, "top_p": 0.9, "top_k": 5,
             "min_p": 0.1, "stop": ["a"], "stop_token_ids": [7], "logprobs": 1, "stream": False, "user": "x"}
    for name, text in json_texts():
        yield "text_" + name, body(COMPLETIONS, text)
        yield "user_" + name, body(COMPLETIONS, b'{"prompt": "4", "max_tokens": 1, "user": ' + fit(text)[:900_000] + b"}")
    for name, text in edges_of({**valid, "model": "", "prompt_logprobs": 0, "logit_bias": {}, "echo": False, "best_of": 1,
                                "suffix": "", "stream_options": {}, "ignore_eos": False, "presence_penalty": 0,
                                "return_token_ids": True, "repetition_penalty": 1}):
        yield name, body(COMPLETIONS, text)
    for field in ("max_tokens", "n", "seed", "top_k", "temperature", "top_p", "min_p", "logprobs", "best_of"):
        for i, value in enumerate(LARGE):
            yield f"large_{field}_{i}", body(COMPLETIONS, {**valid, field: value})
    lists = {
        "prompt": {"empty": [], "strings": ["4"] * 200_000, "tokens": [7] * 400_000, "lists": [[7]] * 200_000,
                   "mixed": ["4", [7], 7], "large": [2**63], "empty_lists": [[]] * 300_000, "deep": [[[[7]]]],
                   "half_numbers": [7, "x"], "long": "4," * 450_000, "control": ESCAPES, "combining": "a" + "\u0301" * 400_000},
        "stop": {"many": ["a"] * 200_000, "long": "a" * 900_000, "empty": [""], "seventeen": ["a"] * 17},
        "stop_token_ids": {"many": [7] * 400_000, "large": [2**63], "negative": [-1], "beyond": [10**9]},
        "logit_bias": {"many": {str(i): -100 for i in range(60_000)}, "one": {"7": 100}},
        "logprobs": {"true": True, "many": 10**9}, "model": {"long": "x" * 900_000, "control": ESCAPES},
    }
    for field, values in lists.items():
        for name, value in values.items():
            yield f"{field}_{name}", body(COMPLETIONS, {**valid, field: value})
    yield "unknown_fields", body(COMPLETIONS, {**valid, **{f"field{i}": i for i in range(1_500)}})
    yield "all_of_the_largest", body(COMPLETIONS, {"prompt": ["4"] * 1000, "n": 10**6, "max_tokens": 2**31 - 1})


def chat():
    user = {"role": "user", "content": "4"}
    ends = list(range(2, 18))  # tokens that end a response soon, where its length is not limited
    valid = {"messages": [user], "max_tokens": 2, "seed": 1, "stop_token_ids": ends}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    for name, text in json_texts():
        yield "text_" + name, body(CHAT, text)
        data = fit(text)[:900_000]
        yield "content_" + name, body(CHAT, b'{"max_tokens": 1, "messages": [{"role": "user", "content": ' + data + b"}]}")
        if isinstance(text, str):
            yield "arguments_" + name, body(CHAT, {**valid, "messages": [{
                "role": "assistant", "content": None, "tool_calls": [
                    {**call, "function": {"name": "f", "arguments": text[:400_000]}}]}]})
    for field, whole in (("messages", user), ("messages", {**user, "tool_calls": [call]}), ("tools", tool)):
        for name, text in edges_of(whole):
            yield f"{field}_{len(whole)}_{name}", body(CHAT, {**valid, field: [json.loads(text)]})
    yield from ((name, body(CHAT, text)) for name, text in edges_of(
        {**valid, "tools": [], "tool_choice": "auto", "logprobs": True, "top_logprobs": 2, "max_completion_tokens": 1,
         "chat_template_kwargs": {}, "response_format": {"type": "text"}, "stream_options": {}}))
    for name, messages in {
            "many": [user] * 25_000, "roles": [{"role": "tyrant", "content": "4"}], "refused": [{"role": "refused", "content": ""}],
            "long_role": [{"role": "r" * 900_000, "content": ""}], "control_role": [{"role": ESCAPES, "content": ESCAPES}],
            "parts": [{"role": "user", "content": [{"type": "text", "text": "4"}] * 20_000}],
            "images": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}],
            "calls": [{"role": "assistant", "content": "", "tool_calls": [call] * 8_000}],
            "deep": [{"role": "user", "content": "4", "extra": json.loads(nested(400))}],
            "no_content": [{"role": "user"}] * 40_000, "null": [None] * 100_000}.items():
        yield f"messages_{name}", body(CHAT, {**valid, "messages": messages})
    yield "tools_many", body(CHAT, {**valid, "tools": [tool] * 9_000})
    yield "tools_deep", body(CHAT, {**valid, "tools": [{**tool, "function": {
        "name": "f", "parameters": json.loads(nested(400))}}]})
    yield "variables_deep", body(CHAT, {**valid, "chat_template_kwargs": {"x": json.loads(nested(400))}})
    yield "variables_many", body(CHAT, {**valid, "chat_template_kwargs": {f"x{i}": i for i in range(1_900)}})
    yield "variables_messages", body(CHAT, {**valid, "chat_template_kwargs": {"messages": 7, "range": 7, "namespace": None}})


def other_addresses():
    for address, valid in (("/tokenize", {"prompt": "4", "messages": None, "add_special_tokens": False, "model": ""}),
                           ("/detokenize", {"tokens": [7], "model": ""}), ("/update_weights", {"model_path": "x"})):
        name = address[1:]
        for text_name, text in list(json_texts())[::3]:
            yield f"{name}_text_{text_name}", body(address, text)
        for edge_name, text in edges_of(valid):
            yield f"{name}_{edge_name}", body(address, text)
    yield "tokenize_long", body("/tokenize", {"prompt": "4," * 450_000})
    yield "tokenize_combining", body("/tokenize", {"prompt": "a" + "\u0301\u0323" * 200_000})
    yield "detokenize_many", body("/detokenize", {"tokens": [7] * 400_000})
    for i, path in enumerate(["/dev/zero", "/proc/self/mem", "..", "/", "~", "\0", "a" * 5000, "a/" * 2000, "/dev/ptmx", ESCAPES]):
        yield f"update_path_{i}", body("/update_weights", {"model_path": path})
    for i, path in enumerate(["/v1/models", "/health", "/metrics", "/v1", "/", "/v1/completions/", "/%2e%2e/etc/passwd",
                              "/api/v1/create_session", "/v1/completions?" + "x" * 7000, "/\u00ff"]):
        yield f"address_{i}", body(path, {})


# ---- the Tinker API


def tinker():
    sample = {"sampling_session_id": SAMPLER, "num_samples": 2, "prompt": {"chunks": [{"type": "encoded_text", "tokens": [17, 18]}]},
              "sampling_params": {"max_tokens": 2, "temperature": 1.0, "stop": [1], "seed": 1, "top_k": -1, "top_p": 1.0},
              "prompt_logprobs": True, "topk_sample_logprobs": 0, "prompt_logprobs_last_n": 1}
    adam = {"learning_rate": 0.0, "beta1": 0.9, "beta2": 0.95, "eps": 1e-12, "weight_decay": 0.0, "grad_clip_norm": 0.0}
    numbers = iter(range(1, 100_000))  # a sampling with the number of another one is that one
    def sampling(value):
        return body("/api/v1/asample", {**value, "seq_id": next(numbers)})
    def step(**change):
        return body("/api/v1/optim_step", {"model_id": MODEL, "seq_id": 0, "adam_params": {**adam, **change}})
    for what in ("asample", "optim_step", "create_model", "save_weights", "retrieve_future", "create_session"):
        for name, text in list(json_texts())[::3]:
            yield f"{what}_{name}", body(f"/api/v1/{what}", text)
    for name, text in edges_of(sample):
        yield f"sample_{name}", sampling(json.loads(text))
    for name, text in edges_of(sample["sampling_params"]):
        yield f"params_{name}", sampling({**sample, "sampling_params": json.loads(text)})
    for name, chunks in {"many": [{"type": "encoded_text", "tokens": [17]}] * 15_000, "none": [], "images": [{"type": "image"}],
                         "long": [{"type": "encoded_text", "tokens": [17] * 300_000}], "beyond": [{"tokens": [10**9]}],
                         "large": [{"tokens": [2**63]}], "empty": [{"tokens": []}] * 40_000}.items():
        yield f"chunks_{name}", sampling({**sample, "prompt": {"chunks": chunks}})
    for i, value in enumerate(LARGE):
        yield f"samples_{i}", sampling({**sample, "num_samples": value})
        yield f"seq_id_{i}", body("/api/v1/asample", {**sample, "seq_id": value if value > 2**62 else -1})
        yield f"tokens_{i}", sampling({**sample, "sampling_params": {"max_tokens": value, "temperature": 0,
                                                                        "stop": list(range(64))}})
        for name in adam:
            yield f"adam_{name}_{i}", step(**{name: value})
    yield "stops", sampling({**sample, "sampling_params": {"max_tokens": 2, "stop": ["a" * 14_000] * 64}})
    for name, text in edges_of({"rank": 2, "seed": 1, "train_attn": True, "train_mlp": True}):
        yield f"lora_{name}", body("/api/v1/create_model", {"session_id": SESSION, "model_seq_id": 1, "base_model": "demo",
                                                            "lora_config": json.loads(text)})
    for i, path in enumerate(["../x", "/etc/passwd", "tinker://../../etc/weights/x", "a" * 900_000, ESCAPES, "", ".", "a/b", 7, None,
                              f"tinker://{MODEL}/weights/..", "tinker://" + "/" * 100_000, "tinker://a/weights/\0"]):
        yield f"save_path_{i}", body("/api/v1/save_weights", {"model_id": MODEL, "seq_id": 0, "path": path})
        yield f"load_path_{i}", body("/api/v1/load_weights", {"model_id": MODEL, "seq_id": 0, "path": path})
        yield f"info_path_{i}", body("/api/v1/weights_info", {"tinker_path": path})
        yield f"sampler_path_{i}", body("/api/v1/create_sampling_session",
                                        {"session_id": SESSION, "sampling_session_seq_id": 1, "model_path": path})
    yield from gradients()


def varint(value):
    data = b""
    while value >= 0x80:
        data, value = data + bytes([value & 0x7f | 0x80]), value >> 7
    return data + bytes([value])


def field(number, value):
    """A field of a protocol buffer: an integer or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def tensor(name, values, kind, shape):
    return field(1, name) + field(2, field(1, values) + field(3, kind) + field(4, shape))


def datum(tokens=(17, 18, 19), targets=(18, 19, 20), weights=(0.0, 1.0, 1.0), name=b"weights", shape=b"\3"):
    text = field(1, struct.pack(f"<{len(tokens)}i", *tokens))
    return (field(1, field(1, text)) + field(2, tensor(b"target_tokens", struct.pack(f"<{len(targets)}q", *targets), 2, shape)) +
            field(2, tensor(name, struct.pack(f"<{len(weights)}f", *weights), 1, shape)))


def gradient(*data, loss=b"cross_entropy", more=b""):
    return field(1, MODEL.encode()) + field(2, 0) + b"".join(field(3, one) for one in data) + field(4, loss) + more


def gradients():
    nan, infinite = float("nan"), float("inf")
    whole = gradient(datum())
    for name, data in {
            "whole": whole, "empty": b"", "no_data": gradient(), "twice": whole * 2, "nan": gradient(datum(weights=(nan,) * 3)),
            "infinite": gradient(datum(weights=(infinite,) * 3)), "large": gradient(datum(weights=(3e38,) * 3)),
            "negative_tokens": gradient(datum(tokens=(-1, -2, -3))), "beyond": gradient(datum(targets=(2**62,) * 3)),
            "unequal": gradient(datum(targets=(18,))), "no_tokens": gradient(datum((), (), ())), "shape": gradient(datum(shape=b"\xff" * 9)),
            "dimensions": gradient(datum(shape=b"\1" * 900_000)), "name": gradient(datum(name=b"w" * 900_000)),
            "name_not_utf8": gradient(datum(name=b"\xff\x1b[2J")), "loss": gradient(datum(), loss=b"x" * 900_000),
            "loss_not_utf8": gradient(datum(), loss=b"\xff" * 100), "many": gradient(*[datum()] * 9_000),
            "empty_data": gradient(*[b""] * 8_192), "many_empty": gradient(*[b""] * 200_000), "long": gradient(datum((17,) * 60_000, (18,) * 60_000, (1.0,) * 60_000)),
            "positions": gradient(datum((17,) * 2048, (18,) * 2048, (1.0,) * 2048)),
            "endless_varint": b"\xff" * 100, "length_beyond": b"\x0a" + varint(2**64 - 1) + b"x", "field_0": b"\0\0",
            "group": b"\x0b\x0c", "large_field": varint(2**60 << 3) + b"\0", "numbers": b"\x21" + b"\xff" * 8,
            "config": gradient(datum(), more=field(5, field(1, b"beta") + varint(2 << 3 | 1) + struct.pack("<d", nan)) * 9),
            "forward_only": gradient(datum(), more=field(6, 2**64 - 1)),
            "deep": gradient(*[field(1, field(1, field(1, field(1, b""))))] * 100)}.items():
        yield f"gradient_{name}", body("/api/v1/forward_backward", data, "application/x-protobuf")
    for share in range(1, 12):
        yield f"gradient_cut_{share}", body("/api/v1/forward_backward", whole[:len(whole) * share // 12], "application/x-protobuf")
    for i in range(len(whole)):
        damaged = whole[:i] + bytes([whole[i] ^ 0x81]) + whole[i + 1:]
        yield f"gradient_bit_{i}", body("/api/v1/forward_backward", damaged, "application/x-protobuf")


# ---- HTTP


def http():
    good = as_json({"prompt": "4", "max_tokens": 1}).encode()
    def post(*headers, path=COMPLETIONS, data=good, length=True):
        lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", *headers]
        if length:
            lines.append(f"Content-Length: {len(data)}")
        return "\r\n".join(lines).encode("utf-8", "surrogatepass") + b"\r\n\r\n" + data
    def chunked(data):
        return post("Transfer-Encoding: chunked", data=data, length=False)
    def get(*headers, line="GET /health HTTP/1.1"):
        return "\r\n".join([line, "Host: 127.0.0.1", *headers, "", ""]).encode("utf-8", "surrogatepass")
    whole = post()
    for share in range(1, 10):
        yield f"half_{share}", whole[:len(whole) * share // 10]
    for i, length in enumerate(["-1", "0", "1", "99999", "18446744073709551615", "18446744073709551616", "9" * 5000, "abc", "",
                                " 5", "+5", "0x10", "5, 5", "1e3", "4194305", "2147483648"]):
        yield f"length_{i}", post(f"Content-Length: {length}", length=False)
    yield "two_lengths", post("Content-Length: 3")
    yield "length_and_chunks", post("Transfer-Encoding: chunked", f"Content-Length: {len(good)}", length=False)
    for i, chunks in enumerate([b"", b"0\r\n\r\n", b"zz\r\n", b"-1\r\n", b"FFFFFFFFFFFFFFFF\r\nx", b"7fffffff\r\nx", b"5\r\nabc\r\n0\r\n\r\n",
                                b"5;" + b"x" * 900_000, b"1\r\n4\r\n" * 100_000, b"\r\n" * 100_000, b"0" * 900_000, b"1\r\nxx\r\n0\r\n\r\n",
                                b"%x\r\n%s\r\n0\r\nTrailer: x\r\n\r\n" % (len(good), good), b"\xff" * 1000, b"1 \r\n4\r\n0\r\n\r\n",
                                b"10000000\r\n" + b"4" * 900_000]):
        yield f"chunks_{i}", chunked(chunks)
    for i, header in enumerate(["X: " + "x" * 7_000, "X: " + "x" * 900_000, "X" * 900_000 + ": x", ": x", "X", " X: y", "X : y",
                                "X: \0", "X: \x1b[2J", "Host: evil.example", "Host: " + "a" * 8_000, "Host:", "Content-Encoding: gzip",
                                "Content-Encoding: br", "Transfer-Encoding: gzip", "Transfer-Encoding: chunked, gzip", "Expect: 100-continue",
                                "Expect: x", "Connection: " + "close," * 1000, "Upgrade: websocket", "Range: bytes=0-0", "Accept-Encoding: gzip",
                                "Authorization: Bearer " + "x" * 7_000, "Content-Type: multipart/form-data; boundary=" + "b" * 5_000,
                                "Accept: " + "a/b;q=" * 1_000, "Cookie: " + "a=b;" * 1_500, "X-Forwarded-For: " + "1.1.1.1," * 900]):
        yield f"header_{i}", post(header)
    yield "many_headers", post(*[f"X-{i}: {i}" for i in range(40_000)])
    yield "many_equal_headers", post(*["X: x"] * 100_000)
    yield "many_hosts", post(*["Host: 127.0.0.1"] * 1000)
    for i, ranges in enumerate(["bytes=0-,0-,0-", "bytes=" + "0-," * 2_500 + "0-", "bytes=" + "0-0," * 1_900 + "1-1", "bytes=-1", "bytes=9-1",
                                "bytes=0-99999999999999999999", "bytes=" + "1" * 8_000, "bytes=a-b", "bytes=", "bytes=-9223372036854775808"]):
        yield f"range_{i}", get(f"Range: {ranges}", line="GET /metrics HTTP/1.1")
        yield f"post_range_{i}", post(f"Range: {ranges}")
    for i, line in enumerate(["GET", "GET /", "GET / HTTP/9.9", "get / http/1.1", "GET  /  HTTP/1.1", "BREW /health HTTP/1.1", "OPTIONS * HTTP/1.1",
                              "TRACE / HTTP/1.1", "CONNECT a:80 HTTP/1.1", "DELETE /health HTTP/1.1", "PUT /v1/models HTTP/1.1", "HEAD /metrics HTTP/1.1",
                              "GET http://evil.example/health HTTP/1.1", "GET /" + "a" * 8_000 + " HTTP/1.1", "GET /" + "a" * 900_000 + " HTTP/1.1",
                              "GET /health?" + "a=b&" * 1_900 + " HTTP/1.1", "GET /%00%ff%zz%u0041 HTTP/1.1", "GET /../../etc/passwd HTTP/1.1",
                              "GET /\x1b[2J HTTP/1.1", "PRI * HTTP/2.0", "A" * 900_000, "\0" * 1000, "GET /health HTTP/1.1\x00", "GET /#" + "#" * 7_000 + " HTTP/1.1",
                              "\u00ff\u0100 / HTTP/1.1", "GET /api/v1/samplers/" + "a" * 7_000 + " HTTP/1.1"]):
        yield f"line_{i}", get(line=line)
    for i, data in enumerate([b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), b"\r\n" * 100_000, b"\n" * 1000, b"\xff" * 900_000,
                              b"SSH-2.0-OpenSSH\r\n", b"{}", b"*1\r\n$4\r\nPING\r\n", whole * 20, get() * 5_000, whole + b"\xff" * 1000,
                              whole.replace(b"\r\n", b"\n"), whole.replace(b"\r\n", b"\r"), b"\0" + whole, post(length=False), get("Content-Length: 5") + b"12345",
                              get("Transfer-Encoding: chunked") + b"1\r\nx\r\n0\r\n\r\n"]):
        yield f"bytes_{i}", data


def makers():
    """Parser: extension, maker, and valid files to mutate."""
    whole = body(COMPLETIONS, {"prompt": "4,6,8:", "max_tokens": 3, "n": 2, "stop": ["a"], "logprobs": 2, "seed": 1})
    talk = body(CHAT, {"messages": [{"role": "user", "content": "4"}], "max_tokens": 2, "tools": [], "logprobs": True})
    return {"completions": ("body", completions, lambda: [whole]), "chat": ("body", chat, lambda: [talk]),
            "addresses": ("body", other_addresses, lambda: []), "tinker": ("body", tinker, lambda: []),
            "http": ("http", http, lambda: [next(data for name, data in http() if name == "two_lengths")])}
