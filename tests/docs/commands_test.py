#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every command of README.md and docs/*.md runs, on small models and files (small_world.py, small_tlt.py), in the order of
its page, or is listed below with the reason why not."""
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "packages"))
import support  # noqa: E402
from support import ROOT, TLT, ScratchCase  # noqa: E402

from pages import blocks_of, commands_of  # noqa: E402
from small_world import SmallWorld  # noqa: E402

# Pattern of a command's beginning, and why it is not run. Every line must still be needed.
NOT_RUN = [
    (r"make ", "builds or installs: the build itself and tests/packages"),
    (r"hf download|pip install|docker build", "needs a network"),
    (r"bash tools/gpu_check\.sh", "needs a card: gpu_check"),
    (r"sysctl ", "changes this machine"),
    (r"bench/(peers|tuner_table)\.py|tools/serve_bench\.py", "needs other programs"),
    (r"build/tests/", "is a test of its own"),
    (r"python3 tools/predict_check\.py", "needs finished runs and a quiet machine: predict_check_test"),
    (r"RANK=0 ", "waits for another host: cluster_ranks_test"),
    (r"build/tlt train RECIPE\.toml --join", "waits for a run: join_test"),
    (r"torchrun |srun ", "needs a launcher: tensor_parallel_test"),
    (r"tlt completion fish", "is for fish: packages_completion"),
    (r"tlt man \| man", "needs man-db: packages_completion"),
    (r"sha256sum --check", "packages_release"),
    (r"tlt train \S+ 'trainer.logger=", "needs a tracker's package: trackers_test"),
    (r"python3 tools/verifiers_env\.py|build/tlt train RECIPE\.toml data\.train_files='", "needs verifiers: verifiers_test"),
    (r"tlt serve --train my\.toml|python -m tinker_cookbook", "needs the cookbook: serve_tinker_test"),
    (r"build/tlt train recipe\.toml distillation\.teacher=http", "needs a teacher's server: distillation_keeps_invariants_test"),
]
RUNNABLE = {"tlt", "build/tlt", "python3", "echo", "cat", "curl", "openssl", "export", "source"}
# Python blocks, and the test that runs them.
PYTHON = {"docs/python.md": "packages_python", "docs/environments.md": "EnvironmentPoolTest"}
# Alternatives of one recipe: each begins a run of its own.
ALTERNATIVE = re.compile(r"build/tlt train recipe\.toml 'reward")
# Commands without which a page makes no sense here.
BEFORE = {"docs/resume.md": ["tlt train recipe.toml"]}
CLIENTS = ROOT / ".deps/clients"
COMMAND_SECONDS = 900  # of a command that hangs; machines may be loaded
# Tinker's client leaves a daemon thread, which can abort a Python before 3.14 that ends (python/cpython#87135).
END_NOW = "import os, sys\nsys.stdout.flush()\nos._exit(0)"


def listed(command):
    """The pattern of NOT_RUN that a command has, if any."""
    return next((pattern for pattern, _ in NOT_RUN if re.match(pattern, command.text.lstrip())), None)


def is_server(command):
    words = command.words()
    return words[0] in ("tlt", "build/tlt") and words[1:2] == ["serve"]


def run_whole(words, folder, env):
    """Exit code and output. A command that hangs is ended with what it started."""
    with subprocess.Popen(words, cwd=folder, env=env, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, start_new_session=True) as program:  # fmt: skip
        try:
            output = program.communicate(timeout=COMMAND_SECONDS)[0]
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)
            output = program.communicate()[0] + f"\nno end after {COMMAND_SECONDS} s"
    return program.returncode, output


class Page:
    """The commands of a page in a folder of its own, and the server that one of them started."""

    def __init__(self, world, name):
        self.world, self.name = world, name
        self.folder = world.page_folder(name.replace("/", "_").removesuffix(".md"))
        self.server, self.port, self.faults, self.count = None, None, [], 0

    def run(self, command):
        started = time.monotonic()
        self.world.place(self.folder, command.text)
        if ALTERNATIVE.match(command.text):
            shutil.rmtree(self.folder / "runs/run", ignore_errors=True)
        fault = self.start_server(command) if is_server(command) else self.run_to_end(command)
        self.count += 1
        if fault:
            self.faults.append(f"{command.place}: {command.text}\n{fault}")
        if os.environ.get("SHOW"):
            print(f"{time.monotonic() - started:5.1f} s {command.place}: {command.text[:90]!r}", flush=True)

    def with_ports(self, text):
        stub = self.world.stub.server_port
        return text.replace("127.0.0.1:8000", f"127.0.0.1:{self.port or stub}").replace("127.0.0.1:5000", f"127.0.0.1:{stub}")

    def run_to_end(self, command):
        script = "set -eo pipefail\n" + self.with_ports(command.text)
        if "curl " in script:
            script = script.replace("curl ", "curl -fsS ")
        code, output = run_whole(["bash", "-c", script], self.folder, self.world.environment())
        return "" if code == 0 else f"exit code {code}\n{output[-1500:]}"

    def run_python(self, block):
        env = self.world.environment(PYTHONPATH=str(CLIENTS), TINKER_BASE_URL=self.with_ports("http://127.0.0.1:8000"),
                                     TINKER_API_KEY="tml-anything", TINKER_TELEMETRY="0")  # fmt: skip
        code, output = run_whole([sys.executable, "-c", "\n".join([*block.lines, END_NOW])], self.folder, env)
        self.count += 1
        if code != 0:
            self.faults.append(f"{block.place}: exit code {code}\n{output[-1500:]}")

    def start_server(self, command):
        self.stop_server()
        log = self.folder / "server.log"
        with log.open("w") as output:
            self.server = subprocess.Popen(["bash", "-c", "exec " + command.text], cwd=self.folder, stdout=output,
                                           stderr=subprocess.STDOUT, env=self.world.environment())  # fmt: skip
        for _ in range(6000):
            found = re.search(r"http://[\d.]+:(\d+)\S* has ", log.read_text())
            if found:
                self.port = int(found[1])
                return ""
            if self.server.poll() is not None:
                break
            time.sleep(0.1)
        return log.read_text()[-1500:]

    def stop_server(self):
        if self.server and self.server.poll() is None:
            self.server.send_signal(signal.SIGTERM)
            try:
                code = self.server.wait(timeout=120)
            except subprocess.TimeoutExpired:
                self.server.kill()
                code = self.server.wait()
            if code != 0:
                self.faults.append(f"{self.name}: the server ended with {code}")
        self.server, self.port = None, None


def run_page(world, name, text):
    page = Page(world, name)
    try:
        for line in BEFORE.get(name, []):
            page.run(commands_of(blocks_of(name, "```\n" + line + "\n```")[0])[0])
        for block in blocks_of(name, text):
            if block.language == "python" and name not in PYTHON and CLIENTS.is_dir():
                page.run_python(block)
            if not block.has_commands():
                continue
            for command in commands_of(block):
                if listed(command) is None:
                    page.run(command)
    finally:
        page.stop_server()
        shutil.rmtree(page.folder, ignore_errors=True)
    return page


def read_pages():
    names = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
    return {name: (ROOT / name).read_text(encoding="utf-8") for name in names}


def faults_of_lists(pages):
    """Commands that are neither run nor listed, blocks of unknown kind, and lines of the list that nothing needs."""
    faults, used = [], set()
    for name, text in pages.items():
        for block in blocks_of(name, text):
            if not block.has_commands():
                if block.language == "":
                    faults.append(f"{block.place}: no program that this test knows; give the block a language, as ```text")
                continue
            for command in commands_of(block):
                pattern = listed(command)
                used.add(pattern)
                if pattern is None and command.words()[:1] and command.words()[0] not in RUNNABLE:
                    faults.append(f"{command.place}: neither run nor in NOT_RUN: {command.text}")
    return faults + [f"NOT_RUN: nothing is {pattern}" for pattern, _ in NOT_RUN if pattern not in used]


class CommandsTest(ScratchCase):
    def test_every_command_is_run_or_listed(self):
        self.assertEqual(faults_of_lists(read_pages()), [])

    def test_an_unknown_command_is_detected(self):
        for block in ("```\nhelm install tlt\n```", "```sh\nkubectl apply -f x.yaml\n```", "    docker run tlt\n"):
            faults = faults_of_lists({"docs/new.md": "Text:\n\n" + block})
            self.assertTrue(any(fault.startswith("docs/new.md:") for fault in faults), faults)

    def test_commands_that_fail_are_detected(self):
        world = SmallWorld(TLT, self.scratch)
        self.addCleanup(world.close)
        text = "\n```\ntlt generate --model nowhere --prompt x\necho fine\ncat nowhere | cat\n```\n"
        page = run_page(world, "docs/new.md", text)
        self.assertEqual(page.count, 3)
        self.assertEqual(len(page.faults), 2, page.faults)
        self.assertIn("nowhere: no such folder", page.faults[0])

    def test_commands_run(self):
        missing = [name for name in ("curl", "openssl") if shutil.which(name) is None]
        if missing:
            self.skipTest(f"the pages use {' and '.join(missing)}, which this machine has not")
        world = SmallWorld(TLT, self.scratch)
        self.addCleanup(world.close)
        pages = read_pages()
        wanted = os.environ.get("PAGES", "").split()  # to try some: PAGES="docs/sft.md" commands_test.py build
        names = [name for name in pages if not wanted or name in wanted]
        names.sort(key=lambda name: -pages[name].count("build/tlt"))
        with ThreadPoolExecutor(2) as pool:
            done = list(pool.map(lambda name: run_page(world, name, pages[name]), names))
        faults = [fault for page in done for fault in page.faults]
        self.assertEqual(faults, [], "\n\n".join(faults))
        if not wanted:
            self.assertGreater(sum(page.count for page in done), 60)
        if not CLIENTS.is_dir():
            self.skipTest("all ran but the Python blocks: no clients in .deps/clients; type: setup/setup.sh --clients")


if __name__ == "__main__":
    support.main()
