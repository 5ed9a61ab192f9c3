#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stage.py BUILD TARGET [--link]: what `make install` puts into TARGET, that is $(DESTDIR)$(PREFIX).

    bin/tlt            finds its libraries by ../lib/tlt, so the folder can be moved
    lib/tlt/           those of the wheels in .deps/ that it needs: libtorch, Arrow, CUDA's two (0.5 GB); tlt's plug-in for
                       CUDA, if it was built
    share/tlt/         recipes, models and tools; `tlt train recipes/demo.toml` finds them from any folder
    share/doc/tlt/     the documentation
    share/man, share/bash-completion, share/zsh, share/fish

--link makes hard links of the libraries instead of copies.
"""
import argparse
import os
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ["_reward_program.py", "trl_reward.py", "verl_reward.py", "word_problems.py", "check_adapter.py",
         "check_drafter.py", "check_export.py", "check_tensorboard.py", "serve_load.py"]  # fmt: skip
# Files made by the program: their place, and the words that print them.
PRINTED = {
    "share/man/man1/tlt.1": ["man"],
    "share/bash-completion/completions/tlt": ["completion", "bash"],
    "share/zsh/site-functions/_tlt": ["completion", "zsh"],
    "share/fish/vendor_completions.d/tlt.fish": ["completion", "fish"],
}


def libraries_of(program):
    """The libraries the program loads: name to path."""
    output = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    missing = re.findall(r"^\s*(\S+) => not found", output, re.MULTILINE)
    if missing:
        raise SystemExit(f"{program} does not find {', '.join(missing)}; type: make program")
    return {name: Path(path) for name, path in re.findall(r"^\s*(\S+) => (\S+) \(", output, re.MULTILINE)}


def plugins(build):
    """The plug-in for CUDA, which is built where nvcc is: name to path."""
    path = build / "libtlt_cuda.so"
    return {path.name: path} if path.exists() else {}


def is_of_wheel(path):
    """Is this library in .deps/?"""
    return ".deps" in path.parts


def write_program(program, target, rpath):
    """A copy of the program that looks for its libraries in these folders."""
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(target.name + ".new")
    shutil.copy2(program, fresh)
    script = fresh.with_name(fresh.name + ".cmake")
    script.write_text(f'file(RPATH_SET FILE "{fresh}" NEW_RPATH "{rpath}")\n'.replace("$", "\\$"), encoding="utf-8")
    subprocess.run(["cmake", "-P", script], check=True, stdout=subprocess.DEVNULL)
    script.unlink()
    os.replace(fresh, target)  # the old one may be running


def shared_files():
    """What stands in share/tlt: name to path."""
    files = sorted(ROOT.glob("recipes/*.toml")) + sorted(ROOT.glob("models/*/*"))
    files += [ROOT / "tools" / name for name in TOOLS]
    return {str(file.relative_to(ROOT)): file for file in files}


def printed_files(program):
    """The manual page and the shells' completions: name to text."""
    return {
        name: subprocess.run([program, *words], check=True, capture_output=True, text=True).stdout
        for name, words in PRINTED.items()
    }


def copy(source, target, links=False):
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    if links:
        try:
            os.link(source.resolve(), target)
            return
        except OSError:
            pass  # another file system
    shutil.copy2(source, target)


def stage(build, target, links=False):
    program = build / "tlt"
    for name, path in libraries_of(program).items():
        if is_of_wheel(path):
            copy(path, target / "lib/tlt" / name, links)
    for name, path in plugins(build).items():
        copy(path, target / "lib/tlt" / name)
    for name, path in shared_files().items():
        copy(path, target / "share/tlt" / name)
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "LICENSE", *sorted(ROOT.glob("docs/*"))]
    for path in pages:
        copy(path, target / "share/doc/tlt" / path.relative_to(ROOT))
    for name, text in printed_files(program).items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(text, encoding="utf-8")
    write_program(program, target / "bin/tlt", "$ORIGIN/../lib/tlt")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--link", action="store_true")
    given = parser.parse_args()
    stage(given.build, given.target, given.link)
    print(f"installed {given.target}/bin/tlt")


if __name__ == "__main__":
    main()
