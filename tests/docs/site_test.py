#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The site of `make docs`: mkdocs --strict passes and finds planted faults; a page needs nothing from a network."""
import re
import shutil
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "packages"))
import support  # noqa: E402
from support import BUILD, ROOT, TLT, ScratchCase, run  # noqa: E402

import docs_site  # noqa: E402

# What a browser would load; a link to click is not.
LOADED = re.compile(r"""<(?:script|img|iframe|source)[^>]*\ssrc=["']?(https?:)?//|<link[^>]*rel=["']?(?:stylesheet|preload|preconnect)["']?[^>]*href=["']?(https?:)?//""")


class SiteTest(ScratchCase):
    def setUp(self):
        super().setUp()
        if not (ROOT / ".deps/tools/mkdocs").is_dir():
            self.skipTest("no mkdocs in .deps/tools: setup/setup.sh --tools")

    def build(self, config=ROOT / "mkdocs.yml"):
        return docs_site.build_site(BUILD, self.scratch / "site", config)

    def test_it_builds_and_needs_no_network(self):
        code, output = self.build()
        self.assertEqual((code, output), (0, ""))
        site = self.scratch / "site"
        pages = sorted(site.rglob("*.html"))
        self.assertGreater(len(pages), 45)
        for page in pages:
            self.assertIsNone(LOADED.search(page.read_text(encoding="utf-8")), page)
        for style in site.rglob("*.css"):
            self.assertNotRegex(style.read_text(encoding="utf-8"), r"@import|url\(\s*[\"']?https?:", style)
        commands = (site / "commands.html").read_text(encoding="utf-8")
        for name in re.findall(r"^  (\w+) ", run(TLT, "--help"), re.MULTILINE):
            self.assertIn(f"tlt {name}", commands)
        self.assertIn("Scheduler: decides which sequences", (site / "headers.html").read_text(encoding="utf-8"))
        self.assertIn("trainer.total_training_steps", (site / "options.html").read_text(encoding="utf-8"))
        self.assertIn('href="source/src/ops/linear.h.txt"', (site / "paper_map.html").read_text(encoding="utf-8")
                      + (site / "early_gradients.html").read_text(encoding="utf-8")
                      + (site / "architecture.html").read_text(encoding="utf-8")
                      + (site / "algorithms.html").read_text(encoding="utf-8"))  # fmt: skip
        self.assertTrue((site / "source/src/rl/advantages.h.txt").is_file())

    def planted(self, text, name="faq.md"):
        """What mkdocs prints of the same site with a page changed."""
        shutil.rmtree(self.scratch / "docs", ignore_errors=True)
        shutil.copytree(ROOT / "docs", self.scratch / "docs")
        with (self.scratch / "docs" / name).open("a", encoding="utf-8") as page:
            page.write(text)
        config = self.scratch / "mkdocs.yml"
        hook = ROOT / "setup/packages/docs_site.py"
        config.write_text((ROOT / "mkdocs.yml").read_text().replace("[setup/packages/docs_site.py]", f"[{hook}]"))
        code, output = self.build(config)
        self.assertNotEqual(code, 0)
        return output

    def test_planted_faults_are_found(self):
        self.assertIn("nowhere.md", self.planted("\n[x](nowhere.md)\n"))
        self.assertIn("no-such-part", self.planted("\n[x](memory.md#no-such-part)\n"))
        self.assertIn("../src/nowhere.h", self.planted("\n[x](../src/nowhere.h)\n"))
        self.assertIn("forgotten.md", self.planted("# A page outside the navigation\n", "forgotten.md"))


if __name__ == "__main__":
    support.main()
