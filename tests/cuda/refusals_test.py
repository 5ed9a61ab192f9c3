#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--device cuda without what it needs: one sentence each, and what `tlt doctor` says of it. The driver is that of
driver.cpp, PyTorch's part that of torch_cuda.cpp."""
import os
import shutil
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "packages"))
import support
from support import BUILD, ROOT, TLT, ScratchCase, run

import stage

PARTS = BUILD / "tests/cuda"
PLUGIN = BUILD / "libtlt_cuda.so"
MARK = b"tlt CUDA plug-in, build "
NEW = "13000 1 90"  # a driver for CUDA 13.0 with one card of sm_90
GENERATE = ["generate", "--model", ROOT / "models/demo", "--prompts", "prompts.jsonl", "--output", "out.jsonl"]


class RefusalsTest(ScratchCase):
    def setUp(self):
        super().setUp()
        (self.scratch / "prompts.jsonl").write_text('{"prompt": "7,6,3:60<think>"}\n')
        self.program = TLT
        self.env = {"TLT_TRY_CUDA": "1"}

    def drive(self, answers):
        self.env |= {"LD_LIBRARY_PATH": str(PARTS / "driver"), "TLT_TEST_DRIVER": answers}

    def install(self):
        """The program with links to its libraries, as `make install` lays them out: others can be put next to them."""
        self.libraries = self.scratch / "lib/tlt"
        self.libraries.mkdir(parents=True)
        for name, path in stage.libraries_of(TLT).items():
            if stage.is_of_wheel(path):
                (self.libraries / name).symlink_to(path)
        self.program = self.scratch / "bin/tlt"
        self.program.parent.mkdir()
        shutil.copy(TLT, self.program)

    def add_libraries(self):
        if not PLUGIN.exists():
            self.skipTest("no nvcc, so no libtlt_cuda.so")
        shutil.copy(PARTS / "libtorch_cuda.so", self.libraries)
        shutil.copy(PLUGIN, self.libraries)

    def refused(self, device="cuda"):
        """The sentence, without what begins and ends each."""
        text = run(self.program, *GENERATE, "--device", device, cwd=self.scratch, env=self.env, code=2)
        self.assertEqual(text.count("\n"), 1, text)
        begin, end = f"tlt generate: --device {device}: ", ", or give --device cpu\n"
        self.assertTrue(text.startswith(begin) and text.endswith(end), text)
        self.assertFalse((self.scratch / "out.jsonl").exists())
        return text[len(begin) : -len(end)]

    def doctor(self):
        return run(self.program, "doctor", cwd=self.scratch, env=self.env)

    def test_no_driver(self):
        if os.path.exists("/dev/nvidiactl"):
            self.skipTest("this machine has a driver")
        self.assertEqual(self.refused(), "this machine has no NVIDIA driver (no libcuda.so.1); install driver 580 or newer")
        self.assertRegex(self.doctor(), "note CUDA driver .*no NVIDIA driver")

    def test_an_old_driver(self):
        self.drive("12040 1 90")
        old = "the NVIDIA driver supports CUDA 12.4, and CUDA 13.0 is needed; install driver 580 or newer"
        self.assertEqual(self.refused(), old)
        self.assertIn(old, self.doctor())

    def test_no_card(self):
        self.drive("13010 0 0")
        self.assertEqual(self.refused(), "the NVIDIA driver shows no card; see nvidia-smi and CUDA_VISIBLE_DEVICES")

    def test_an_old_card(self):
        self.drive("13000 1 75")
        old = "Test card 0 is sm_75, and the kernels need sm_80 or newer; give another card"
        self.assertEqual(self.refused(), old)
        self.assertRegex(self.doctor(), f"note CUDA card .*{old}")

    def test_a_number_without_a_card(self):
        self.drive(NEW)
        self.assertEqual(self.refused("cuda:7"), "this machine has 1 card; give a number below 1")

    def test_no_libtorch_cuda(self):
        self.install()
        self.drive(NEW)
        self.assertRegex(self.refused(), "^no libtorch_cuda.so in /.*/lib/tlt; install the whole wheel torch 2.11.0")
        text = self.doctor()
        self.assertIn("CUDA card      Test card 0, sm_90, 80.0 GiB", text)
        self.assertRegex(text, "note CUDA torch .*no libtorch_cuda.so in")

    def test_libtorch_cuda_of_another_version(self):
        self.install()
        self.drive(NEW)
        self.add_libraries()
        self.env["TLT_TEST_CUDART"] = "12080"
        self.assertRegex(self.refused(), "libtorch_cuda.so is for CUDA 12.8; install the wheel torch 2.11.0 for CUDA 13$")
        (self.libraries / "libtorch_cuda.so").write_text("no library")
        self.assertRegex(self.refused(), r"libtorch_cuda.so cannot be opened \(.*\); it is of another version")

    def test_no_plugin(self):
        self.install()
        self.drive(NEW)
        shutil.copy(PARTS / "libtorch_cuda.so", self.libraries)
        self.assertRegex(self.refused(), "^no libtlt_cuda.so in /.*/bin; build tlt where nvcc of CUDA 13 is")
        self.assertRegex(self.doctor(), "note CUDA plug-in .*no libtlt_cuda.so")

    def test_a_plugin_of_another_build(self):
        self.install()
        self.drive(NEW)
        self.add_libraries()
        content = PLUGIN.read_bytes()
        before = content.index(MARK) + len(MARK)
        (self.libraries / PLUGIN.name).write_bytes(content[:before] + b"9.9.9" + content[before + 5 :])
        version = run(TLT, "--version").split(" ", 1)[1].strip()
        self.assertRegex(self.refused(), rf"is of build 9\.9\.9 \(.*\), and this program of {version[:5]}.*; build both")
        self.assertRegex(self.doctor(), "note CUDA plug-in .*is of build 9.9.9")

    def test_the_plugin_is_of_this_build(self):
        if not PLUGIN.exists():
            self.skipTest("no nvcc, so no libtlt_cuda.so")
        self.drive(NEW)
        self.assertRegex(self.doctor(), rf"ok +CUDA plug-in +{PLUGIN}")

    def test_a_plugin_that_lacks_symbols(self):
        """All checks pass: the libraries are opened, and PyTorch's part is found to be a stand-in."""
        self.install()
        self.drive(NEW)
        self.add_libraries()
        self.env["TLT_TEST_CUDART"] = "13000"
        self.assertRegex(self.refused(), r"libtlt_cuda.so cannot be opened \(.*undefined symbol.*\); build tlt again")

    def test_train_looks_for_cuda_before_libtorch_does(self):
        self.test_a_plugin_that_lacks_symbols()
        text = run(self.program, "train", ROOT / "recipes/demo.toml", f"model.path={ROOT}/models/demo", "trainer.device=cuda",
                   cwd=self.scratch, env=self.env, code=2)  # fmt: skip
        self.assertRegex(text, "trainer.device=cuda:0: .*undefined symbol.*or give trainer.device=cpu")

    def test_nothing_of_it_is_asked_for_without_the_variable(self):
        self.drive("0 0 0")
        del self.env["TLT_TRY_CUDA"]
        text = run(TLT, *GENERATE, "--device", "cuda", cwd=self.scratch, env=self.env, code=2)
        self.assertIn("no GPU has passed the tests yet", text)

    def test_the_program_needs_nothing_of_cuda(self):
        needed = run("readelf", "-d", TLT)
        self.assertNotRegex(needed, "NEEDED.*(cuda|cudart|nccl|cublas)")


if __name__ == "__main__":
    support.main()
