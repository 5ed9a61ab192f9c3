# SPDX-License-Identifier: Apache-2.0
"""Responses of a model: by a server that is started for them, or by one that runs."""
import os
import re
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Dict, List, Optional, Sequence, Type, Union

from .client import Client
from .errors import TltError
from .program import Process

Path = Union[str, "os.PathLike[str]"]
Messages = Sequence[Dict[str, Any]]

# The server's own limits; a long list of prompts raises them.
_DEFAULT_WAITING, _DEFAULT_BODY = 1024, 4 << 20


class Server:
    """A `tlt serve` of this process on a free port of loopback, for a `with` block; it gives the client.

        with tlt.Server("models/demo") as client:
            print(client.completions("7,6,3:60<think>", seed=1)["choices"][0]["text"])

    `flags` are those of `tlt serve`, such as ["--drafter", "runs/demo"]; `timeout` is that of the client, and of the
    server's start. The server ends with the block, and also when
    this Python is killed.
    """

    def __init__(self, model: Path, flags: Sequence[str] = (), timeout: float = 600):
        self._words = ["serve", "--model", os.fspath(model), "--port", "0", *flags]
        self._timeout = timeout
        self._process: Optional[Process] = None

    def __enter__(self) -> Client:
        self._process = Process(self._words)
        try:
            for line in self._process.lines(self._timeout):
                found = re.search(r"(http://\S+)/v1 has the model ", line)
                if found:
                    return Client(found.group(1), timeout=self._timeout)
            raise self._process.error()
        except BaseException:
            self._process.stop()
            raise

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        assert self._process is not None
        self._process.stop()
        if kind is None and self._process.exit_code != 0:
            raise self._process.error()


@dataclass(frozen=True)
class Response:
    """A response: `prompt` is the index of its prompt, `sample` its number among the `n` of that prompt."""

    prompt: int
    sample: int
    text: str
    token_ids: List[int]
    finish_reason: str  # "stop", "length" or "tool_calls"


def _of_choices(choices: List[Dict[str, Any]], first: int, samples: int) -> List[Response]:
    responses = []
    for choice in sorted(choices, key=lambda choice: choice["index"]):
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        prompt, sample = divmod(choice["index"], samples)
        ids = choice["token_ids"]
        responses.append(Response(first + prompt, sample, text or "", ids, choice["finish_reason"]))
    return responses


def _of_client(client: Client, prompts: Sequence[Any], fields: Dict[str, Any]) -> List[Response]:
    samples = fields.get("n", 1)
    fields = {"return_token_ids": True, **fields}
    if prompts and not isinstance(prompts[0], str) and isinstance(prompts[0][0], dict):
        return [
            response
            for index, messages in enumerate(prompts)
            for response in _of_choices(client.chat(messages, **fields)["choices"], index, samples)
        ]
    return _of_choices(client.completions(prompts, **fields)["choices"], 0, samples) if prompts else []


def generate(
    model: Union[Path, Client],
    prompts: Union[Sequence[str], Sequence[Sequence[int]], Sequence[Messages]],
    flags: Sequence[str] = (),
    **fields: Any,
) -> List[Response]:
    """Responses to prompts (strings, token ids or conversations), in their order; all `n` of a prompt together.

    `model` is what `tlt serve --model` takes, or a Client of a running server. `flags` are those of `tlt serve`;
    `fields` those of a request: max_tokens, temperature, n, seed … The same seed gives the tokens of `tlt generate`.
    """
    if isinstance(prompts, str):
        raise TypeError("prompts is a list, such as [prompt]")
    if isinstance(model, Client):
        if flags:
            raise TltError("flags are of a server that is started here; leave them out with a Client")
        return _of_client(model, prompts, fields)
    waiting = max(_DEFAULT_WAITING, len(prompts) * int(fields.get("n", 1)))
    body = max(_DEFAULT_BODY, 16 * sum(len(prompt) for prompt in prompts))
    with Server(model, ["--max-waiting", str(waiting), "--max-body", str(body), *flags]) as client:
        return _of_client(client, prompts, fields)
