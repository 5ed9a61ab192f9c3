#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""openai_client.py URL: drives a running `tlt serve` of the demo's model with OpenAI's official Python client.

Chat, completions, streaming, tools, logprobs, n, errors, timeouts. Prints "ok" at the end; an assertion names what
differs. The test OfficialClientWorks (src/apps/serve_test.cpp) runs it.
"""
import sys

import openai

KEY = "0123456789abcdef"
PROMPT = "4,6,8:"
MESSAGES = [{"role": "user", "content": PROMPT}]
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]


def completions(client):
    wanted = dict(model="demo", prompt=PROMPT, seed=7, max_tokens=24, n=2, logprobs=2)
    whole = client.completions.create(**wanted)
    assert [choice.index for choice in whole.choices] == [0, 1]
    assert whole.usage.prompt_tokens == 6
    for choice in whole.choices:
        assert choice.finish_reason in ("stop", "length")
        assert len(choice.logprobs.tokens) == len(choice.logprobs.token_logprobs) == len(choice.logprobs.text_offset)
        for token, logprob, top in zip(
            choice.logprobs.tokens, choice.logprobs.token_logprobs, choice.logprobs.top_logprobs
        ):
            assert top[token] == logprob
    texts = ["", ""]
    for event in client.completions.create(stream=True, **wanted):
        for choice in event.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in whole.choices]
    again = client.completions.create(**wanted)
    assert [choice.text for choice in again.choices] == texts, "same seed, same text"
    ids = client.completions.create(
        **{**wanted, "prompt": client.post("/../tokenize", body={"prompt": PROMPT}, cast_to=object)["tokens"]},
        extra_body={"return_token_ids": True},
    )
    assert [choice.text for choice in ids.choices] == texts
    assert sum(len(choice.token_ids) for choice in ids.choices) == ids.usage.completion_tokens


def chat(client):
    wanted = dict(model="demo", messages=MESSAGES, seed=3, max_completion_tokens=24)
    whole = client.chat.completions.create(logprobs=True, top_logprobs=3, **wanted)
    choice = whole.choices[0]
    assert choice.message.role == "assistant" and choice.message.tool_calls is None
    assert len(choice.logprobs.content) == whole.usage.completion_tokens
    assert all(len(token.top_logprobs) == 3 for token in choice.logprobs.content)
    text, usage = "", None
    for event in client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **wanted):
        for part in event.choices:
            text += part.delta.content or ""
        usage = event.usage or usage
    assert text == choice.message.content
    assert usage == whole.usage
    sampled = client.chat.completions.create(**wanted, top_p=0.9, temperature=0.5, extra_body={"top_k": 5, "min_p": 0.1})
    assert sampled.choices[0].message.content


# The model of this server answers every conversation that offers tools with a call, if it is given one to repeat.
def tools(client):
    history = MESSAGES + [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "2"},
    ]
    answer = client.chat.completions.create(model="demo", messages=history, tools=TOOLS, max_tokens=8, seed=1)
    assert answer.choices[0].finish_reason in ("stop", "length", "tool_calls")


def refused(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def errors(client, url):
    wanted = dict(model="demo", prompt=PROMPT, max_tokens=2)
    error = refused(openai.BadRequestError, lambda: client.completions.create(**{**wanted, "n": 0}))
    assert error.param == "n" and error.type == "invalid_request_error", error
    refused(openai.NotFoundError, lambda: client.completions.create(**{**wanted, "model": "gpt-4"}))
    refused(openai.BadRequestError, lambda: client.completions.create(**wanted, presence_penalty=1))
    stranger = openai.OpenAI(base_url=url, api_key="another key", max_retries=0)
    refused(openai.AuthenticationError, lambda: stranger.completions.create(**wanted))
    hasty = client.with_options(timeout=0.05, max_retries=0)
    refused(
        openai.APITimeoutError,
        lambda: hasty.completions.create(**{**wanted, "max_tokens": 1900, "n": 8}, extra_body={"ignore_eos": True}),
    )


def main():
    url = sys.argv[1]
    client = openai.OpenAI(base_url=url, api_key=KEY, max_retries=0)
    assert [model.id for model in client.models.list()] == ["demo"]
    completions(client)
    chat(client)
    tools(client)
    errors(client, url)
    print("ok")


if __name__ == "__main__":
    main()
