#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/gpu_check.sh and the bundle of `make gpu-bundle`: every part runs on the device far from an empty environment, a
part that fails stops no other, and each is in the report."""
import json
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "packages"))
import support
from support import BUILD, ROOT, TLT, ScratchCase, run

CHECK = ROOT / "tools/gpu_check.sh"
ON_A_CARD = {"memcheck", "peer"}  # skipped elsewhere


class GpuCheckTest(ScratchCase):
    bundle = BUILD / "tests/gpu_bundle.tar"  # not packed, which takes a minute; make gpu-bundle checks its size

    @classmethod
    def setUpClass(cls):
        subprocess.run([ROOT / "setup/packages/gpu_bundle.py", BUILD, cls.bundle], check=True, timeout=900)

    @classmethod
    def tearDownClass(cls):
        cls.bundle.unlink()

    def check(self, *words, bundle=None, code=0):
        """Runs it in an empty environment; returns the lines of its report by part."""
        out = self.scratch / "out"
        command = ["env", "-i", "bash", CHECK, "--bundle", bundle or self.bundle, "--out", out]
        command += ["--torch", ROOT / ".deps/torch", *words]
        ended = subprocess.run(list(map(str, command)), cwd=self.scratch, capture_output=True, text=True, timeout=3000)
        self.assertEqual(ended.returncode, code, ended.stdout + ended.stderr)
        lines = (out / "report.jsonl").read_text().splitlines() if (out / "report.jsonl").exists() else []
        return {row["part"]: row for row in map(json.loads, lines)}, ended.stdout + ended.stderr

    def test_every_part_runs_on_the_device_far(self):
        report, text = self.check("--device", "far")
        failed = {part: row["log_end"] for part, row in report.items() if row["status"] not in ("passed", "skipped")}
        self.assertEqual(failed, {}, text)
        self.assertEqual({part for part, row in report.items() if row["status"] == "skipped"} - ON_A_CARD, set(), text)
        self.assertEqual(len(report), len(text.strip().splitlines()), "a part is not in the table")
        self.assertEqual([row["batch"] for row in report["decode"]["results"]], [1, 2])
        self.assertEqual(report["decode"]["results"][0]["device"], "far:0")
        self.assertLess(sum(row["limit_seconds"] for row in report.values()) / 10, 600)

    def test_a_part_that_fails_stops_nothing(self):
        """Without a card every part that needs one fails or is skipped, and says why."""
        if os.path.exists("/dev/nvidiactl"):
            self.skipTest("this machine has a card")
        report, text = self.check("--device", "cuda", code=1)
        self.assertEqual(report["doctor"]["status"], "passed")
        self.assertEqual(report["decode"]["status"], "failed")
        self.assertRegex(" ".join(report["decode"]["log_end"]), "--device cuda: this machine has no NVIDIA driver|cuda")
        self.assertEqual(report["ops"]["status"], "failed")
        self.assertIn("peer", report)
        self.assertIn("==== train", (self.scratch / "out/log.txt").read_text())

    def test_models_of_products_are_known(self):
        for name in re.search(r"local models=\((.*?)\)", CHECK.read_text())[1].split():
            self.assertIn("GB", run(TLT, "doctor", "--plan", name), name)

    def test_only_one_part(self):
        report, _ = self.check("--device", "far", "--only", "doctor")
        self.assertEqual(list(report), ["doctor"])

    def test_a_part_that_takes_too_long_is_ended(self):
        report, _ = self.check("--device", "far", "--only", "train", "--seconds", "0.001", code=1)
        self.assertEqual(report["train"]["status"], "out of time")

    def test_bad_words_are_refused(self):
        for words in (["--device", "cpu"], ["--only", "everything"], ["--speed", "10"], ["--seconds", "ten"], ["--torch", "/nowhere"]):
            _, text = self.check(*words, code=2)
            self.assertRegex(text, "^gpu_check: .*give", words)
        _, text = self.check(bundle="/nowhere/bundle.tar.xz", code=2)
        self.assertIn("no bundle '/nowhere/bundle.tar.xz'", text)


if __name__ == "__main__":
    support.main()
