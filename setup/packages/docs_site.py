#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs_site.py BUILD TARGET: the pages of docs/ as a site, by mkdocs-material; `make docs`. Also mkdocs' hook (mkdocs.yml).

What the hook adds to docs/:

    project.md, architecture.md, changes.md, bench_commands.md   README.md and other pages outside docs/
    commands.md       --help of every command of BUILD/tlt
    headers.md        the first sentence of every header of src/, by folder
    source/….txt      the files of the repository that pages link to

Links are written for the repository (../src/x.h) and rewritten here. With --strict a link or an anchor that leads nowhere
fails, and a page without a place in the navigation.
"""
import argparse
import os
import posixpath
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Pages outside docs/: their name in the repository and on the site.
OUTSIDE = {
    "README.md": "project.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changes.md",
    "bench/README.md": "bench_commands.md",
}
# "](target#part" and "[text]: target#part"; groups: what is before the target, the target, the part.
LINK = re.compile(r"(\]\(|^\[[^\]\n]+\]: )([^)\s#]+)(#[^)\s]*)?", re.MULTILINE)


def site_link(page, target):
    """The place on the site of `target` as `page` of the repository writes it; None: a file outside docs/ without one."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
    if path in OUTSIDE:
        return OUTSIDE[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if (ROOT / path).is_file():
        return f"source/{path}.txt"
    return None


def rewrite_links(page, text):
    """The text of a page of the repository with the links of the site; they are relative to docs/."""

    def rewrite(link):
        before, target, part = link[1], link[2], link[3] or ""
        place = None if ":" in target else site_link(page, target)
        return link[0] if place is None else before + place + part

    return LINK.sub(rewrite, text)


def linked_sources(pages):
    """The files outside docs/ that these pages (name to text) link to."""
    found = set()
    for page, text in pages.items():
        for link in LINK.finditer(text):
            place = None if ":" in link[2] else site_link(page, link[2])
            if place and place.startswith("source/"):
                found.add(place)
    return sorted(found)


def commands_page(program):
    """--help of every command, in the order of the manual page."""
    manual = subprocess.run([program, "man"], check=True, capture_output=True, text=True).stdout
    parts = ["# Commands", "What `tlt COMMAND --help` prints. `tlt man` has the same as a manual page."]
    for name in re.findall(r"^\.SS tlt (.*)$", manual, re.MULTILINE):
        words = name.replace("\\-", "-").split()
        page = subprocess.run([program, *words, "--help"], check=True, capture_output=True, text=True).stdout
        parts += [f"## tlt {' '.join(words)}", f"```text\n{page.strip()}\n```"]
    return "\n\n".join(parts) + "\n"


def first_sentence(header):
    """"Scheduler: decides …" of the opening comment."""
    words = []
    for line in header.read_text(encoding="utf-8").splitlines():
        line = line.removeprefix("//").strip()
        if not line or line.startswith(("#", "SPDX")):
            break
        words.append(line)
    return re.split(r"(?<=\.) ", " ".join(words))[0]


def headers_page():
    parts = ["# C++ headers", "The first sentence of each header of `src/`, by folder. "
             "[architecture.md](architecture.md) is the way into the code."]  # fmt: skip
    folders = {}
    for header in sorted((ROOT / "src").rglob("*.h")):
        folders.setdefault(header.parent.relative_to(ROOT / "src").as_posix(), []).append(header)
    for folder, headers in folders.items():
        rows = [f"| `{h.name}` | {first_sentence(h).replace('|', chr(92) + '|')} |" for h in headers]
        parts += [f"## {folder}", "\n".join(["| header | |", "|---|---|", *rows])]
    return "\n\n".join(parts) + "\n"


# ---- mkdocs' hook


def on_files(files, config):
    from mkdocs.structure.files import File

    pages = {name: (ROOT / name).read_text(encoding="utf-8") for name in OUTSIDE}
    made = {OUTSIDE[name]: rewrite_links(name, text) for name, text in pages.items()}
    made["commands.md"] = commands_page(Path(os.environ["TLT_BUILD"]) / "tlt")
    made["headers.md"] = headers_page()
    docs = Path(config["docs_dir"])
    pages.update({f"docs/{path.name}": path.read_text(encoding="utf-8") for path in sorted(docs.glob("*.md"))})
    for place in linked_sources(pages):
        made[place] = (ROOT / place.removeprefix("source/").removesuffix(".txt")).read_text(encoding="utf-8")
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown, page, config, files):
    del config, files
    if page.file.src_uri in OUTSIDE.values():
        return markdown  # rewritten when it was made
    return rewrite_links(f"docs/{page.file.src_uri}", markdown)


# ---- the script


def build_site(build, target, config=ROOT / "mkdocs.yml"):
    """Returns mkdocs' exit code and its warnings. (With --quiet it has no warnings, so --strict finds nothing.)"""
    env = {**os.environ, "PYTHONPATH": str(ROOT / ".deps/tools"), "TLT_BUILD": str(build.resolve()),
           "NO_MKDOCS_2_WARNING": "1"}  # fmt: skip
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", config, "--site-dir", target]
    ended = subprocess.run(list(map(str, words)), env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           check=False)  # fmt: skip
    lines = [line for line in ended.stdout.splitlines(keepends=True) if not re.match(r"INFO\b|\s*$", line)]
    return ended.returncode, "".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("target", type=Path)
    given = parser.parse_args()
    if not (ROOT / ".deps/tools/mkdocs").is_dir():
        raise SystemExit("docs_site: no mkdocs in .deps/tools; with a network, type: setup/setup.sh --tools")
    code, output = build_site(given.build, given.target.resolve())
    print(output, end="")
    if code != 0:
        raise SystemExit(code)
    print(f"wrote {given.target}/index.html")


if __name__ == "__main__":
    main()
