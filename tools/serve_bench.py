#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""serve_bench.py: throughput of `tlt serve` next to llama.cpp's server and vLLM's, with the same model.

    tools/serve_bench.py --model DIR --llama-server PATH --gguf FILE --vllm VLLM/bin/python

starts the servers whose programs are given (tlt always), on free ports of loopback, and measures them in turn, round by
round, so that a change of the machine's load meets all of them: --streams streamed completions at once, each of
--tokens tokens after --prompt-tokens random ones, greedy, without the end-of-sequence token. No prompt is used twice, so
that a prefix cache does not help. Prints the median over the rounds of tokens per second and of the time to the first
token, and as JSON lines everything, with --json FILE. `--server NAME=COMMAND` adds any server of this protocol; {port}
in the command is its port, {model} the model's folder.

Measure on a quiet machine. A server that does not start is named, and the others are measured.
"""
import argparse
import asyncio
import json
import os
import random
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

START_SECONDS = 300  # vLLM compiles


class Server:
    def __init__(self, name, command, arguments):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.name, self.model = name, None
        with open(os.path.join(arguments.model, "config.json")) as file:
            self.vocabulary = json.load(file)["vocab_size"]
        self.log = tempfile.TemporaryFile("w+")
        words = [word.format(port=self.port, model=arguments.model) for word in shlex.split(command)]
        environment = os.environ | {
            "OMP_NUM_THREADS": str(arguments.threads),
            "VLLM_CPU_OMP_THREADS_BIND": f"0-{arguments.threads - 1}" if arguments.threads > 1 else "0",
        }
        self.process = subprocess.Popen(
            words, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL, env=environment, start_new_session=True
        )

    async def wait(self):
        """Waits until it has its model; an error says why not."""
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            try:
                answer, _ = await exchange(self.port, "GET", "/v1/models")
                self.model = json.loads(answer)["data"][0]["id"]
                await measure(self, 1, 2, 4, random.Random(0))  # llama.cpp has the model's name before the model
                return
            except (OSError, ValueError, LookupError, AssertionError):
                await asyncio.sleep(0.5)
        self.log.seek(0)
        raise RuntimeError(f"{self.name} does not start:\n" + "".join(self.log.readlines()[-5:]))

    def end(self):
        for sent in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is None:
                os.killpg(self.process.pid, sent)
                try:
                    self.process.wait(20)
                except subprocess.TimeoutExpired:
                    continue
        self.log.close()


async def exchange(port, method, path, body=None):
    """The body of the answer, and the seconds to its first event."""
    data = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    if body is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
    begin, first, answer = time.monotonic(), None, b""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(head.encode() + b"\r\n" + data)
        while part := await reader.read(1 << 16):
            answer += part
            if first is None and b"data: " in answer:
                first = time.monotonic() - begin
    finally:
        writer.close()
    head, _, rest = answer.partition(b"\r\n\r\n")
    assert b" 200 " in head.split(b"\r\n")[0], answer[:300].decode(errors="replace")
    if b"chunked" not in head.lower():
        return rest, first
    whole = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        whole, rest = whole + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return whole, first


async def measure(server, streams, tokens, prompt_tokens, chance):
    """Tokens per second of all streams, and the median of the seconds to the first token."""
    bodies = [
        {
            "model": server.model,
            "prompt": [chance.randrange(server.vocabulary // 4, server.vocabulary) for _ in range(prompt_tokens)],
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        for _ in range(streams)
    ]
    begin = time.monotonic()
    answers = await asyncio.gather(*(exchange(server.port, "POST", "/v1/completions", body) for body in bodies))
    seconds = time.monotonic() - begin
    for answer, _ in answers:
        events = [json.loads(line[6:]) for line in answer.decode().splitlines() if line.startswith("data: {")]
        count = [event["usage"]["completion_tokens"] for event in events if event.get("usage")]
        assert count and count[-1] == tokens, f"{server.name}: {count[-1:]} tokens of {tokens}"
    return streams * tokens / seconds, statistics.median(first for _, first in answers)


def commands(arguments):
    streams = max(arguments.streams)
    room = arguments.prompt_tokens + arguments.tokens + 16
    yield "tlt", (
        f"{shlex.quote(arguments.tlt)} serve --model {{model}} --port {{port}} --threads {arguments.threads} "
        f"--dtype bfloat16 --max-running {streams}"
    )
    if arguments.llama_server:
        assert arguments.gguf, "--llama-server needs the model in its own format; give --gguf FILE"
        yield "llama.cpp", (
            f"{shlex.quote(arguments.llama_server)} -m {shlex.quote(arguments.gguf)} --host 127.0.0.1 --port {{port}} "
            f"-t {arguments.threads} -tb {arguments.threads} -np {streams} -c {room * streams}"
        )
    if arguments.vllm:
        yield "vllm", (
            f"{shlex.quote(arguments.vllm)} -m vllm.entrypoints.openai.api_server --model {{model}} --host 127.0.0.1 "
            f"--port {{port}} --dtype bfloat16 --max-num-seqs {streams} --max-model-len {room}"
        )
    for extra in arguments.server:
        name, equal, command = extra.partition("=")
        assert equal and "{port}" in command, f"--server {extra}; give NAME=COMMAND with {{port}}"
        yield name, command


async def rounds(servers, arguments):
    results, chance = {}, random.Random(1)
    for number in range(arguments.rounds):
        for streams in arguments.streams:
            for server in servers if number % 2 == 0 else servers[::-1]:
                rate, first = await measure(server, streams, arguments.tokens, arguments.prompt_tokens, chance)
                results.setdefault((server.name, streams), []).append((rate, first))
                row = {"server": server.name, "round": number, "streams": streams}
                row |= {"tokens_per_second": round(rate, 1), "first_token_seconds": round(first, 3)}
                if arguments.json:
                    with open(arguments.json, "a") as file:
                        file.write(json.dumps(row) + "\n")
    return results


def print_table(servers, results, arguments):
    print("| server | " + " | ".join(f"{n} streams: tokens/s, first token" for n in arguments.streams) + " |")
    print("|---" * (1 + len(arguments.streams)) + "|")
    for server in servers:
        cells = []
        for streams in arguments.streams:
            rates, firsts = zip(*results[server.name, streams])
            cells.append(f"{statistics.median(rates):.0f}, {statistics.median(firsts):.2f} s")
        print(f"| {server.name} | " + " | ".join(cells) + " |")


async def run(arguments):
    servers, started = [], []
    try:
        missing = 0
        for name, command in commands(arguments):
            try:
                servers.append(Server(name, command, arguments))
            except OSError as error:
                missing += 1
                print(f"{name} does not start: {error}", file=sys.stderr)
        for server in servers:
            try:
                await server.wait()
                started.append(server)
            except RuntimeError as error:
                print(error, file=sys.stderr)
        if started:
            print_table(started, await rounds(started, arguments), arguments)
        return 0 if missing == 0 and len(started) == len(servers) else 1
    finally:
        for server in servers:
            server.end()


def main():
    numbers = lambda text: [int(word) for word in text.split(",")]  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True, help="folder in Hugging Face's format")
    parser.add_argument("--tlt", default="build/tlt")
    parser.add_argument("--llama-server", default="", help="program of llama.cpp")
    parser.add_argument("--gguf", default="", help="the same model for llama.cpp, in bf16")
    parser.add_argument("--vllm", default="", help="Python of an environment with vLLM")
    parser.add_argument("--server", action="append", default=[], help="NAME=COMMAND, may be given several times")
    parser.add_argument("--streams", type=numbers, default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", default="", help="file to append each measurement to")
    arguments = parser.parse_args()
    try:
        sys.exit(asyncio.run(run(arguments)))
    except AssertionError as error:
        sys.exit(f"serve_bench.py: {error}")


if __name__ == "__main__":
    main()
