# SPDX-License-Identifier: Apache-2.0
"""The requests of a running `tlt serve`, with the standard library alone."""
import http.client
import json
import os
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Optional, Sequence, Union
from urllib.parse import urlsplit

from .errors import ServerError, TltError, UnreachableError

Json = Dict[str, Any]
Prompt = Union[str, Sequence[int], Sequence[str], Sequence[Sequence[int]]]


def _refusal(status: int, body: bytes) -> ServerError:
    try:
        error = json.loads(body)["error"]
        return ServerError(error["message"], status, error.get("type"), error.get("param"), error.get("code"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return ServerError(f"the server answered with status {status}", status)


class Client:
    """A running `tlt serve`. Every call is one connection, so threads may share a client.

    `fields` of a call are those of the request (docs/serving.md): max_tokens, temperature, n, seed, stop, logprobs …
    """

    def __init__(self, url: str = "http://127.0.0.1:8000", api_key: Optional[str] = None, timeout: float = 600):
        """`timeout`: seconds without a byte of an answer after which a call raises UnreachableError."""
        address = urlsplit(url if "://" in url else "http://" + url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise TltError(f"{url} is not the address of a server; give one such as http://127.0.0.1:8000")
        self.url = f"{address.scheme}://{address.netloc}"
        self._host, self._port = address.hostname, address.port
        self._is_encrypted = address.scheme == "https"
        self._api_key, self._timeout = api_key, timeout

    @contextmanager
    def _answer(self, path: str, body: Optional[Json] = None) -> Iterator[http.client.HTTPResponse]:
        kind = http.client.HTTPSConnection if self._is_encrypted else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=self._timeout)
        headers = {"Content-Type": "application/json"}
        if self._api_key is not None:
            headers["Authorization"] = "Bearer " + self._api_key
        try:
            if body is None:
                connection.request("GET", path, headers=headers)
            else:
                connection.request("POST", path, json.dumps(body), headers)
            answer = connection.getresponse()
            if answer.status != 200:
                raise _refusal(answer.status, answer.read())
            yield answer
        except (OSError, http.client.HTTPException) as error:
            raise UnreachableError(f"no answer from {self.url}: {error or type(error).__name__}") from error
        finally:
            connection.close()  # the server cancels what it still computes for it

    def _call(self, path: str, body: Optional[Json] = None) -> Any:
        with self._answer(path, body) as answer:
            return json.loads(answer.read())

    def _events(self, path: str, body: Json) -> Iterator[Json]:
        with self._answer(path, {**body, "stream": True}) as answer:
            for line in answer:
                if not line.startswith(b"data: "):
                    continue
                if line.strip() == b"data: [DONE]":
                    return
                event = json.loads(line[len(b"data: ") :])
                if "error" in event:
                    raise _refusal(200, line[len(b"data: ") :])
                yield event
        raise UnreachableError(f"the answer of {self.url} ended early")

    def completions(self, prompt: Prompt, **fields: Any) -> Json:
        """Responses to a prompt, or to a list of them: strings or token ids."""
        answer: Json = self._call("/v1/completions", {"prompt": prompt, **fields})
        return answer

    def stream_completions(self, prompt: Prompt, **fields: Any) -> Iterator[Json]:
        """The events of completions(); to leave the loop cancels the response."""
        return self._events("/v1/completions", {"prompt": prompt, **fields})

    def chat(self, messages: Sequence[Json], **fields: Any) -> Json:
        """Responses to a conversation: messages of {"role", "content"}."""
        answer: Json = self._call("/v1/chat/completions", {"messages": messages, **fields})
        return answer

    def stream_chat(self, messages: Sequence[Json], **fields: Any) -> Iterator[Json]:
        """The events of chat(); to leave the loop cancels the response."""
        return self._events("/v1/chat/completions", {"messages": messages, **fields})

    def tokenize(self, prompt: Optional[str] = None, **fields: Any) -> List[int]:
        """The tokens of a prompt, or of a conversation: tokenize(messages=…)."""
        tokens: List[int] = self._call("/tokenize", fields if prompt is None else {"prompt": prompt, **fields})["tokens"]
        return tokens

    def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""
        text: str = self._call("/detokenize", {"tokens": list(tokens)})["prompt"]
        return text

    def update_weights(self, model: "Union[str, os.PathLike[str]]") -> int:
        """Replaces the weights by those of a model folder or a run's newest checkpoint; returns their version."""
        folder = os.path.abspath(model)
        path = folder if os.path.exists(folder) else os.fspath(model)
        version: int = self._call("/update_weights", {"model_path": path})["weight_version"]
        return version

    def models(self) -> List[Json]:
        """The model of the server: id, positions, weight_version."""
        models: List[Json] = self._call("/v1/models")["data"]
        return models

    def health(self) -> Json:
        """{"status": "ok", "weight_version"}; an error when it answers no requests."""
        health: Json = self._call("/health")
        return health

    def metrics(self) -> str:
        """The counters for Prometheus."""
        with self._answer("/metrics") as answer:
            return answer.read().decode()
