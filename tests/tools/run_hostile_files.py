#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gives each hostile file to the command of tlt that reads such files, with bounds on time and memory.

  tests/tools/make_hostile_files.py runs/hostile && tests/tools/run_hostile_files.py runs/hostile
  tests/tools/run_hostile_files.py runs/hostile --sample 40 --parsers yaml,toml

Each file must be accepted (exit code 0) or refused (2) with exactly one error sentence, in less than --cpu-seconds (1;
the start of the program included; for draft models and run folders besides the time of a whole one) and 512 MB of
resident memory, without control characters, broken UTF-8 or names of libraries and sources in the output. Requests to
`tlt serve` must be answered with status 2xx or 4xx, a sentence with the latter, in less CPU time of the server and with
less growth of its memory than that; after each one the server must answer a good request with the same tokens.
Prints a table per parser with the costs of a valid file, the base line; then each violation, with the command.
Exit code 1: there were violations.
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import _hostile_folders
import _hostile_requests
from _hostile_server import Server
from make_hostile_files import GOLDEN, PARSERS, ROOT

MEMORY_BYTES = 512 << 20
CPU_LIMIT, WALL_LIMIT = 10, 60  # seconds; a file that takes longer is ended
MOST_OUTPUT = 64 << 20
# What a file must not be able to write to a terminal: C0 but the line's end and the tab, C1, bidirectional controls. Of
# these, JSON on the standard output must have the last two as they are.
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
CONTROLS_OF_OUTPUT = re.compile("[\x00-\x08\x0b-\x1f]")
# What a sentence to the user must not have: names of libraries and sources, exceptions, addresses, stacks.
INTERNAL = re.compile(r"nlohmann|json\.exception|spdlog|httplib|\bc10\b|\bat::|\btorch::|std::|basic_|TORCH_CHECK|"
                      r"what\(\)|terminate called|check failed|[a-z_]+\.(cpp|h|hpp):\d|\b0x[0-9a-f]{8,}|frame #\d")
TEXT = "The quick brown fox's 12,345 jumps 3,4,6:24 na\u00efve \u4e2d\u6587 " + "a" * 300

GRADED = [{"response": "\\boxed{1}", "ground_truth": truth, "prompt": "", "data_source": "math", "extra_info": {}}
          for truth in ("1", "3,4,6:24", '{"inputs":["1"],"outputs":["1"]}')]


class Setting:
    """The folders around the hostile file, and the command that reads it, by parser."""

    def __init__(self, program, scratch):
        self.program, self.scratch = program, scratch
        self.folders = _hostile_folders.Folders(program, ROOT, scratch)
        self.tokens = self.write("tokens.jsonl", {"tokens": [5, 6, 7]})
        self.text = self.write("text.jsonl", {"text": TEXT})
        self.chat = self.write("chat.jsonl", {"messages": [{"role": "user", "content": "1+1"}]})
        self.response = self.write("response.jsonl", *GRADED)

    def write(self, name, *rows):
        path = self.scratch / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    def with_graded(self, file):
        """A copy with rows that every reward can score: a file in which no row has a score is an error of its own."""
        copy = self.scratch / "graded.jsonl"
        copy.write_bytes(file.read_bytes() + self.response.read_bytes())
        return copy

    def folder(self, source, name, file):
        """A copy of `source`, as links, in which `name` is the hostile file."""
        folder = self.scratch / "model"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(source, folder, copy_function=os.symlink)
        (folder / name).unlink(missing_ok=True)
        shutil.copy(file, folder / name)
        return folder

    def finished_run(self):
        """The folder of a run of one step, made once, and the command that made it."""
        folder = self.scratch / "run"
        command = ["sft", "model.path=models/demo", 'data.train_files=["countdown:seed=1,size=8"]',
                   "data.train_batch_size=2", "data.max_response_length=400", f"trainer.default_local_dir={folder}",
                   "trainer.total_training_steps=1", "trainer.test_freq=0", "trainer.save_freq=1", "trainer.threads=1"]
        if not folder.exists():
            subprocess.run([self.program, *command], cwd=ROOT, check=True, capture_output=True)
            shutil.copytree(folder, self.scratch / "whole_run")
        shutil.rmtree(folder)
        shutil.copytree(self.scratch / "whole_run", folder, copy_function=os.link)
        return folder, command

    def replace(self, path, file):
        path.unlink()  # the other link stays whole
        shutil.copy(file, path)

    def command(self, parser, file):
        if parser in FOLDERS:
            return self.folders.command(parser, file)
        def score(folder, *more):
            return ["score", "--model", folder, "--input", self.tokens, "--output", "-", "--threads", "1", *more]
        if parser in ("json", "jsonl", "parquet"):
            return ["data", "inspect", file]
        if parser in ("latex", "rows"):
            reward = "math" if parser == "latex" else "code"
            return ["reward", f'reward.functions=["{reward}"]', "--input", self.with_graded(file), "--output", "-"]
        if parser == "measurements":
            return ["simulate", "--fit", file]
        if parser in ("recorded_tokens", "forward_costs"):
            return self.simulate(parser, file)
        if parser == "toml":
            return ["reward", file, "--input", self.response, "--output", "-"]
        if parser == "yaml":
            return ["import", "verl", file]
        if parser == "tokenizer":
            return ["tokenize", "--model", self.folder(GOLDEN / "tokenizers/llama3_style", "tokenizer.json", file), "encode",
                    "--input", self.text]
        if parser == "chat_template":
            return ["tokenize", "--model", self.folder(GOLDEN / "tokenizers/demo", "tokenizer_config.json", file), "chat",
                    "--input", self.chat]
        if parser == "adapter":
            adapter = self.folder(GOLDEN / "lora/all_linear", "adapter_config.json", file)
            return score(GOLDEN / "models/qwen3_untied", "--adapter", adapter)
        if parser in ("safetensors", "config"):
            name = {"safetensors": "model.safetensors", "config": "config.json"}[parser]
            return score(self.folder(GOLDEN / "models/qwen2_tied", name, file))
        if parser == "index":
            return score(self.folder(GOLDEN / "models/qwen3_sharded", "model.safetensors.index.json", file))
        return self.resume(parser, file)

    def simulate(self, parser, file):
        """One step of a worker with two responses."""
        rollouts = self.scratch / "rollouts"
        rollouts.mkdir(exist_ok=True)
        self.write("rollouts/000001.jsonl", {"response_tokens": 40, "score": 1}, {"response_tokens": 3, "score": 0})
        option = "bench_suffix" if parser == "recorded_tokens" else "bench_forward"
        return ["simulate", "device=cpu", "model=headline", "workers=1", "total_training_steps=1", "train_batch_size=1",
                "n=2", "max_response_length=64", f"lengths=rollouts:{rollouts}", "ways=plain,model-free",
                f"{option}={file}"]

    def resume(self, parser, file):
        """Resumes a finished run: reads the state of its checkpoint and has nothing more to do."""
        folder, command = self.finished_run()
        checkpoint = folder / "checkpoints/step_000001"
        manifest = checkpoint / "MANIFEST.json"
        if parser == "manifest":
            self.replace(manifest, file)
        else:
            self.replace(checkpoint / "state/loop.json", file)
            files = json.loads(manifest.read_text())
            files["files"]["state/loop.json"] = {"bytes": file.stat().st_size,
                                                 "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
            manifest.unlink()
            manifest.write_text(json.dumps(files))
        return command


FOLDERS, REQUESTS = _hostile_folders.makers(), _hostile_requests.makers()

# A file that each parser accepts, relative to tests/golden: the base line.
VALID = {
    "jsonl": "parquet/verl_gsm8k.jsonl", "parquet": "parquet/verl_gsm8k.parquet",
    "safetensors": "models/qwen2_tied/model.safetensors", "index": "models/qwen3_sharded/model.safetensors.index.json",
    "config": "models/qwen2_tied/config.json", "adapter": "lora/all_linear/adapter_config.json",
    "tokenizer": "tokenizers/llama3_style/tokenizer.json", "yaml": "verl/fastrl.yaml",
    "toml": "../../recipes/word_problems.toml", "measurements": "../data/simulate/figure13.jsonl",
}


def valid_file(setting, parser):
    if parser in FOLDERS:
        return None  # the folder as it is
    if parser == "chat_template":
        return setting.write("valid.json", {"chat_template": "{{ messages[0].content }}"})
    if parser == "json":
        return setting.write("valid.json", [{"prompt": "1"}])
    if parser == "latex":
        return setting.response
    if parser == "recorded_tokens":
        return setting.write("valid.jsonl", *[{"prompt": [1, 2], "response": [3, 4, 3, 4]}] * 2)
    if parser == "forward_costs":
        rows = [{"as": kind, "rows": rows, "context": 64, "forward_seconds_p50": 1, "head_seconds_p50": 0.5}
                for kind in ("tree", "sequences") for rows in (1, 2)]  # fmt: skip
        return setting.write("valid.jsonl", *rows)
    if parser == "rows":
        return setting.write("valid.jsonl", {"response": "no code", "prompt": "", "data_source": "code", "extra_info": {},
                                             "ground_truth": '{"inputs":["1"],"outputs":["1"]}'})
    if parser in ("manifest", "loop_state"):
        folder, _ = setting.finished_run()
        name = "MANIFEST.json" if parser == "manifest" else "state/loop.json"
        copy = setting.scratch / "valid.json"
        shutil.copy(setting.scratch / "whole_run/checkpoints/step_000001" / name, copy)
        return copy
    return GOLDEN / VALID[parser]


class Ended:
    """How a command ended, and what it cost."""

    def __init__(self, setting, words):
        self.words = [str(word) for word in words]
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = subprocess.Popen([setting.program, *self.words], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=err, start_new_session=True, preexec_fn=self.limit)
            self.wait(process)
            out.seek(0)
            err.seek(0)
            self.out, self.err = out.read(MOST_OUTPUT), err.read(MOST_OUTPUT)

    @staticmethod
    def limit():
        # The soft limits: the sandbox of the reward code sets its own.
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))

    def wait(self, process):
        end = time.monotonic() + WALL_LIMIT
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        while not pid:
            if time.monotonic() > end:
                os.killpg(process.pid, signal.SIGKILL)
            time.sleep(0.005)
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        self.code = process.returncode = os.waitstatus_to_exitcode(status)
        self.seconds, self.bytes = usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10

    def violations(self, cpu_seconds):
        if self.code not in (0, 2):
            yield f"exit code {self.code}"
        errors = [line for line in self.err.split(b"\n") if line.startswith(b"tlt")]
        wanted = 1 if self.code == 2 else 0
        if self.code in (0, 2) and len(errors) != wanted:
            yield f"{len(errors)} error sentences with exit code {self.code}"
        if self.seconds >= cpu_seconds:
            yield f"{self.seconds:.2f} s of CPU time"
        if self.bytes >= MEMORY_BYTES:
            yield f"{self.bytes >> 20} MB of memory"
        for line in self.err.decode(errors="replace").splitlines():
            if INTERNAL.search(line):
                yield f"an internal name: {line[:300]}"
        for name, stream, controls in (("output", self.out, CONTROLS_OF_OUTPUT), ("error output", self.err, CONTROLS)):
            try:
                found = controls.search(stream.decode())
                if found:
                    yield f"the {name} has the character U+{ord(found.group()):04X}"
            except UnicodeDecodeError:
                yield f"the {name} is not UTF-8"


class Row:
    """The row of a parser in the table."""

    def __init__(self, parser, base):
        self.parser, self.base = parser, base
        self.files = self.accepted = self.refused = 0
        self.slowest, self.largest = (0.0, "-"), (0, "-")

    def add(self, file, is_accepted, is_refused, seconds, size):
        self.files += 1
        self.accepted += is_accepted
        self.refused += is_refused
        self.slowest = max(self.slowest, (seconds, file.name))
        self.largest = max(self.largest, (size, file.name))

    def print(self):
        print(f"| {self.parser} | {self.files} | {self.accepted} | {self.refused} | {self.base} | "
              f"{self.slowest[0]:.2f} s {self.slowest[1]} | {self.largest[0] >> 20} MB {self.largest[1]} |", flush=True)


def check_requests(setting, parser, files, cpu_seconds):
    """The same for requests to a server, which is started again if it has ended."""
    def start():
        return Server(setting.program, ROOT, setting.scratch, trains=parser == "tinker")
    server, found = start(), []
    row = Row(parser, f"{server.base_bytes >> 20} MB")
    for file in files:
        is_accepted, seconds, growth, violations = server.check(file, INTERNAL)
        row.add(file, is_accepted, not is_accepted, seconds, growth)
        if seconds >= cpu_seconds:
            violations.append(f"{seconds:.2f} s of CPU time")
        if growth >= MEMORY_BYTES:
            violations.append(f"{growth >> 20} MB more memory")
        found += [f"{file}: {violation}" for violation in violations]
        if not server.is_alive() or growth >= MEMORY_BYTES:  # the next file has a maximum of its own
            server.stop()
            server = start()
    row.print()
    return found + [f"{parser}: {violation}" for violation in server.stop()]


def check_parser(setting, parser, files, cpu_seconds):
    """Prints the row of the table; returns sentences about violations."""
    if parser in REQUESTS:
        return check_requests(setting, parser, files, cpu_seconds)
    base = Ended(setting, setting.command(parser, valid_file(setting, parser)))
    if base.code == 2 and b"in a sandbox only" in base.err:
        print(f"| {parser} | skipped: this machine has no sandbox for the reward code |||||", flush=True)
        return []
    limit = CPU_LIMIT if parser in FOLDERS else cpu_seconds  # what a whole folder takes is the base line
    found = [f"{parser}: the valid file: {violation}" for violation in base.violations(limit)]
    if base.code != 0:
        found.append(f"{parser}: the valid file is refused: {base.err.decode(errors='replace')[-300:]}")
    if parser in FOLDERS:
        cpu_seconds += base.seconds + (setting.folders.run_seconds if parser == "places" else 0)
    row = Row(parser, f"{base.seconds:.2f} s, {base.bytes >> 20} MB")
    for file in files:
        ended = Ended(setting, setting.command(parser, file))
        row.add(file, ended.code == 0, ended.code == 2, ended.seconds, ended.bytes)
        found += [f"{file}: {violation}; tlt {' '.join(ended.words)}" for violation in ended.violations(cpu_seconds)]
    row.print()
    return found


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=pathlib.Path, help="folder of make_hostile_files.py")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/tlt")
    parser.add_argument("--parsers", default=",".join(PARSERS))
    parser.add_argument("--sample", type=int, default=0, help="this many files, spread over the parsers; 0: all")
    parser.add_argument("--cpu-seconds", type=float, default=1.0,
                        help="CPU time that a file may take; more than the goal of 1 s for a busy machine")
    arguments = parser.parse_args()
    arguments.parsers = arguments.parsers.split(",")
    for name in arguments.parsers:
        if name not in PARSERS:
            parser.error(f"--parsers: there is no {name}; use some of {', '.join(PARSERS)}")
        if not (arguments.corpus / name).is_dir():
            parser.error(f"no folder {arguments.corpus / name}; type: tests/tools/make_hostile_files.py {arguments.corpus}")
    if not os.access(arguments.program, os.X_OK):
        parser.error(f"no program {arguments.program}; type: make program, or give --program")
    return arguments


def main():
    arguments = parse_arguments()
    found = []
    print("| parser | files | accepted | refused | base line | worst time | worst memory |\n|" + "---|" * 7)
    with tempfile.TemporaryDirectory() as scratch:
        setting = Setting(arguments.program.resolve(), pathlib.Path(scratch))
        for parser in arguments.parsers:
            files = sorted(path.resolve() for path in (arguments.corpus / parser).iterdir())
            if arguments.sample:
                share = max(1, arguments.sample // len(arguments.parsers))
                files = files[::max(1, len(files) // share)][:share]
            found += check_parser(setting, parser, files, arguments.cpu_seconds)
    print("\n".join([f"{len(found)} violations", *found]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
