#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""wheel.py BUILD FOLDER: writes the wheel tlt-rl with the program into FOLDER; `make wheel`.

    tlt/               the Python package (python/)
    tlt/bin/tlt        finds libtorch and Arrow in the folders of the wheels torch and pyarrow, which pip installs next to
                       it, and the rest in tlt/lib/tlt
    tlt/lib/tlt/       the Debian libraries that it needs, with their licences in .dist-info; not the C and C++ libraries;
                       and the plug-in for CUDA, if it was built
    tlt/share/tlt/     recipes, models and tools
    share/man, share/bash-completion …   in the environment's own folders

It needs the glibc of this machine or a later one, which its name has.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import stage

sys.path.insert(0, str(stage.ROOT / "python"))
import build_backend  # noqa: E402

RPATH = "$ORIGIN/../../torch/lib:$ORIGIN/../../nvidia/cu13/lib:$ORIGIN/../../pyarrow:$ORIGIN/../lib/tlt"
# Of every Linux that this glibc stands for (the policy of manylinux).
OF_THE_SYSTEM = {"libc.so.6", "libm.so.6", "libpthread.so.0", "librt.so.1", "libdl.so.2", "libutil.so.1",
                 "libresolv.so.2", "libgcc_s.so.1", "libstdc++.so.6"}  # fmt: skip


def pins():
    """setup/wheels.txt: name to (version, SHA-256)."""
    text = (stage.ROOT / "setup/wheels.txt").read_text(encoding="utf-8")
    found = re.findall(r"^([a-z0-9-]+)==(\S+) --hash=sha256:([0-9a-f]{64})$", text, re.MULTILINE)
    return {name: (version, digest) for name, version, digest in found}


def requirements():
    """The wheels with the libraries that the program is linked with; their ABI is that of a minor version."""
    return [f"{name}=={'.'.join(pins()[name][0].split('.')[:2])}.*" for name in ("torch", "pyarrow")]


def bundled(program):
    """The libraries of Debian that go into the wheel: name to path."""
    return {
        name: path
        for name, path in stage.libraries_of(program).items()
        if name not in OF_THE_SYSTEM and not stage.is_of_wheel(path)
    }


def debian_package(library):
    """The package that a library is of; its file may be listed below /usr or not."""
    path = str(library.resolve())
    for name in (path, path.removeprefix("/usr")):
        found = subprocess.run(["dpkg", "-S", name], capture_output=True, text=True, check=False)
        if found.returncode == 0:
            return found.stdout.split(":")[0]
    raise SystemExit(f"{library} is of no Debian package; a wheel is made on Debian or Ubuntu, whose licences it names")


def write_wheel(build, folder):
    glibc = os.confstr("CS_GNU_LIBC_VERSION").split()[1].replace(".", "_")
    program = build / "tlt"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        wheel = build_backend.Wheel(scratch, f"py3-none-manylinux_{glibc}_x86_64", requirements())
        build_backend.add_package(wheel)
        stage.write_program(program, Path(scratch) / "tlt", RPATH)
        wheel.add("tlt/bin/tlt", Path(scratch) / "tlt", is_program=True)
        info = f"{wheel.name}.dist-info/licenses"
        for name, path in sorted(bundled(program).items()):
            wheel.add(f"tlt/lib/tlt/{name}", path)
        for name, path in stage.plugins(build).items():
            wheel.add(f"tlt/lib/tlt/{name}", path)
        for package in sorted({debian_package(path) for path in bundled(program).values()}):
            wheel.add(f"{info}/{package}.txt", Path("/usr/share/doc") / package / "copyright")
        for name, path in stage.shared_files().items():
            wheel.add(f"tlt/share/tlt/{name}", path, is_program=os.access(path, os.X_OK))
        for name, text in stage.printed_files(program).items():
            wheel.add(f"{wheel.name}.data/data/{name}", text)
        name = wheel.finish("[console_scripts]\ntlt = tlt.program:main\n")
        os.replace(Path(scratch) / name, folder / name)
    return folder / name


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    wheel = write_wheel(given.build, given.folder)
    print(f"{wheel} ({wheel.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    main()
