#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package of python/: installed by pip without a network, its examples, its errors, no process left."""
import ast
import os
import re
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

import support
from support import ONE_STEP, ROOT, TLT, ScratchCase, run

import tlt

SHORT = ONE_STEP + ["model.path=models/demo"]
PROMPT = "7,6,3:60<think>"
PLAIN = ["--speculation", "off"]  # starts sooner


def processes_with(word):
    """The command lines of all processes that have this word."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if word.encode() in words:
            found.append((int(folder.name), words))
    return found


class PythonCase(ScratchCase):
    def setUp(self):
        super().setUp()
        for name in ("models", "recipes"):
            (self.scratch / name).symlink_to(ROOT / name)
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.scratch)
        os.environ["TLT_BIN"] = str(TLT)
        self.addCleanup(os.environ.pop, "TLT_BIN", None)
        # A name of the model that no other process has.
        self.model = str(self.scratch / "models/demo")

    def expect_no_process(self):
        for _ in range(600):
            if not processes_with(self.model):
                return
            time.sleep(0.1)
        self.fail(f"left: {processes_with(self.model)}")


class DocsTest(PythonCase):
    def test_examples_of_the_page_run(self):
        page = (ROOT / "docs/python.md").read_text(encoding="utf-8")
        examples = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        self.assertEqual(len(examples), 4)
        short = '"data.train_batch_size": 2, "data.max_response_length": 32, "data.val_files": []'
        examples[0] = examples[0].replace('"rollout.n": 4', '"rollout.n": 4, ' + short)
        hang = "import faulthandler; faulthandler.dump_traceback_later(250, exit=True)"  # names the line
        program = "\n".join([hang, *examples])
        log = run(sys.executable, "-c", program, env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
        self.assertIn("runs/demo", log)
        self.assertIn("400 ", log)
        self.assertIn("2 ", log)
        self.assertIn("did you mean rollout.temperature?", log)


class ClientTest(PythonCase):
    def test_every_request(self):
        with tlt.Server(self.model, PLAIN) as client:
            wanted = {"max_tokens": 16, "seed": 3, "n": 2}
            whole = client.completions(PROMPT, **wanted)
            texts = ["", ""]
            for event in client.stream_completions(PROMPT, **wanted):
                for choice in event["choices"]:
                    texts[choice["index"]] += choice["text"]
            self.assertEqual(texts, [choice["text"] for choice in whole["choices"]])
            tokens = client.tokenize(PROMPT)
            self.assertEqual(client.detokenize(tokens), PROMPT)
            self.assertEqual([c["text"] for c in client.completions(tokens, **wanted)["choices"]], texts)
            for event in client.stream_completions(PROMPT, max_tokens=500):
                break  # cancels it
            self.assertEqual(client.health(), {"status": "ok", "weight_version": 0})
            self.assertEqual(client.update_weights(self.model), 1)
            self.assertEqual(client.models()[0]["weight_version"], 1)
            self.assertIn("# TYPE", client.metrics())
            with self.assertRaises(tlt.ServerError) as caught:
                client.completions(PROMPT, temperature=-1)
            self.assertEqual((caught.exception.status, caught.exception.type), (400, "invalid_request_error"))
            self.assertIn("temperature", str(caught.exception))
            with self.assertRaises(tlt.ServerError) as caught:
                client.chat([{"role": "user", "content": PROMPT}])  # the demo's model has no template
            self.assertEqual(caught.exception.status, 400)
            with self.assertRaises(tlt.ServerError):
                next(client.stream_chat([{"role": "user", "content": PROMPT}]))
            responses = tlt.generate(client, [PROMPT, PROMPT], **wanted)
            self.assertEqual([(r.prompt, r.sample) for r in responses], [(0, 0), (0, 1), (1, 0), (1, 1)])
            self.assertEqual([r.text for r in responses[:2]], texts)
            url = client.url
        with self.assertRaises(tlt.UnreachableError) as caught:
            tlt.Client(url).health()
        self.assertIn(url, str(caught.exception))
        self.expect_no_process()

    def test_key(self):
        key = self.scratch / "key"
        key.write_text("0123456789abcdef\n")
        with tlt.Server(self.model, [*PLAIN, "--api-key-file", str(key)]) as client:
            with self.assertRaises(tlt.ServerError) as caught:
                client.models()
            self.assertEqual(caught.exception.status, 401)
            self.assertEqual(len(tlt.Client(client.url, api_key="0123456789abcdef").models()), 1)

    def test_chat(self):
        model = self.scratch / "chat"
        model.mkdir()
        for file in (ROOT / "models/demo").iterdir():
            (model / file.name).symlink_to(file)
        (model / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
        messages = [{"role": "user", "content": PROMPT}]
        with tlt.Server(model, PLAIN) as client:
            whole = client.chat(messages, max_tokens=16, seed=1)["choices"][0]["message"]["content"]
            parts = client.stream_chat(messages, max_tokens=16, seed=1)
            self.assertEqual("".join(e["choices"][0]["delta"].get("content") or "" for e in parts), whole)
            responses = tlt.generate(client, [messages, messages], max_tokens=16, seed=1)
            self.assertEqual([(r.prompt, r.text) for r in responses], [(0, whole), (1, whole)])


class GenerateTest(PythonCase):
    def test_tokens_are_those_of_tlt_generate(self):
        responses = tlt.generate(self.model, [PROMPT], PLAIN, max_tokens=24, seed=5)
        output = self.scratch / "out.jsonl"
        prompts = self.scratch / "in.jsonl"
        prompts.write_text('{"prompt": "%s"}\n' % PROMPT)
        run(TLT, "generate", "--model", self.model, "--prompts", prompts, "--output", output, "--seed", "5",
            "--max-new-tokens", "24")  # fmt: skip
        self.assertIn(str(responses[0].token_ids).replace(" ", ""), output.read_text().replace(" ", ""))
        self.assertEqual(tlt.generate(self.model, [], PLAIN), [])  # stops at once
        self.expect_no_process()

    def test_no_model(self):
        with self.assertRaises(tlt.ProgramError) as caught:
            tlt.generate("nowhere", [PROMPT])
        self.assertEqual(caught.exception.exit_code, 2)
        self.assertTrue(str(caught.exception).startswith("nowhere: no such folder; give "), caught.exception)

    def test_no_program(self):
        os.environ["TLT_BIN"] = str(self.scratch)
        with self.assertRaisesRegex(tlt.TltError, "TLT_BIN is .*, which is not a program"):
            tlt.generate(self.model, [PROMPT])
        del os.environ["TLT_BIN"]
        path = os.environ["PATH"]
        os.environ["PATH"] = "/usr/bin"
        self.addCleanup(os.environ.__setitem__, "PATH", path)
        with self.assertRaisesRegex(tlt.TltError, "no program tlt"):
            tlt.find_program()

    def test_the_server_ends_with_a_killed_python(self):
        program = f"import tlt\nwith tlt.Server({self.model!r}, {PLAIN}) as client:\n  print(client.url, flush=True)\n  input()"
        python = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  env={**os.environ, "PYTHONPATH": str(ROOT / "python")})  # fmt: skip
        self.assertTrue(python.stdout.readline().startswith(b"http://127.0.0.1:"))
        python.send_signal(signal.SIGKILL)
        python.communicate()
        self.expect_no_process()

    def test_an_error_in_the_block_ends_the_server(self):
        with self.assertRaises(ZeroDivisionError):
            with tlt.Server(self.model, PLAIN):
                raise ZeroDivisionError
        self.expect_no_process()


class TrainTest(PythonCase):
    def test_metrics_and_folder(self):
        overrides = dict(word.split("=", 1) for word in SHORT)
        overrides.update({"trainer.total_training_steps": 3, "data.val_files": [], "speculative.enable": False})
        run_of_3 = tlt.train("recipes/demo.toml", overrides)
        self.assertEqual([row["step"] for row in run_of_3.metrics()], [1, 2, 3])
        self.assertEqual(run_of_3.folder, self.scratch / "runs/demo")
        self.assertTrue((run_of_3.folder / "checkpoints").is_dir())
        self.assertTrue(any("Run summary" in line for line in run_of_3.log))
        overrides["trainer.total_training_steps"] = 4
        self.assertEqual([row["step"] for row in tlt.train("recipes/demo.toml", overrides).metrics()], [1, 2, 3, 4])

    def test_errors_are_the_programs(self):
        for call in (lambda r: r.wait(), lambda r: r.folder, lambda r: list(r.metrics())):
            with self.assertRaises(tlt.ProgramError) as caught:
                call(tlt.train("recipes/demo.toml", ["rollout.temperatur=8"]))
            self.assertEqual(caught.exception.exit_code, 2)
            self.assertIn("did you mean rollout.temperature?", str(caught.exception))
            self.assertNotIn("tlt train:", str(caught.exception))

    def test_stop_saves_and_the_same_call_resumes(self):
        overrides = [*SHORT, "trainer.total_training_steps=100000", f"model.path={self.model}"]
        with tlt.train("recipes/demo.toml", overrides) as begun:
            for row in begun.metrics():
                if row["step"] == 2:
                    break
        self.expect_no_process()
        with self.assertRaises(tlt.ProgramError) as caught:
            begun.wait()
        self.assertEqual(caught.exception.exit_code, 143)
        with tlt.train("recipes/demo.toml", overrides) as resumed:
            self.assertEqual(next(resumed.metrics())["step"], 1)
            self.assertTrue(any("resum" in line for line in resumed.log), resumed.log)


class PackageTest(ScratchCase):
    def test_pip_installs_it_without_a_network(self):
        venv = self.venv()
        offline = {"PATH": os.environ["PATH"], "PIP_NO_INDEX": "1", "HOME": str(self.scratch)}
        run(venv / "bin/python", "-m", "pip", "install", ROOT / "python", env=offline)
        program = "import tlt; print(tlt.find_program(), tlt.__file__)"
        output = run(venv / "bin/python", "-c", program, cwd=self.scratch, env={"TLT_BIN": str(TLT)})
        self.assertIn(f"{TLT} {venv}", output)
        installed = next(venv.glob("lib/python*/site-packages/tlt"))
        self.assertTrue((installed / "py.typed").exists())
        self.assertFalse((venv / "bin/tlt").exists())  # it would stand for the program on the PATH

    def test_the_version_is_the_programs(self):
        self.assertTrue(run(TLT, "--version").startswith(f"tlt {tlt.__version__} "))
        self.assertIn(f'version = "{tlt.__version__}"', (ROOT / "python/pyproject.toml").read_text())

    def test_everything_has_a_docstring_and_types(self):
        for file in sorted((ROOT / "python/tlt").glob("*.py")):
            tree = ast.parse(file.read_text(encoding="utf-8"))
            self.assertTrue(ast.get_docstring(tree), file)
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    self.assertTrue(ast.get_docstring(node), f"{file}: {node.name}")
                if isinstance(node, ast.FunctionDef):
                    if not node.name.startswith("_"):
                        self.assertTrue(ast.get_docstring(node), f"{file}: {node.name}")
                    self.assertTrue(node.returns or node.name == "__init__", f"{file}: {node.name}")
                    named = [a for a in node.args.args + node.args.kwonlyargs if a.arg != "self"]
                    self.assertTrue(all(a.annotation for a in named), f"{file}: {node.name}")


if __name__ == "__main__":
    support.main()
