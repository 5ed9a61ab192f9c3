#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The wheel of `make wheel`, installed by pip into a fresh environment whose torch and pyarrow are those of .deps/."""
import os
import unittest
import zipfile

import support
from support import BUILD, ROOT, ScratchCase, run

import wheel


class WheelTest(ScratchCase):
    def test_installed_it_runs(self):
        path = wheel.write_wheel(BUILD, self.scratch / "dist")
        self.assertLess(path.stat().st_size, 40e6)
        with zipfile.ZipFile(path) as archive:
            self.assertIsNone(archive.testzip())
            names = archive.namelist()
            metadata = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
        self.assertRegex(metadata, r"Requires-Dist: torch==2\.11\.\*\nRequires-Dist: pyarrow==\d+\.\d+\.\*\n")
        self.assertTrue(any(name.endswith("/licenses/libflint17.txt") for name in names), names)
        self.assertFalse(any("libtorch" in name or "libarrow" in name or "libc.so" in name for name in names), names)

        venv = self.venv()
        offline = {"PATH": os.environ["PATH"], "PIP_NO_INDEX": "1", "HOME": str(self.scratch)}
        run(venv / "bin/python", "-m", "pip", "install", "--no-deps", path, env=offline)
        packages = next(venv.glob("lib/python*/site-packages"))
        for name in ("torch", "pyarrow", "nvidia"):
            if (ROOT / ".deps" / name).exists():
                (packages / name).symlink_to((ROOT / ".deps" / name).resolve())

        env = {"PATH": f"{venv}/bin:{os.environ['PATH']}"}
        libraries = self.check_program(packages / "tlt/bin/tlt", env)
        own = [line for line in libraries.splitlines() if "libflint" in line or "libcrypto" in line]
        self.assertTrue(own and all(f"{packages}/tlt/bin/../lib/tlt/" in line for line in own), own)
        self.assertIn(f"{packages}/tlt/bin/../../torch/lib/libtorch_cpu.so", libraries)

        elsewhere = self.scratch / "elsewhere"
        self.assertRegex(run("env", "tlt", "--version", cwd=elsewhere, env=env), r"^tlt \d")  # the console script
        program = "import tlt; print(tlt.generate('runs/demo', ['7,6,3:60<think>'], max_tokens=4)[0].finish_reason)"
        self.assertIn("length", run(venv / "bin/python", "-c", program, cwd=elsewhere, env={}))
        self.assertTrue((venv / "share/man/man1/tlt.1").exists())


if __name__ == "__main__":
    support.main()
