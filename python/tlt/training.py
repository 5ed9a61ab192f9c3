# SPDX-License-Identifier: Apache-2.0
"""Training runs."""
import json
import os
import re
from pathlib import Path
from types import TracebackType
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Type, Union

from .errors import TltError
from .program import Process

_POLL_SECONDS = 0.1


class Run:
    """A run of `tlt train`, `sft`, `dpo` or `draft` in progress. In a `with` block it ends with the block.

    When this Python ends, the run saves and ends too; the same call resumes it.
    """

    def __init__(self, process: Process, cwd: Path):
        self._process, self._cwd = process, cwd
        self._folder: Optional[Path] = None

    @property
    def folder(self) -> Path:
        """The run folder. Waits until the run has begun; raises ProgramError if it never does."""
        if self._folder is None:
            for line in self._process.lines():
                found = re.search(r": steps \d+ to \d+ on .*; run folder (.*)$", line)
                if found:
                    self._folder = self._cwd / found.group(1)
                    break
            else:
                self._raise_error()
                raise TltError("the run has nothing left to do; its folder is that of the recipe")
        return self._folder

    @property
    def log(self) -> List[str]:
        """The lines of the run's log so far."""
        return self._process.log

    def metrics(self) -> Iterator[Dict[str, Any]]:
        """The rows of metrics.jsonl, those of earlier starts too, and each further one when its step has ended.

        Ends with the run; raises ProgramError if that fails.
        """
        file = self.folder / "metrics.jsonl"
        place, step = 0, -1
        while True:
            is_last = self._process.wait(_POLL_SECONDS)
            if file.exists():
                with open(file, "rb") as rows:
                    rows.seek(place)
                    for line in rows:
                        if not line.endswith(b"\n"):
                            break
                        place += len(line)
                        row = json.loads(line)
                        if row["step"] > step:
                            step = row["step"]
                            yield row
            if is_last:
                self._raise_error()
                return

    def wait(self) -> "Run":
        """Waits for the end of the run; raises ProgramError if it fails."""
        self._process.wait()
        self._raise_error()
        return self

    def stop(self) -> None:
        """Has the run save and end, as SIGTERM does; the same call of train() resumes it."""
        self._process.stop()

    def _raise_error(self) -> None:
        if self._process.exit_code != 0:
            raise self._process.error()

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.stop()


def _override(name: str, value: Any) -> str:
    if isinstance(value, (bool, list, tuple)):
        return f"{name}={json.dumps(value)}"
    return f"{name}={value}"


def train(
    recipe: "Optional[Union[str, os.PathLike[str]]]" = None,
    overrides: Union[Mapping[str, Any], Sequence[str]] = (),
    *,
    workers: int = 1,
    command: str = "train",
    cwd: "Union[str, os.PathLike[str]]" = ".",
) -> Run:
    """Starts `tlt train RECIPE KEY=VALUE …` and returns the run, which is then in progress.

    `overrides` are options of the recipe ({"rollout.n": 8}); `command` is train, sft, dpo or draft; `cwd` the folder that
    relative paths begin at. A call with the folder of an earlier run resumes it.
    """
    if command not in ("train", "sft", "dpo", "draft"):
        raise TltError(f"command is {command}; give train, sft, dpo or draft")
    words = [command] + ([] if recipe is None else [os.fspath(recipe)])
    if isinstance(overrides, str):
        raise TypeError("overrides is a dict, or a list of KEY=VALUE")
    pairs = overrides.items() if isinstance(overrides, Mapping) else None
    words += list(overrides) if pairs is None else [_override(name, value) for name, value in pairs]
    if workers != 1:
        words += ["--workers", str(workers)]
    return Run(Process(words, cwd), Path(cwd).resolve())
