#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Completion in real shells, and the manual page through groff. zsh and fish are skipped where they are not installed."""
import os
import pty
import re
import select
import shutil
import subprocess
import unittest

import support
from support import TLT, ScratchCase, run


class Terminal:
    """A shell in a terminal, in which `tlt` prints its arguments as «<train><x>»."""

    PATIENCE = 120  # seconds; a loaded machine

    def __init__(self, words, folder, *setup):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            environment = {"PATH": os.environ["PATH"], "TERM": "dumb", "HOME": str(folder), "LC_ALL": "C.UTF-8"}
            os.execvpe(words[0], words, environment)
        self.buffer = ""
        for line in setup:
            self.type(line + "\n")
        self.type("tlt() { printf '«'; printf '<%s>' \"$@\"; printf '»\\n'; }\n")

    def type(self, keys):
        os.write(self.terminal, keys.encode())

    def arguments(self, keys):
        """The arguments after these keys and Enter."""
        self.type(keys)
        self.type("\n")
        while True:
            found = re.search("«([^'«»]*)»", self.buffer)
            if found:
                self.buffer = self.buffer[found.end() :]
                return re.findall("<([^>]*)>", found.group(1))
            ready, _, _ = select.select([self.terminal], [], [], self.PATIENCE)
            assert ready, "the shell printed nothing more: " + self.buffer
            self.buffer += os.read(self.terminal, 4096).decode(errors="replace")

    def close(self):
        os.close(self.terminal)  # SIGHUP
        os.waitpid(self.pid, 0)


class CompletionTest(ScratchCase):
    def setUp(self):
        super().setUp()
        (self.scratch / "recipes").mkdir()
        (self.scratch / "recipes" / "my.toml").touch()
        (self.scratch / "recipes" / "notes.txt").touch()
        (self.scratch / "prompts.jsonl").touch()

    def terminal(self, shell, words, *setup):
        if not shutil.which(shell):
            self.skipTest(f"no {shell}")
        script = self.scratch / f".completion.{shell}"
        script.write_text(run(TLT, "completion", shell))
        run(shell, "-n", script)
        terminal = Terminal(words, self.scratch, *setup, f"source {script}")
        self.addCleanup(terminal.close)
        return terminal

    def test_bash(self):
        bash = self.terminal("bash", ["bash", "--norc", "--noprofile", "-i"])
        tab, all_of_them = "\t", "\x1b*"
        self.assertEqual(bash.arguments("tlt tr" + tab), ["train"])
        self.assertEqual(bash.arguments("tlt bench dec" + tab), ["bench", "decode"])
        self.assertEqual(bash.arguments("tlt --v" + tab), ["--version"])
        self.assertEqual(bash.arguments("tlt train re" + tab), ["train", "recipes/"])
        self.assertEqual(bash.arguments("tlt train recipes/" + tab), ["train", "recipes/my.toml"])
        self.assertEqual(bash.arguments("tlt train trainer.save_f" + tab), ["train", "trainer.save_freq="])
        self.assertEqual(bash.arguments("tlt train trai" + tab), ["train", "trainer."])
        names = bash.arguments("tlt train trainer.sa" + all_of_them)[1:]
        self.assertIn("trainer.save_freq=", names)
        self.assertTrue(all(name.startswith("trainer.sa") and name.endswith("=") for name in names), names)
        self.assertEqual(bash.arguments("tlt train data.shuffle=t" + tab), ["train", "data.shuffle=true"])
        self.assertEqual(bash.arguments("tlt train data.train_files=pro" + tab),
                         ["train", "data.train_files=prompts.jsonl"])  # fmt: skip
        self.assertEqual(bash.arguments("tlt train recipes/my.toml --wor" + tab)[2:], ["--workers"])
        self.assertEqual(bash.arguments("tlt sft --override trainer.save_f" + tab)[2:], ["trainer.save_freq="])
        self.assertEqual(bash.arguments("tlt generate --prompts pro" + tab)[2:], ["prompts.jsonl"])
        self.assertEqual(bash.arguments("tlt generate --seed pro" + tab)[2:], ["pro"])
        self.assertEqual(bash.arguments("tlt completion z" + tab), ["completion", "zsh"])

    def test_zsh(self):
        zsh = self.terminal("zsh", ["zsh", "-f", "-i"], "autoload -U compinit; compinit -u -D")
        self.assertEqual(zsh.arguments("tlt tr\t"), ["train"])
        self.assertEqual(zsh.arguments("tlt bench dec\t"), ["bench", "decode"])
        self.assertEqual(zsh.arguments("tlt train re\t"), ["train", "recipes"])  # Enter takes the / away
        self.assertEqual(zsh.arguments("tlt train trainer.save_f\t"), ["train", "trainer.save_freq="])
        self.assertEqual(zsh.arguments("tlt train data.shuffle=t\t"), ["train", "data.shuffle=true"])
        self.assertEqual(zsh.arguments("tlt train recipes/my.toml --wor\t")[2:], ["--workers"])
        self.assertEqual(zsh.arguments("tlt generate --prompts pro\t")[2:], ["prompts.jsonl"])

    def test_fish(self):
        if not shutil.which("fish"):
            self.skipTest("no fish")
        script = self.scratch / "tlt.fish"
        script.write_text(run(TLT, "completion", "fish"))

        def candidates(line):
            found = run("fish", "--no-config", "-c", f"source {script}; complete -C '{line}'", cwd=self.scratch,
                        env={**os.environ, "HOME": str(self.scratch), "LC_ALL": "C.UTF-8"})  # fmt: skip
            return [candidate.split("\t")[0] for candidate in found.splitlines()]

        self.assertEqual(candidates("tlt tr"), ["train"])
        self.assertEqual(candidates("tlt bench dec"), ["decode"])
        self.assertIn("recipes/", candidates("tlt train re"))
        self.assertEqual(candidates("tlt train trainer.save_f"), ["trainer.save_freq="])
        self.assertIn("data.shuffle=true", candidates("tlt train data.shuffle=t"))
        self.assertEqual(candidates("tlt train x.toml --wor"), ["--workers"])

    def test_every_command_is_in_it(self):
        commands = re.findall(r"^  (\S+) ", run(TLT, "--help"), re.MULTILINE)
        self.assertGreater(len(commands), 15)
        script = run(TLT, "completion", "bash")
        listed = re.search(r"^    'tlt'\) echo '([^']*)'", script, re.MULTILINE).group(1).split()
        self.assertEqual(listed, [*commands, "--help", "--version"])
        options = re.findall(r"^(\S+) = ", run(TLT, "options"), re.MULTILINE)
        self.assertEqual(re.search(r"^_tlt_options='([^']*)'", script, re.MULTILINE).group(1),
                         " ".join(name + "=" for name in options))  # fmt: skip

    def test_another_shell_is_refused(self):
        self.assertIn("not in {bash,zsh,fish}", run(TLT, "completion", "csh", code=2))


class ManPageTest(ScratchCase):
    def test_groff_has_no_warning(self):
        if not shutil.which("groff"):
            self.skipTest("no groff")
        page = self.scratch / "tlt.1"
        page.write_text(run(TLT, "man"))
        self.assertEqual(run("groff", "-man", "-ww", "-Tutf8", "-z", page), "")
        formatted = subprocess.run(["groff", "-man", "-Tutf8", "-P-cbou", page], capture_output=True, text=True, check=True)
        text = formatted.stdout
        for word in ["tlt bench decode", "--max-new-tokens N", "trainer.save_freq = ", "EXIT STATUS"]:
            self.assertIn(word, text.replace("‐", "-").replace("−", "-"))
        self.assertNotIn("\\[u", text)

    def test_man_has_no_warning(self):
        if not shutil.which("man"):
            self.skipTest("no man")
        page = self.scratch / "tlt.1"
        page.write_text(run(TLT, "man"))
        ended = subprocess.run(["man", "-l", "--warnings", page], capture_output=True, text=True, check=False,
                               env={**os.environ, "LC_ALL": "C.UTF-8"})  # fmt: skip
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))


if __name__ == "__main__":
    support.main()
