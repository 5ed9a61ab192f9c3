# SPDX-License-Identifier: Apache-2.0
"""The build backend of `pip install ./python` (PEP 517): writes the wheel of the package tlt without the program.

setuptools would have to be downloaded for it; this needs nothing. `make wheel` (setup/packages/wheel.py) uses the same
functions for the wheel with the program.
"""
import base64
import hashlib
import re
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TIME = (2026, 1, 1, 0, 0, 0)  # of all files in a wheel: the same sources give the same bytes


def project(key):
    """The value of a string of pyproject.toml; Python 3.9 has no TOML parser."""
    text = (HERE / "pyproject.toml").read_text(encoding="utf-8")
    return re.search(rf'^{key} = "([^"]*)"$', text, re.MULTILINE).group(1)


class Wheel:
    """A wheel that is being written: files, then the folder .dist-info with their hashes."""

    def __init__(self, folder, tag, requirements=()):
        self.name = f"{project('name').replace('-', '_')}-{project('version')}"
        self.path = Path(folder) / f"{self.name}-{tag}.whl"
        self.tag, self.requirements, self.record = tag, requirements, []
        self.archive = zipfile.ZipFile(self.path, "w", zipfile.ZIP_DEFLATED)

    def add(self, name, content, is_program=False):
        """Adds a file; `content` is bytes, text or a path."""
        data = content.read_bytes() if isinstance(content, Path) else content
        data = data.encode() if isinstance(data, str) else data
        info = zipfile.ZipInfo(name, TIME)
        info.compress_type = zipfile.ZIP_DEFLATED
        info.external_attr = (0o100755 if is_program else 0o100644) << 16
        self.archive.writestr(info, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}")

    def metadata(self):
        lines = [
            "Metadata-Version: 2.1",
            f"Name: {project('name')}",
            f"Version: {project('version')}",
            f"Summary: {project('description')}",
            "License: Apache-2.0",
            f"Requires-Python: {project('requires-python')}",
            *(f"Requires-Dist: {requirement}" for requirement in self.requirements),
            "Description-Content-Type: text/markdown",
        ]
        return "\n".join(lines) + "\n\n" + (HERE / "README.md").read_text(encoding="utf-8")

    def finish(self, scripts=""):
        """Writes .dist-info; returns the file's name."""
        info = f"{self.name}.dist-info"
        self.add(f"{info}/METADATA", self.metadata())
        kind = "true" if self.tag.endswith("none-any") else "false"
        self.add(
            f"{info}/WHEEL",
            f"Wheel-Version: 1.0\nGenerator: tlt\nRoot-Is-Purelib: {kind}\nTag: {self.tag}\n",
        )
        self.add(f"{info}/licenses/LICENSE", HERE.parent / "LICENSE")
        if scripts:
            self.add(f"{info}/entry_points.txt", scripts)
        self.record.append(f"{info}/RECORD,,")
        self.archive.writestr(zipfile.ZipInfo(f"{info}/RECORD", TIME), "\n".join(self.record) + "\n")
        self.archive.close()
        return self.path.name


def add_package(wheel):
    for file in sorted((HERE / "tlt").iterdir()):
        if file.suffix == ".py" or file.name == "py.typed":
            wheel.add(f"tlt/{file.name}", file)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    wheel = Wheel(wheel_directory, "py3-none-any")
    add_package(wheel)
    return wheel.finish()


def build_sdist(sdist_directory, config_settings=None):
    raise RuntimeError("the source of this package is tlt's repository; build a wheel from its folder python/")
