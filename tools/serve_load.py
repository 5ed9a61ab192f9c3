#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""serve_load.py: load, disconnects and malformed requests against a running `tlt serve` on loopback without a key.

    build/tlt serve --model models/demo --port 8000 &
    tools/serve_load.py --port 8000 --pid $!

1. --streams responses at once, streamed; prints the median and the 99th percentile of the time to the first token, and
   tokens per second. Each is requested again alone afterwards (--compare of them) and must have the same tokens.
2. --disconnects requests whose client leaves at a random moment.
3. --malformed requests: damaged JSON, wrong types, huge numbers, invalid UTF-8, damaged HTTP, slow ones.

Then the server must be idle, hold no page of the KV cache and answer. With --pid its memory is printed after each part.
Exit code 1, with a sentence, if anything of this does not hold.
"""
import argparse
import asyncio
import json
import random
import sys
import time

WORDS = ["prompt", "messages", "n", "max_tokens", "stop", "logprobs", "stream", "seed", "tools", "temperature"]


def request(path, body, method="POST"):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    return (head + (f"Content-Length: {len(body)}\r\n" if method == "POST" else "") + "\r\n").encode() + body


async def exchange(port, data, leave_after=None):
    """The answer to `data`, or what has arrived when the client leaves; and the seconds to the first event."""
    begin, first, answer = time.monotonic(), None, b""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    try:
        writer.write(data)
        await writer.drain()
        while True:
            left = None if leave_after is None else max(0.0, begin + leave_after - time.monotonic())
            try:
                part = await asyncio.wait_for(reader.read(1 << 16), left if left is not None else 600)
            except asyncio.TimeoutError:
                break
            if not part:
                break
            answer += part
            if first is None and b"data: " in answer:
                first = time.monotonic() - begin
    except (ConnectionResetError, BrokenPipeError):
        pass
    finally:
        writer.close()
    return answer, first


def plain_body(answer):
    """The body of an HTTP answer, chunked or not."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if b"chunked" not in head.lower():
        return body
    whole = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        whole += rest[: int(size, 16)]
        body = rest[int(size, 16) + 2 :]
    return whole


def tokens_of(answer):
    tokens = []
    for line in plain_body(answer).decode().split("\n\n"):
        if line.startswith("data: {"):
            for choice in json.loads(line[6:])["choices"]:
                tokens += choice["token_ids"]
    return tokens


def stream_request(i, tokens):
    return {
        "prompt": f"{1 + i % 9},6,8:{20 + i % 70}",
        "seed": i,
        "max_tokens": tokens,
        "ignore_eos": True,
        "stream": True,
        "return_token_ids": True,
    }


async def streams(arguments):
    begin = time.monotonic()
    asked = [request("/v1/completions", stream_request(i, arguments.tokens)) for i in range(arguments.streams)]
    answers = await asyncio.gather(*(exchange(arguments.port, data) for data in asked))
    seconds = time.monotonic() - begin
    times = sorted(first for _, first in answers if first is not None)
    tokens = [tokens_of(answer) for answer, _ in answers]
    assert all(len(one) == arguments.tokens for one in tokens), "a stream is not complete"
    print(
        f"{arguments.streams} streams: first token after {times[len(times) // 2]:.2f} s (median), "
        f"{times[int(len(times) * 0.99)]:.2f} s (99 %); {sum(map(len, tokens)) / seconds:.0f} tokens/s"
    )
    for i in range(0, arguments.streams, max(1, arguments.streams // arguments.compare)):
        alone, _ = await exchange(arguments.port, asked[i])
        assert tokens_of(alone) == tokens[i], f"stream {i} has other tokens alone than under load"


async def disconnects(arguments):
    chance = random.Random(1)
    for begin in range(0, arguments.disconnects, 50):
        calls = []
        for i in range(begin, min(begin + 50, arguments.disconnects)):
            body = stream_request(i, 1500) | {"stream": chance.random() < 0.5, "n": chance.randint(1, 4)}
            calls.append(exchange(arguments.port, request("/v1/completions", body), chance.expovariate(10)))
        await asyncio.gather(*calls)
    print(f"{arguments.disconnects} disconnects")


def damaged(chance):
    kind = chance.randrange(8)
    body = {"prompt": "4,6,8:", "max_tokens": 2, "n": 1, "seed": 1, "stop": ["x"], "logprobs": 1}
    path = chance.choice(["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize", "/update_weights"])
    values = [None, -1, 0, 1 << 70, 1e308, "", "\x00", [], {}, [[[]]], True, ["a", 1], {"a": {"b": 1}}, "x" * 5000]
    if kind < 3:
        for _ in range(chance.randint(1, 3)):
            body[chance.choice(WORDS)] = chance.choice(values)
        return request(path, body)
    data = bytearray(json.dumps(body).encode())
    if kind < 5:
        for _ in range(chance.randint(1, 8)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        return request(path, bytes(data))
    if kind == 5:
        return request(path, b"[" * chance.randint(1, 100_000))
    whole = bytearray(request(path, bytes(data)))
    if kind == 6:  # damaged HTTP
        for _ in range(chance.randint(1, 8)):
            whole[chance.randrange(min(120, len(whole)))] = chance.randrange(256)
        return bytes(whole)
    return bytes(whole[: chance.randrange(1, len(whole))])  # incomplete


async def malformed(arguments):
    chance = random.Random(arguments.seed)
    statuses = {}
    for begin in range(0, arguments.malformed, 50):
        calls = []
        for _ in range(begin, min(begin + 50, arguments.malformed)):
            calls.append(exchange(arguments.port, damaged(chance), leave_after=1.0))
        for answer, _ in await asyncio.gather(*calls):
            status = answer[9:12].decode(errors="replace") or "none"
            statuses[status] = statuses.get(status, 0) + 1
    assert "500" not in statuses, f"the server has failed: {statuses}"
    print(f"{arguments.malformed} malformed requests; answers: {dict(sorted(statuses.items()))}")


async def check_idle(arguments, part):
    for _ in range(600):
        answer, _ = await exchange(arguments.port, request("/metrics", b"", "GET"))
        lines = plain_body(answer).decode().splitlines()
        if "tlt_responses_unfinished 0" in lines and "tlt_kv_pages_held 0" in lines:
            break
        await asyncio.sleep(0.1)
    else:
        raise AssertionError(f"after {part} responses are unfinished or pages are held")
    if arguments.pid:
        with open(f"/proc/{arguments.pid}/status") as file:
            memory = [line.split()[1] for line in file if line.startswith("VmRSS")]
        print(f"memory after {part}: {int(memory[0]) / 1024:.0f} MiB")


async def run(arguments):
    for part in (streams, disconnects, malformed):
        if getattr(arguments, part.__name__) > 0:
            await part(arguments)
            await check_idle(arguments, part.__name__)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--pid", type=int, default=0, help="of the server: prints its memory")
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=100, help="of each stream")
    parser.add_argument("--compare", type=int, default=10, help="streams requested again alone")
    parser.add_argument("--disconnects", type=int, default=1000)
    parser.add_argument("--malformed", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=2, help="of the malformed requests")
    try:
        asyncio.run(run(parser.parse_args()))
    except AssertionError as error:
        sys.exit(f"serve_load.py: {error}")


if __name__ == "__main__":
    main()
