#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""symbols_test.py BUILD: what libtlt_cuda.so leaves open is what PyTorch 2.11 for CUDA 13 has.

libtorch_cuda.so is not unpacked from the wheel in .deps/, so what the plug-in takes from it stands in symbols.txt, which
was compared with the wheel. TLT_TEST_TORCH=FOLDER, the site-packages of a Python with torch 2.11.0 and its nvidia
packages, compares it again and opens the plug-in with all its symbols. Where .deps/torch is a whole torch, it is that.
"""
import os
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "packages"))
import support
from support import BUILD, ROOT, run

PLUGIN = BUILD / "libtlt_cuda.so"
LIST = Path(__file__).with_name("symbols.txt")
LOADER = {"_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "__gmon_start__", "__cxa_finalize"}


def symbols(which, library):
    lines = run("nm", "-D", which, library).splitlines()
    return {line.split()[-1].split("@")[0] for line in lines if not line.endswith(":")}


def defined(*libraries):
    return set().union(*(symbols("--defined-only", library) for library in libraries))


def whole_torch():
    """The folder of site-packages of a torch with its part for CUDA; None: there is none."""
    for folder in (os.environ.get("TLT_TEST_TORCH"), (ROOT / ".deps/torch").resolve().parent):
        if folder and (Path(folder) / "torch/lib/libtorch_cuda.so").exists():
            return Path(folder)
    return None


class SymbolsTest(unittest.TestCase):
    def setUp(self):
        self.listed = {line for line in LIST.read_text().splitlines() if not line.startswith("#")}
        deps = ROOT / ".deps"
        loaded = [deps / "torch/lib/libtorch_cpu.so", deps / "torch/lib/libc10.so"]
        loaded += run("ldd", PLUGIN, env={"LD_LIBRARY_PATH": f"{deps}/nvidia/cu13/lib", "PATH": os.environ["PATH"]}).split()
        found = defined(*(path for path in loaded if str(path).startswith("/") and os.path.exists(path)))
        self.open = symbols("--undefined-only", PLUGIN) - found - LOADER

    def test_they_are_listed(self):
        self.assertEqual(self.open - self.listed, set(), "compare them with the wheel, then add them to symbols.txt")
        self.assertEqual(self.listed - self.open, set(), "no longer used")

    def test_what_the_program_calls_is_exported(self):
        wanted = {"tlt_cuda_accelerator", "tlt_cuda_build", "tlt_cuda_choose_products", "tlt_make_nccl_backend"}
        wanted.add("tlt_device_kernels")
        self.assertEqual(wanted - defined(PLUGIN), set())

    def test_the_wheel_has_them(self):
        folder = whole_torch()
        if folder is None:
            self.skipTest("no libtorch_cuda.so in .deps/torch; TLT_TEST_TORCH names a folder with torch 2.11.0")
        names = ("libtorch_cuda.so", "libc10_cuda.so")
        self.assertEqual(self.open - defined(*(folder / "torch/lib" / name for name in names)), set())
        opened = "import ctypes, os, sys\nfor path in sys.argv[1:]: ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_GLOBAL)"
        paths = [*sorted(map(str, folder.glob("nvidia/*/lib"))), str(folder / "torch/lib")]
        subprocess.run([sys.executable, "-c", opened, folder / "torch/lib/libtorch_cuda.so", PLUGIN],
                       env={**os.environ, "LD_LIBRARY_PATH": ":".join(paths)}, check=True)  # fmt: skip


if __name__ == "__main__":
    support.main()
