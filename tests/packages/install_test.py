#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `make install` puts into a prefix runs from an empty environment; containers and examples of clusters parse."""
import os
import re
import subprocess
import sys
import tempfile
import unittest

import support
from support import BUILD, ROOT, TLT, ScratchCase, run

import stage
import wheel


TOOLS = ROOT / ".deps/tools"
PLAIN = {"PATH": os.environ["PATH"]}  # without MAKEFLAGS: of `make -j2 test`, or `make test CI=true`


class InstallTest(ScratchCase):
    def test_it_runs_from_an_empty_environment_and_after_a_move(self):
        first = self.scratch / "destdir/usr"
        run(ROOT / "setup/packages/stage.py", BUILD, first, "--link")
        run(ROOT / "setup/packages/stage.py", BUILD, first, "--link")  # over an installation
        prefix = self.scratch / "moved"
        os.rename(first, prefix)
        libraries = self.check_program(prefix / "bin/tlt", {})
        self.assertNotIn(".deps", libraries)
        self.assertIn(f"=> {prefix}/bin/../lib/tlt/libtorch_cpu.so", libraries)
        for name, words in stage.PRINTED.items():
            self.assertEqual((prefix / name).read_text(), run(TLT, *words))
        for name in ("docs/install.md", "README.md", "docs/demo.png"):
            self.assertTrue((prefix / "share/doc/tlt" / name).exists(), name)
        left = [path.name for path in (prefix / "bin").iterdir()]
        self.assertEqual(left, ["tlt"])

    def test_make_calls_it_with_destdir_and_prefix(self):
        ended = subprocess.run(["make", "-n", "install", "DESTDIR=/stage", "PREFIX=/opt/tlt"], cwd=ROOT,
                               env=PLAIN, capture_output=True, text=True, check=True)  # fmt: skip
        self.assertIn("setup/packages/stage.py build '/stage/opt/tlt'", ended.stdout)

    def test_lines_of_make_help_are_aligned(self):
        for line in run("make", "-s", "help", cwd=ROOT, env=PLAIN).splitlines()[:-1]:
            self.assertRegex(line, r"^make [a-z-]+ +\S")
            self.assertEqual(line[16], " ")
            self.assertNotEqual(line[17], " ")


class ContainerTest(unittest.TestCase):
    def test_images_have_the_libraries_of_the_program(self):
        needed = run("readelf", "-d", TLT)
        direct = re.findall(r"NEEDED.*\[(.*)\]", needed)
        packages = {
            wheel.debian_package(path)
            for name, path in stage.libraries_of(TLT).items()
            if name in direct and name not in wheel.OF_THE_SYSTEM and not stage.is_of_wheel(path)
        }
        self.assertGreater(len(packages), 8)
        for file in ("Dockerfile", "examples/apptainer/tlt.def"):
            words = set((ROOT / file).read_text().split())
            self.assertEqual(packages - words, set(), file)

    def test_linters_find_nothing(self):
        if not (TOOLS / "bin/hadolint").exists():
            self.skipTest("no linters in .deps/tools: setup/setup.sh --tools")
        # DL3008 wants pinned versions of Debian packages; Debian 12 and its security updates decide them.
        run(TOOLS / "bin/hadolint", "--ignore", "DL3008", ROOT / "Dockerfile")
        scripts = [*sorted(ROOT.glob("examples/slurm/*.sbatch")), ROOT / "setup/setup.sh", *sorted(ROOT.glob("t*/**/*.sh"))]
        run(TOOLS / "bin/shellcheck", "--severity", "warning", *scripts)
        definition = (ROOT / "examples/apptainer/tlt.def").read_text()
        parts = re.findall(r"^%(?:post|runscript)\n((?:[ \t].*\n)+)", definition, re.MULTILINE)
        self.assertEqual(len(parts), 3)
        for part in parts:  # Apptainer runs them with -e
            run(TOOLS / "bin/shellcheck", "--shell", "sh", "--severity", "warning", "-", text="set -e\n" + part)
        for text, code in (("FROM debian\nRUN cd /src && sudo make\n", 1), ("FROM debian:12\nWORKDIR /src\n", 0)):
            run(TOOLS / "bin/hadolint", "-", text=text, code=code)
        run(TOOLS / "bin/shellcheck", "--shell", "sh", "--severity", "warning", "-", text="cd $1\n", code=1)

    def test_kubernetes_files_have_the_schema(self):
        if not (TOOLS / "kubernetes_validate").is_dir():
            self.skipTest("no kubernetes-validate in .deps/tools: setup/setup.sh --tools")
        check = [sys.executable, "-m", "kubernetes_validate", "--strict", "--quiet", "-k", "1.37"]
        env = {**PLAIN, "PYTHONPATH": str(TOOLS)}
        for file in sorted(ROOT.glob("examples/kubernetes/*.yaml")):
            run(*check, file, env=env)
            with tempfile.NamedTemporaryFile("w", suffix=".yaml") as planted:
                planted.write(file.read_text().replace("containerPort:", "containersPort:").replace("completions:", "complete:"))
                planted.flush()
                run(*check, planted.name, env=env, code=1)

    def test_batch_scripts_parse(self):
        scripts = sorted(ROOT.glob("examples/slurm/*.sbatch"))
        self.assertEqual(len(scripts), 2)
        for script in scripts:
            run("bash", "-n", script)
            first = script.read_text().split("\nset -", 1)[0].splitlines()  # sbatch reads no #SBATCH after a command
            self.assertEqual(script.read_text().count("#SBATCH "), sum(line.startswith("#SBATCH ") for line in first))

    def test_kubernetes_files_fit_together(self):
        try:
            import yaml
        except ImportError:
            self.skipTest("no PyYAML")
        for file in sorted(ROOT.glob("examples/kubernetes/*.yaml")):
            documents = list(yaml.safe_load_all(file.read_text()))
            self.assertEqual(documents[0]["kind"], "Service")
            work = documents[1]["spec"]
            container = work["template"]["spec"]["containers"][0]
            volumes = {volume["name"] for volume in work["template"]["spec"]["volumes"]}
            self.assertEqual({mount["name"] for mount in container["volumeMounts"]}, volumes)
            if documents[1]["kind"] == "Job":
                variables = {entry["name"]: entry.get("value") for entry in container["env"]}
                self.assertEqual(int(variables["WORLD_SIZE"]), work["completions"])
                self.assertEqual(work["completions"], work["parallelism"])
                name = documents[1]["metadata"]["name"]
                self.assertEqual(variables["MASTER_ADDR"], f"{name}-0.{documents[0]['metadata']['name']}")
                self.assertEqual(work["template"]["spec"]["subdomain"], documents[0]["metadata"]["name"])
            else:
                labels = work["template"]["metadata"]["labels"]
                self.assertEqual(labels, work["selector"]["matchLabels"])
                self.assertEqual(labels, documents[0]["spec"]["selector"])


if __name__ == "__main__":
    support.main()
