#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpu_bundle.py BUILD FILE: what tools/gpu_check.sh needs on a bare machine with a card, Python and PyTorch 2.11.0;
`make gpu-bundle`.

    tlt-gpu/bin/       the program, the plug-in for CUDA, test programs and device_cases.txt, which says what they run
    tlt-gpu/lib/       the libraries that the machine lacks: Debian's and Arrow; PyTorch is the machine's own
    tlt-gpu/tools/ recipes/ models/

FILE ends with .tar.xz, of at most 30 MiB, or with .tar, which is written in a tenth of the time.
"""
import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import stage
import wheel

MAX_BYTES = 30 << 20
PROGRAMS = ["tlt", "tests/tlt_far", "tests/tlt_ops_test", "tests/tlt_invariant_test"]
# The programs share most of their code: the dictionary is larger than two of them.
PACK = "xz --x86 --lzma2=preset=6,dict=64MiB"


def is_bundled(name, path):
    return name not in wheel.OF_THE_SYSTEM and (not stage.is_of_wheel(path) or "pyarrow" in path.parts)


def strip(path):
    path.chmod(0o755)
    subprocess.run(["strip", "--strip-unneeded", path], check=True)


def fill(build, root):
    libraries = {}
    for name in PROGRAMS:
        target = root / "bin" / Path(name).name
        stage.write_program(build / name, target, "$ORIGIN/../lib")
        strip(target)
        libraries |= {lib: path for lib, path in stage.libraries_of(build / name).items() if is_bundled(lib, path)}
    for name, path in stage.plugins(build).items():
        stage.copy(path, root / "bin" / name)
        strip(root / "bin" / name)
    for name, path in sorted(libraries.items()):
        stage.copy(path.resolve(), root / "lib" / name)
        strip(root / "lib" / name)
    stage.copy(build / "tests/device_cases.txt", root / "bin/device_cases.txt")
    for file in ("tools/gpu_check.sh", "tools/_gpu_peer.py", "recipes/demo.toml"):
        stage.copy(stage.ROOT / file, root / file)
    shutil.copytree(stage.ROOT / "models/demo", root / "models/demo")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("file", type=Path)
    given = parser.parse_args()
    if not stage.plugins(given.build):
        print(f"no libtlt_cuda.so in {given.build}: this bundle can only check the device far; build where nvcc of CUDA 13 is")
    given.file.parent.mkdir(parents=True, exist_ok=True)
    fresh = given.file.with_name(given.file.name + ".new")
    with tempfile.TemporaryDirectory(dir=given.file.parent) as scratch:
        fill(given.build, Path(scratch) / "tlt-gpu")
        pack = ["-I", PACK] if given.file.suffix == ".xz" else []
        subprocess.run(["tar", "-C", scratch, "--sort=name", "-c", *pack, "-f", fresh, "tlt-gpu"], check=True)
    size = fresh.stat().st_size
    if pack and size > MAX_BYTES:
        fresh.unlink()
        sys.exit(f"the bundle has {size / (1 << 20):.1f} MiB, more than {MAX_BYTES >> 20}")
    fresh.replace(given.file)
    print(f"{given.file} ({size / (1 << 20):.1f} MiB)")


if __name__ == "__main__":
    main()
