#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of `tlt report`: its numbers are those of metrics.jsonl, its texts never run, it opens in a browser without
an error or a request, and it can be used by the keyboard.

    report_test.py TLT [--screenshots FOLDER]

Without a Chromium the browser's part is skipped: exit code 77, which CTest reports as skipped.
"""
import argparse
import json
import subprocess
import sys
import tempfile
import unittest
from html.parser import HTMLParser
from pathlib import Path

from browser import Browser, find_chromium
from make_run import HOSTILE, make_run, write_lines

STEPS = 1000
given = None  # the command line
scratch = None  # a folder


class Elements(HTMLParser):
    """The elements of a page as a browser without JavaScript sees them."""

    def __init__(self, text):
        super().__init__()
        self.names, self.scripts, self.links = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.names.append(tag)
        self.links += [value for name, value in attributes if name in ("src", "href") and value]

    def handle_data(self, data):
        if self.names and self.names[-1] == "script":
            self.scripts.append(data)


def tlt(*words, code=0):
    ended = subprocess.run([given.tlt, *map(str, words)], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == code, ended.stderr
    return ended.stderr


def report(*runs, name="report.html"):
    page = scratch / name
    tlt("report", *runs, "--output", page)
    return page


def data_of(page):
    return json.loads(Elements(page.read_text(encoding="utf-8")).scripts[0])


def rows_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def column(run, name):
    stored = run["metrics"]["columns"][name]
    if isinstance(stored, list):
        return stored
    values = [None] * len(run["metrics"]["steps"])
    for index, value in zip(stored["at"], stored["values"]):
        values[index] = value
    return values


class FileTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.run_folder = scratch / "long"
        make_run(cls.run_folder, STEPS)
        cls.page = report(cls.run_folder, name="long.html")

    def test_every_number_of_the_metrics_is_on_the_page(self):
        (run,) = data_of(self.page)["runs"]
        rows = rows_of(self.run_folder)
        self.assertEqual(run["metrics"]["steps"], [row["step"] for row in rows])
        names = {name for row in rows for name in row} - {"step"}
        self.assertEqual(set(run["metrics"]["columns"]), names)
        for name in names:
            self.assertEqual(column(run, name), [row.get(name) for row in rows], name)
        self.assertEqual(run["metrics"]["tokens"][-1], sum(row.get("rollout/tokens", 0) for row in rows))

    def test_a_thousand_steps_take_less_than_five_megabytes(self):
        self.assertLess(self.page.stat().st_size, 5e6)

    def test_the_page_refers_to_no_other_file(self):
        elements = Elements(self.page.read_text(encoding="utf-8"))
        self.assertEqual([link for link in elements.links if not link.startswith(("#", "data:,"))], [])
        self.assertEqual(elements.names.count("script"), 2)
        for element in ("img", "svg", "iframe"):
            self.assertNotIn(element, elements.names)

    def test_hostile_texts_are_data(self):
        texts = json.dumps(data_of(self.page)["runs"][0]["rollouts"], ensure_ascii=False)
        for text in HOSTILE:
            self.assertIn(json.dumps(text, ensure_ascii=False)[1:-1], texts)

    def test_a_damaged_run_is_reported_as_far_as_it_goes(self):
        folder = scratch / "damaged"
        make_run(folder, 20)
        path = folder / "metrics.jsonl"
        lines = path.read_text().splitlines()
        lines[5] = lines[5][:40]
        path.write_text("\n".join(lines)[:-30])
        message = tlt("report", folder)
        for line in (6, 21):
            self.assertRegex(message, rf"left out: .*metrics\.jsonl:{line}: not JSON")
        (run,) = data_of(folder / "report.html")["runs"]
        self.assertEqual(run["metrics"]["steps"], [step for step in range(20) if step != 5])
        self.assertEqual(len(run["left_out"]), 2)

    def test_what_is_no_run_is_refused_by_a_sentence(self):
        self.assertIn("no run folder (it has no metrics.jsonl)", tlt("report", scratch / "nothing", code=2))


@unittest.skipUnless(find_chromium(), "no Chromium")
class BrowserTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.run_folder = scratch / "shown"
        make_run(cls.run_folder, STEPS)
        make_run(scratch / "other", 300, seed=1)
        cls.page = report(cls.run_folder, name="shown.html")
        cls.both = report(cls.run_folder, scratch / "other", name="both.html")

    def check_clean(self, browser):
        self.assertEqual(browser.errors, [])
        self.assertIsNone(browser.evaluate("window.hacked ?? null"))
        others = [url for url in browser.requests if not url.startswith(("file:", "data:,"))]
        self.assertEqual(others, [])

    def all_drawn(self, browser, width):
        """Makes the window as high as the page, so that every chart is drawn."""
        browser.resize(width, browser.evaluate("document.documentElement.scrollHeight"))
        browser.wait_for("charts.every((chart) => chart.plot)")

    def test_opens_within_three_seconds_without_errors(self):
        for name, width, dark in (("light", 1280, False), ("dark", 1280, True), ("narrow", 400, False)):
            for page in (self.page, self.both):
                with self.subTest(name, page=page.name), Browser(find_chromium(), width, 900, dark) as browser:
                    browser.open(page)
                    # From the start of the navigation to the end of the script, in the browser's own clock.
                    milliseconds = browser.evaluate("performance.timing.domComplete - performance.timing.fetchStart")
                    self.assertLess(milliseconds, 3000)
                    self.all_drawn(browser, width)
                    self.assertLessEqual(browser.evaluate("document.documentElement.scrollWidth"), width)
                    theme = browser.evaluate("document.documentElement.dataset.theme")
                    self.assertEqual(theme, "dark" if dark else "light")
                    self.check_clean(browser)
                    if given.screenshots:
                        browser.screenshot(Path(given.screenshots) / f"{page.stem}_{name}.png")

    def test_unusual_runs_open_without_errors(self):
        runs = {
            "one_step": [{"step": 1, "critic/score/mean": 0.5}],
            "validation_only": [{"step": 0, "main/validation_score": 0.25, "timing_s/testing": 3}],
            "sft": [{"step": i, "main/loss": 2 / i, "train/loss": 2 / i, "train/tokens": 100, "timing_s/step": 1.5} |
                    ({"main/validation_loss": 2.1 / i, "val/loss": 2.1 / i} if i % 4 == 0 else {}) for i in range(1, 30)],
            "names": [{"step": i, "__proto__": i, "constructor": 1, "a<b>": -1e300, "speculation/arm//steps": i,
                       "speculation/x/accept_rate_pos_1": 0.5, "drafter/worker_7/idle_seconds": 1} for i in range(3)],
            "constant": [{"step": 1e15 + i, "critic/score/mean": 0, "timing_s/gen": 0, "timing_s/step": 0}
                         for i in range(4)],
        }
        for name, rows in runs.items():
            write_lines(scratch / name / "metrics.jsonl", rows)
        pages = [(name, report(scratch / name, name=f"{name}.html")) for name in runs]
        pages.append(("all", report(*(scratch / name for name in runs), name="all.html")))
        for name, page in pages:
            with self.subTest(name), Browser(find_chromium()) as browser:
                browser.open(page)
                for axis in ("tokens", "seconds", "steps"):
                    browser.evaluate(f"document.querySelector('#axis input[value={axis}]').click()")
                    self.all_drawn(browser, 1280)
                self.check_clean(browser)

    def test_sweeps_of_simulate_open_without_errors(self):
        page = scratch / "sweep.html"
        tlt("simulate", "train_batch_size=4", "n=2", "total_training_steps=1", "ways=plain,tlt",
            "lengths=lognormal:200,1000", "--sweep", "device=H100,H20", "--sweep", "workers=1,2", "--picture", page)
        for width, dark in ((1280, False), (400, True)):
            with self.subTest(width), Browser(find_chromium(), width, 900, dark) as browser:
                browser.open(page)
                self.all_drawn(browser, width)
                self.assertIn("device=H20", browser.evaluate("document.querySelector('.keys').textContent"))
                self.check_clean(browser)
                if given.screenshots:
                    browser.screenshot(Path(given.screenshots) / f"sweep_{width}.png")

    def test_only_the_script_of_the_page_runs(self):
        text = self.page.read_text(encoding="utf-8")
        planted = scratch / "planted.html"
        elements = "<script>window.hacked=1</script><img src=x onerror='window.hacked=1'>"
        planted.write_text(text.replace("</body>", elements + "</body>"), encoding="utf-8")
        with Browser(find_chromium()) as browser:
            browser.open(planted)
            self.assertIsNone(browser.evaluate("window.hacked ?? null"))
            self.assertRegex(" ".join(browser.errors), "Content Security Policy")
        planted.write_text(text.replace("'use strict';", "'use strict';window.hacked=1;", 1), encoding="utf-8")
        with Browser(find_chromium()) as browser, self.assertRaisesRegex(RuntimeError, "Content Security Policy"):
            browser.open(planted)

    def test_tiles_have_the_numbers_of_the_metrics(self):
        rows = rows_of(self.run_folder)
        with Browser(find_chromium()) as browser:
            browser.open(self.page)
            tiles = dict(browser.evaluate("""[...document.querySelectorAll('.tile')].map((tile) =>
                [tile.querySelector('span').textContent, tile.querySelector('b').dataset.value])"""))
        self.assertEqual(float(tiles["Held-out score"]), rows[-1]["main/validation_score"])
        self.assertEqual(float(tiles["Response length"]), rows[-1]["response_length/p50"])
        self.assertEqual(float(tiles["Acceptance length"]), rows[-1]["rollout/spec_accept_length"])
        steps = [row["timing_s/step"] for row in rows if "timing_s/step" in row]
        self.assertAlmostEqual(float(tiles["Step"]), sum(steps) / len(steps))
        idle, lost = (sum(row.get(f"drafter/{part}_seconds", 0) for row in rows) for part in ("idle", "lost"))
        self.assertAlmostEqual(float(tiles["Idle time used"]), 1 - lost / idle)

    def test_tables_of_charts_have_the_numbers_of_the_metrics(self):
        rows = {row["step"]: row for row in rows_of(self.run_folder)}
        with Browser(find_chromium()) as browser:
            browser.open(self.page)
            self.all_drawn(browser, 1280)
            table = browser.evaluate("""(() => {
                const chart = charts.find((one) => one.spec.title === 'Response length and its tail');
                chart.tableButton.click();
                return [...chart.tableBox.querySelectorAll('tr')].map((row) =>
                    [...row.children].map((cell) => cell.textContent));
            })()""")
            self.check_clean(browser)
        columns = {"median": "p50", "90th percentile": "p90", "99th percentile": "p99", "longest": "max"}
        self.assertGreater(len(table), 200)
        for row in table[1:]:
            shown = dict(zip(table[0], row))
            for label, name in columns.items():
                self.assertEqual(float(shown[label]), rows[int(shown["step"])][f"response_length/{name}"])

    def test_runs_are_compared_at_equal_steps_tokens_and_time(self):
        with Browser(find_chromium()) as browser:
            browser.open(self.both)
            table = browser.evaluate("""[...document.querySelectorAll('#equal tr')].map((row) =>
                [...row.children].map((cell) => cell.title || cell.textContent))""")
            for axis in ("tokens", "seconds", "steps"):
                browser.evaluate(f"document.querySelector('#axis input[value={axis}]').click()")
                self.all_drawn(browser, 1280)
            self.check_clean(browser)
        self.assertEqual(table[0][1], "held-out at step 300")
        for folder, row in ((self.run_folder, table[1]), (scratch / "other", table[2])):
            expected = next(one["main/validation_score"] for one in rows_of(folder) if one["step"] == 300)
            self.assertEqual(float(row[1]), expected, folder)

    def test_keys_move_in_charts_and_responses(self):
        with Browser(find_chromium()) as browser:
            browser.open(self.page)
            self.all_drawn(browser, 1280)
            browser.evaluate("charts[0].plotBox.focus()")
            for key in ("Home", "ArrowRight", "ArrowRight"):
                browser.press(key)
            self.assertEqual(browser.evaluate("charts[0].at.textContent"), "step 2")
            score = next(row for row in rows_of(self.run_folder) if row["step"] == 2)["critic/score/mean"]
            self.assertEqual(float(browser.evaluate("charts[0].values[1].title")), score)
            browser.evaluate("document.activeElement.blur()")
            browser.press("/")
            self.assertEqual(browser.evaluate("document.activeElement.id"), "search")
            browser.call("Input.insertText", text="<img src=x")
            browser.wait_for("document.querySelectorAll('#responses li').length < 700")
            browser.press("ArrowDown")
            self.assertEqual(browser.evaluate("document.activeElement.id"), "responses")
            browser.press("ArrowDown")
            selected = browser.evaluate("""[...document.querySelectorAll('#responses li')]
                .findIndex((one) => one.getAttribute('aria-selected') === 'true')""")
            self.assertEqual(selected, 1)
            self.assertIn("<img src=x", browser.evaluate("document.querySelector('.detail').textContent"))
            # Every control is reached by Tab and has a name.
            nameless = browser.evaluate("""[...document.querySelectorAll('button, select, input, [tabindex="0"]')]
                .filter((one) => !(one.textContent.trim() || one.getAttribute('aria-label') || one.title ||
                    one.placeholder || one.labels?.length)).map((one) => one.outerHTML.slice(0, 100))""")
            self.assertEqual(nameless, [])
            self.check_clean(browser)

    def test_responses_are_sorted_by_score_and_coloured_by_token(self):
        with Browser(find_chromium()) as browser:
            browser.open(self.page)
            scores = {}
            for order in ("best", "worst"):
                scores[order] = browser.evaluate(f"""(() => {{
                    const order = document.getElementById('order');
                    order.value = '{order}';
                    order.dispatchEvent(new Event('change'));
                    return [...document.querySelectorAll('#responses li b')].map((one) => +one.textContent);
                }})()""")
            self.assertEqual(scores["best"], sorted(scores["best"], reverse=True))
            self.assertEqual(scores["worst"], sorted(scores["worst"]))
            for mode in ("logprob", "accepted"):
                coloured = browser.evaluate(f"""(() => {{
                    const item = [...document.querySelectorAll('#responses li')].find((one) =>
                        (one.click(), document.querySelector('#colouring [value={mode}]:not(:disabled)')));
                    document.querySelector('#colouring [value={mode}]').click();
                    return [...document.querySelectorAll('#response span')]
                        .filter((one) => one.style.background).length;
                }})()""")
                self.assertGreater(coloured, 5, mode)
            self.check_clean(browser)


def main():
    global given, scratch
    parser = argparse.ArgumentParser(description="Tests the page of tlt report.")
    parser.add_argument("tlt")
    parser.add_argument("--screenshots")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tlt-report-") as folder:
        scratch = Path(folder)
        result = unittest.main(argv=[sys.argv[0]], exit=False, verbosity=2).result
    if result.wasSuccessful() and not find_chromium():
        print("skipped: no Chromium; make setup BROWSER=1 installs it")
        sys.exit(77)
    sys.exit(not result.wasSuccessful())


if __name__ == "__main__":
    main()
