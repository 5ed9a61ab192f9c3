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
        self.assertIn('href="source/src/ops/linear.h.txt"', (site / "glossary.html").read_text(encoding="utf-8"))
        self.assertTrue((site / "source/src/rl/advantages.h.txt").is_file())

    def test_planted_faults_are_found(self):
        shutil.copytree(ROOT / "docs", self.scratch / "docs")
        with (self.scratch / "docs/faq.md").open("a", encoding="utf-8") as page:
            page.write("\n[x](nowhere.md) [y](memory.md#no-such-part) [z](../src/nowhere.h)\n")
        (self.scratch / "docs/forgotten.md").write_text("# A page outside the navigation\n")
        config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
        hook = "setup/packages/docs_site.py]"
        self.assertIn(hook, config)
        (self.scratch / "mkdocs.yml").write_text(config.replace(hook, f"{ROOT}/{hook}"))
        code, output = self.build(self.scratch / "mkdocs.yml")
        self.assertNotEqual(code, 0)
        for fault in ("'nowhere.md'", "#no-such-part", "../src/nowhere.h", "forgotten.md"):
            self.assertIn(fault, output)


if __name__ == "__main__":
    support.main()
