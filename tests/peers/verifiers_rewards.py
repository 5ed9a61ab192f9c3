# SPDX-License-Identifier: Apache-2.0
"""Compares what tools/verifiers_env.py answers with what the package verifiers computes itself for the same conversations.

  python3 tests/peers/verifiers_rewards.py FOLDER     FOLDER is for the rows

For each row of each kind of verifiers_environments.py, and each of some scripts of a model, the episode is played twice: by
calls of the protocol of docs/environments.md, and by Environment.generate() with an OpenAI client at a server of this process.
Observations, reward and metrics must be equal.
Prints a JSON object: for each kind the numbers of episodes and turns, and the rewards that occurred.
"""
import asyncio
import http.server
import importlib.util
import json
import subprocess
import sys
import threading
from pathlib import Path

from openai import AsyncOpenAI

HERE = Path(__file__).parent
ENVIRONMENT = HERE / "verifiers_environments.py"
sys.path.insert(0, str(HERE))
import verifiers_environments  # noqa: E402


def call(name, **arguments):
    return {"id": f"call_{name}_{len(arguments)}", "type": "function", "function": {"name": name, "arguments": arguments}}


def scripts(kind, row):
    """The model's messages, turn by turn, as tlt would parse them."""
    answer = str(row["answer"])
    texts = [[f"<think>backwards</think><answer>{answer}</answer>"], [answer], ["", "x" * 9, "no 42", "no", "no"],
             ["Is it 3?", f"It is {answer} then", "done"], [f"é 🙂 \n {answer}"]]
    messages = [[{"role": "assistant", "content": text} for text in script] for script in texts]
    if kind not in ("tools", "stateful"):
        return messages
    add = {"role": "assistant", "content": "", "tool_calls": [call("add", a=int(answer) - 40, b=40)]}
    both = {"role": "assistant", "content": "two", "tool_calls": [call("repeat", text="ab", times=3), call("add", a=1, b=2)]}
    wrong = {"role": "assistant", "content": "", "tool_calls": [call("multiply", a=1), call("add", a="one")]}
    final = {"role": "assistant", "content": f"The sum is {answer}."}
    if kind == "stateful":
        both = {"role": "assistant", "content": "two", "tool_calls": [call("add", a=1), call("add", a=5)]}
    return messages[:2] + [[add, final], [both, add, final], [wrong, final], [add] * 6]


class Program:
    """tools/verifiers_env.py, with one episode after the other."""

    def __init__(self, kind):
        self.arguments = [sys.executable, str(HERE.parent.parent / "tools" / "verifiers_env.py"), str(ENVIRONMENT),
                          "--args", json.dumps({"kind": kind})]
        self.process = subprocess.Popen(self.arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.calls = 0

    def ask(self, **fields):
        self.calls += 1
        print(json.dumps({"id": self.calls, **fields}), file=self.process.stdin, flush=True)
        answer = json.loads(self.process.stdout.readline())
        assert answer["id"] == self.calls, answer
        return answer

    def play(self, episode, line, script):
        """Observations, and the last answer."""
        first = self.ask(call="reset", episode=episode, seed=episode, row=line)
        assert not first.get("messages") and "error" not in first, first
        observed = []
        for turn, message in enumerate(script, 1):
            answer = self.ask(call="step", episode=episode, turn=turn, message=message,
                              tool_calls=[{"id": c["id"], **c["function"]} for c in message.get("tool_calls", [])])
            assert "error" not in answer, answer
            if answer.get("done"):
                return observed, turn, answer
            observed += answer["messages"]
        print(json.dumps({"call": "close", "episode": episode}), file=self.process.stdin, flush=True)
        return observed, len(script), None  # the script ended first


def openai_message(message):
    if "tool_calls" not in message:
        return message
    return {**message, "tool_calls": [{**c, "function": {**c["function"], "arguments": json.dumps(c["function"]["arguments"])}}
                                      for c in message["tool_calls"]]}


class Server:
    """Answers chat completions with the messages of a script, in order."""

    def __init__(self):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                message = openai_message(outer.script[outer.turn])
                outer.turn += 1
                reason = "tool_calls" if "tool_calls" in message else "stop"
                body = json.dumps({"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [
                    {"index": 0, "finish_reason": reason, "message": message}]}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def start(self, script):
        self.script, self.turn = script, 0


def load_tool():
    spec = importlib.util.spec_from_file_location("verifiers_env", HERE.parent.parent / "tools" / "verifiers_env.py")
    tool, stdout = importlib.util.module_from_spec(spec), sys.stdout
    spec.loader.exec_module(tool)
    sys.stdout = stdout
    return tool


def compare_kind(kind, server, folder):
    environment = verifiers_environments.load_environment(kind)
    program = Program(kind)
    rows_file = folder / f"{kind}.jsonl"
    load_tool().write_rows(environment, rows_file)
    lines = [json.loads(line) for line in rows_file.read_text(encoding="utf-8").splitlines()]
    rows = environment.get_dataset().to_list()
    assert len(rows) == len(lines)
    episodes = turns = unfinished = 0
    rewards = set()

    async def compare():
        nonlocal episodes, turns, unfinished
        client = AsyncOpenAI(api_key="none", base_url=f"http://127.0.0.1:{server.server.server_port}/v1", max_retries=0)
        for row, line in zip(rows, lines):
            for script in scripts(kind, row):
                episodes += 1
                observed, used, last = program.play(episodes, line, script)
                turns += used
                if last is None:
                    unfinished += 1
                    continue
                server.start(script)
                result = await environment.generate([row], client=client, model="m", use_tqdm=False)
                assert server.turn == used, (script, server.turn, used)
                want = [(m["role"], m["content"] or "") for m in result["completion"][0] if m["role"] != "assistant"]
                assert [(m["role"], m["content"]) for m in observed] == want, (observed, want)
                assert last["reward"] == result["reward"][0], (script, last, result["reward"])
                metrics = {name: values[0] for name, values in result["metrics"].items()}
                assert last["extra"] == metrics, (last, metrics)
                rewards.add(last["reward"])

    asyncio.run(compare())
    program.process.stdin.close()
    program.process.wait(timeout=60)
    return {"episodes": episodes, "turns": turns, "unfinished": unfinished, "rewards": sorted(rewards)}


def main():
    server = Server()
    kinds = ["single", "several", "tools", "stateful", "group"]
    print(json.dumps({kind: compare_kind(kind, server, Path(sys.argv[1])) for kind in kinds}))


if __name__ == "__main__":
    main()
