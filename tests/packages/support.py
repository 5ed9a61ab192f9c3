# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of the packages and of docs/: `X_test.py BUILD [unittest's arguments]`."""
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "build"
TLT = BUILD / "tlt"

# A training step of the demo's model in a second.
ONE_STEP = ["trainer.total_training_steps=1", "rollout.n=2", "data.train_batch_size=2", "data.max_response_length=32",
            "data.val_files=[]", "trainer.test_freq=0", "speculative.enable=false"]  # fmt: skip

sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "setup/packages"))
sys.path.insert(0, str(ROOT / "python"))


def run(*words, cwd=None, env=None, code=0, text=""):
    """Runs a program to its end, with `text` as its standard input; returns stdout and stderr."""
    ended = subprocess.run(
        list(map(str, words)), cwd=cwd, env=env, input=text, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=300, check=False)  # fmt: skip
    assert ended.returncode == code, f"{words}: exit code {ended.returncode}\n{ended.stdout}"
    return ended.stdout


class ScratchCase(unittest.TestCase):
    """Cases with an empty folder, which is on the disk of the build folder."""

    def setUp(self):
        (BUILD / "tests").mkdir(exist_ok=True)
        folder = tempfile.TemporaryDirectory(dir=BUILD / "tests", prefix="packages_")
        self.addCleanup(folder.cleanup)
        self.scratch = Path(folder.name)

    def venv(self):
        """A fresh environment with pip, for which Debian has a package of its own."""
        if importlib.util.find_spec("ensurepip") is None:
            self.skipTest("no python3-venv")
        run(sys.executable, "-m", "venv", self.scratch / "venv")
        return self.scratch / "venv"

    def check_program(self, program, env):
        """`program` runs in this environment, and trains a step from another folder by its own recipe and model."""
        home = self.scratch / "elsewhere"
        home.mkdir()
        self.assertRegex(run(program, "--version", cwd=home, env=env), r"^tlt \d")
        self.assertIn("memory", run(program, "doctor", cwd=home, env=env))
        log = run(program, "train", "recipes/demo.toml", *ONE_STEP, cwd=home, env=env)
        self.assertIn("recipes/demo.toml: not here; the installed ", log)
        self.assertTrue((home / "runs/demo/metrics.jsonl").read_text().startswith('{"step":1,'))
        libraries = run("ldd", program, env={"PATH": os.environ["PATH"]})
        self.assertNotIn("not found", libraries)
        return libraries


def report_of(result):
    """What tests/run.sh reads of a result, as GoogleTest writes it: the number of cases, and those skipped with the reason."""
    lines = [f'<testsuites tests="{result.testsRun}" disabled="0">']
    for case, reason in result.skipped:
        suite, _, name = case.id().removeprefix("__main__.").partition(".")
        name, suite, reason = (escape(text, {'"': "&quot;", "\n": " "}) for text in (name, suite, reason))
        lines += [f'<testcase name="{name}" classname="{suite}">', f'<skipped message="{reason}"/>', "</testcase>"]
    return "\n".join([*lines, "</testsuites>", ""])


def main():
    result = unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False).result
    script = Path(sys.argv[0]).resolve()
    report = BUILD / "tests" / f"{script.parent.name}_{script.stem.removesuffix('_test')}.xml"  # the name in CTest
    report.parent.mkdir(exist_ok=True)
    report.write_text(report_of(result), encoding="utf-8")
    sys.exit(0 if result.wasSuccessful() and result.testsRun + len(result.skipped) > 0 else 1)
