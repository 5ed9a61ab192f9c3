# SPDX-License-Identifier: Apache-2.0
"""Sends hostile requests (_hostile_requests.py) to `tlt serve` and watches it (run_hostile_files.py)."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

from _hostile_requests import SAMPLER, SESSION

START_SECONDS, ANSWER_SECONDS, STOP_SECONDS = 120, 60, 60
LEAVE_SECONDS = 0.5  # after which a client that was sent nothing leaves: half a request gets no answer
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
MOST_ANSWER, MOST_MESSAGE = 64 << 20, 1100
GOOD = {"prompt": "7,6,3:60<think>", "max_tokens": 12, "seed": 1, "return_token_ids": True}
GOOD_SAMPLE = {"sampling_session_id": SAMPLER, "num_samples": 1, "sampling_params": {"max_tokens": 12, "seed": 1},
               "prompt": {"chunks": [{"type": "encoded_text", "tokens": [17, 18, 12, 20]}]}}
TEMPLATE = ("{% for m in messages %}{% if m.role == 'refused' %}{{ raise_exception('no') }}{% endif %}{{ m.content }}"
            "{% endfor %}{% if tools %},{% endif %}")


class Answer:
    """The answer to the bytes of a connection: the last one if there were several requests. status None: none."""

    def __init__(self, data):
        self.statuses = [int(status) for status in re.findall(rb"(?:^|\n)HTTP/1\.1 (\d{3}) ", data)]
        self.status = self.statuses[0] if self.statuses else None
        head, _, self.body = data.partition(b"\r\n\r\n")
        self.is_chunked = b"transfer-encoding: chunked" in head.lower()
        length = re.search(rb"\r\ncontent-length: (\d+)", head.lower())
        self.length = int(length[1]) if length else None

    def is_whole(self):
        if self.status is None:
            return False
        if self.is_chunked:
            return self.body.endswith(b"0\r\n\r\n")
        return self.length is not None and len(self.body) >= self.length

    def json(self):
        try:
            return json.loads(self.body[:self.length])
        except ValueError:
            return None


class Server:
    """A server of the demo's model with a chat template; with `trains` it has the Tinker API, too."""

    def __init__(self, program, root, scratch, trains):
        self.root, self.scratch, self.trains = root, scratch, trains
        self.numbers = 10**6  # sequence ids of good samplings
        model = scratch / "served"
        if not model.exists():
            shutil.copytree(root / "models/demo", model)
            (model / "chat_template.jinja").write_text(TEMPLATE)
        recipe = scratch / "served.toml"
        recipe.write_text(f'[model]\npath = "{model}"\n[actor]\nppo_max_token_len_per_gpu = 400\n'
                          f'[trainer]\ndefault_local_dir = "{scratch / "served_run"}"\n')
        source = ["--train", recipe] if trains else ["--model", model]
        self.log = open(scratch / f"serve_{int(trains)}.log", "w+b")
        self.process = subprocess.Popen(
            [program, "serve", *map(str, source), "--port", "0", "--served-model-name", "demo", "--threads", "1",
             "--kv-memory", "16MB", "--speculation", "off"],
            cwd=root, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.log, start_new_session=True)
        self.port = self.wait_for_port()
        self.session = SESSION
        if trains:
            self.begin_session()
        self.expected = self.good()
        self.base_bytes = self.memory()

    def wait_for_port(self):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            found = re.search(r"http://127\.0\.0\.1:(\d+)/v1 has", self.text())
            if found:
                return int(found[1])
            time.sleep(0.05)
        raise SystemExit(f"tlt serve has not started: {self.text()[-2000:]}")

    def text(self):
        return pathlib.Path(self.log.name).read_bytes().decode(errors="replace")

    def begin_session(self):
        self.session = self.post("/api/v1/create_session", {})["session_id"]
        assert len(self.session) == len(SESSION), self.session
        self.result(self.post("/api/v1/create_model", {"session_id": self.session, "model_seq_id": 0, "base_model": "demo",
                                                       "lora_config": {"rank": 2, "seed": 1}}))
        self.post("/api/v1/create_sampling_session", {"session_id": self.session, "sampling_session_seq_id": 0,
                                                      "base_model": "demo"})

    def result(self, promise):
        """The answer with the result of a request of the Tinker API."""
        while True:
            answer = self.send_body("/api/v1/retrieve_future", json.dumps({"request_id": promise["request_id"]}).encode())
            if not isinstance(answer.json(), dict) or answer.json().get("type") != "try_again":
                return answer

    # ---- requests

    def post(self, path, value):
        answer = self.send_body(path, json.dumps(value).encode())
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {answer.body[:500]!r}")
        return answer.json()

    def send_body(self, path, body, method="POST", kind="application/json"):
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        return self.send(head.encode("latin-1") + body, ANSWER_SECONDS)

    def send(self, data, seconds):
        """Sends the bytes while it reads the answer; leaves after `seconds` without a byte of it."""
        received = bytearray()
        with socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_SECONDS) as connection:
            connection.setblocking(False)
            last = time.monotonic()
            while time.monotonic() - last < seconds and len(received) < MOST_ANSWER:
                if data:
                    try:
                        sent = connection.send(data[:1 << 16])
                        data, last = data[sent:], time.monotonic()
                    except BlockingIOError:
                        pass
                    except OSError:
                        data = b""  # refused before its end
                try:
                    part = connection.recv(1 << 16)
                    if not part:
                        break
                    received += part
                    last = time.monotonic()
                    if not data and Answer(bytes(received)).is_whole():
                        break
                except BlockingIOError:
                    if not data:
                        time.sleep(0.001)
                except OSError:
                    break
        return Answer(bytes(received))

    def good(self):
        """What the good request is answered with."""
        if not self.trains:
            choice = self.post("/v1/completions", GOOD)["choices"][0]
            return choice["text"], choice["token_ids"]
        self.numbers += 1
        sample = {**GOOD_SAMPLE, "seq_id": self.numbers, "sampling_session_id": SAMPLER.replace(SESSION, self.session)}
        return self.result(self.post("/api/v1/asample", sample)).body

    # ---- one file

    def check(self, file, internal_names):
        """Sends a file's request; returns whether it was accepted, CPU seconds, growth in bytes, and violations."""
        data = file.read_bytes().replace(SESSION.encode(), self.session.encode())
        before = self.cpu_seconds()
        found = []
        if file.suffix == ".http":
            answer = self.send(data, LEAVE_SECONDS)
        else:
            line, _, body = data.partition(b"\n")
            method, path, kind = line.decode("latin-1").split(" ")
            answer = self.send_body(path, body, method, kind)
            if answer.status is None:
                found.append("no answer")
        promise = answer.json()
        if answer.status == 200 and isinstance(promise, dict) and "request_id" in promise:
            answer = self.result(promise)
            failure = answer.json()
            if isinstance(failure, dict) and failure.get("category") == "server":
                found.append(f"a fault of the server: {failure['error'][:300]}")
            if isinstance(failure, dict) and "error" in failure:
                found += sentence_faults(failure["error"], internal_names)
        seconds = self.cpu_seconds() - before
        found += self.answer_faults(answer, internal_names)
        found += self.health_faults()
        return answer.status is not None and answer.status < 400, seconds, self.memory() - self.base_bytes, found

    @staticmethod
    def answer_faults(answer, internal_names):
        for status in answer.statuses:
            if status >= 500 or (status < 200 and status != 100):
                yield f"status {status}"
        if answer.status is None or answer.status < 400:
            return
        error = answer.json()
        if not isinstance(error, dict) or not isinstance(error.get("error"), dict):
            yield f"status {answer.status} without the fields of an error: {answer.body[:200]!r}"
            return
        yield from sentence_faults(error["error"].get("message", ""), internal_names)

    def health_faults(self):
        """That the server is alive, and answers the good request as before."""
        try:
            now = self.good()
        except (OSError, RuntimeError, TypeError, KeyError) as error:
            code = self.process.poll()
            yield f"afterwards the good request fails ({error}); " + (
                "the server is alive" if code is None else f"the server has ended with {code}: {self.text()[-500:]}")
            return
        if now != self.expected:
            yield f"afterwards the good request is answered with {now!r} instead of {self.expected!r}"

    def is_alive(self):
        return self.process.poll() is None

    def cpu_seconds(self):
        try:
            fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS

    def memory(self):
        """The largest resident memory so far."""
        try:
            status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        except OSError:
            return 0
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        return int(found[1]) << 10 if found else 0

    def stop(self):
        """Ends the server as SIGTERM does; returns violations."""
        if self.is_alive():
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            return ["the server does not end on SIGTERM"]
        return [] if code == 0 else [f"the server ended with {code}: {self.text()[-1000:]}"]


def sentence_faults(message, internal_names):
    if not isinstance(message, str) or not message.strip():
        yield f"an error without a sentence: {message!r}"
        return
    if len(message.encode()) > MOST_MESSAGE:
        yield f"a message of {len(message.encode())} bytes"
    if re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", message):
        yield f"a control character in {message[:200]!r}"
    found = internal_names.search(message)
    if found:
        yield f"an internal name, {found.group()!r}: {message[:300]}"
