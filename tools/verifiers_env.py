#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs an environment of the package `verifiers`, unchanged, as a program of environment.command.

Needs the package with the classes Environment and Rubric: version 0.1.8, which tests have. Of the later ones only 0.2.1
was tried, in part (docs/environments.md); 0.3 and 0.4 have another interface and are not supported.

  python3 tools/verifiers_env.py ENVIRONMENT --write-rows rows.jsonl     the rows, once
  build/tlt train RECIPE.toml data.train_files='["rows.jsonl"]' data.chat_template=model \\
      environment.command='["python3", "tools/verifiers_env.py", "ENVIRONMENT"]'

ENVIRONMENT is an installed environment, or a Python file with load_environment(). --args passes a JSON object to
load_environment(). The environment's own loop runs with a client whose answers are the turns of the model that tlt
trains; the reward of the episode is that of the environment's rubric, and its metrics are the columns `extra`. Rubrics
that score a group as a whole are refused. docs/environments.md describes the protocol.
"""
import argparse
import asyncio
import importlib.util
import inspect
import json
import sys
import threading
import types

MAX_BATCH = 64  # calls in one line

answers = sys.stdout
sys.stdout = sys.stderr  # what the environment prints is no answer


def load(name, arguments):
    if name.endswith(".py"):
        spec = importlib.util.spec_from_file_location("environment", name)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.load_environment(**arguments)
    import verifiers
    return verifiers.load_environment(name, **arguments)


def plain(value):
    """As JSON has it: datasets fill absent fields of a struct with None."""
    return json.loads(json.dumps(value, default=str))


def write_rows(environment, path):
    tools = list(getattr(environment, "oai_tools", None) or [])
    for tool in getattr(environment, "tool_defs", None) or []:  # from 0.1.10 on
        tools.append({"type": "function",
                      "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters}})
    with open(path, "w", encoding="utf-8") as file:
        for row in environment.get_dataset():
            row = plain(dict(row))
            line = {"prompt": row["prompt"], "ground_truth": str(row.get("answer", "")),
                    "data_source": "verifiers", "extra_info": {"verifiers": row}}
            if tools:
                line["tools"] = plain(tools)
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


class Episode:
    """One rollout of the environment; it is the client that the rollout asks for the model's turns."""

    def __init__(self, environment, call):
        self.environment, self.id = environment, call["id"]
        self.known = 0  # messages that tlt has
        self.turns = asyncio.Queue()
        self.chat = types.SimpleNamespace(completions=types.SimpleNamespace(create=self.create))
        self.task = asyncio.ensure_future(self.run(call["row"]["extra_info"]["verifiers"]))

    def answer(self, **fields):
        print(json.dumps({"id": self.id, **fields}), file=answers, flush=True)

    async def create(self, messages, **_):
        from openai.types.chat import ChatCompletion
        new = [{"role": m["role"], "content": m.get("content") or ""} for m in messages[self.known:]]
        self.answer(**({"messages": new} if self.known else {"max_batch": MAX_BATCH}))
        self.id, message = await self.turns.get()
        self.known = len(messages) + 1
        message = dict(message)
        for call in message.get("tool_calls", []):
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
        choice = {"index": 0, "finish_reason": "tool_calls" if "tool_calls" in message else "stop",
                  "logprobs": None, "message": message}
        return ChatCompletion.model_validate({"id": "tlt", "object": "chat.completion", "created": 0,
                                              "model": "tlt", "choices": [choice]})

    def client(self):
        try:
            from verifiers.clients import OpenAIChatCompletionsClient  # from 0.1.10 on
        except ImportError:
            return self

        class Client(OpenAIChatCompletionsClient):
            async def get_native_response(self, prompt, *_, **__):
                return await self.client.create(prompt)

        return Client(self)

    async def run(self, row):
        try:
            state = await self.environment.rollout(row, self.client(), "tlt", {})
            if state.get("error"):
                raise state["error"]
            score = self.environment.rubric.score_rollout
            if "score_sem" in inspect.signature(score).parameters:
                await score(state, score_sem=asyncio.Semaphore(1))
            else:
                await score(state)
            metrics = {k: v for k, v in (state.get("metrics") or {}).items() if isinstance(v, (int, float))}
            self.answer(done=True, reward=float(state["reward"]), extra=metrics)
        except Exception as error:  # fails this episode only
            self.answer(error=f"{type(error).__name__}: {error}")


async def serve(environment):
    loop, calls, episodes = asyncio.get_running_loop(), asyncio.Queue(), {}

    def read():
        for line in sys.stdin:
            loop.call_soon_threadsafe(calls.put_nowait, line)
        loop.call_soon_threadsafe(calls.put_nowait, None)

    def take(call):
        if call["call"] == "reset":
            episodes[call["episode"]] = Episode(environment, call)
        elif call["call"] == "step":
            episodes[call["episode"]].turns.put_nowait((call["id"], call["message"]))
        elif (episode := episodes.pop(call["episode"], None)) is not None:
            episode.task.cancel()

    threading.Thread(target=read, daemon=True).start()
    while (line := await calls.get()) is not None:
        batch = json.loads(line)
        for call in batch if isinstance(batch, list) else [batch]:
            take(call)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("environment")
    parser.add_argument("--args", default="{}", help="JSON object for load_environment()")
    parser.add_argument("--write-rows", metavar="FILE", help="write the environment's rows and exit")
    options = parser.parse_args()
    environment = load(options.environment, json.loads(options.args))
    if options.write_rows:
        write_rows(environment, options.write_rows)
    else:
        asyncio.run(serve(environment))


if __name__ == "__main__":
    main()
