# SPDX-License-Identifier: Apache-2.0
"""Finds and runs the program `tlt`."""
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Iterator, List, NoReturn, Optional, Sequence

from .errors import ProgramError, TltError

OWN = Path(__file__).resolve().parent / "bin" / "tlt"  # in the wheel of `make wheel`

# Ends the program when this process ends, however it ends: `read` returns when the pipe on its standard input closes.
# Without its own hold on stderr, so that its end is the end of the program.
_GUARD = '"$@" & exec >/dev/null 2>&1; read -r _; kill -TERM $! ; wait $!'


def find_program() -> str:
    """The path of `tlt`: the variable TLT_BIN, else that of this package, else that of the PATH."""
    chosen = os.environ.get("TLT_BIN")
    if chosen:
        if not os.access(chosen, os.X_OK) or os.path.isdir(chosen):
            raise TltError(f"TLT_BIN is {chosen}, which is not a program; set it to the path of tlt")
        return os.path.abspath(chosen)
    found = str(OWN) if OWN.exists() else shutil.which("tlt")
    if not found:
        raise TltError("no program tlt: not in this package, not on the PATH; set TLT_BIN to its path (build/tlt)")
    return found


def main() -> NoReturn:
    """The command `tlt` of the wheel: becomes the program."""
    os.execv(OWN, [str(OWN), *sys.argv[1:]])


class Process:
    """A running `tlt …`; its log is lines of stderr. It ends when this Python ends, even by kill -9."""

    def __init__(self, words: Sequence[str], cwd: "Optional[os.PathLike[str] | str]" = None):
        self.command = "tlt " + words[0]
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "tlt", find_program(), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=cwd,
            start_new_session=True,  # Ctrl-C is for this process, which ends the program in its own way
            text=True,
            errors="replace",
        )
        self._lines: "queue.Queue[Optional[str]]" = queue.Queue()
        self.log: List[str] = []  # all lines so far
        self._exit_code: Optional[int] = None
        self._ended = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.log.append(line.rstrip("\n"))
            self._lines.put(self.log[-1])
        self._close()
        self._exit_code = self._process.wait()
        self._process.stderr.close()
        self._ended.set()
        self._lines.put(None)

    def _close(self) -> None:
        try:
            assert self._process.stdin is not None
            self._process.stdin.close()
        except OSError:
            pass

    def lines(self, timeout: Optional[float] = None) -> Iterator[str]:
        """New lines of the log until the program ends. One caller at a time. TltError: none for `timeout` seconds."""
        while True:
            try:
                line = self._lines.get(timeout=timeout)
            except queue.Empty:
                raise TltError(f"{self.command} printed nothing for {timeout:g} seconds") from None
            if line is None:
                self._lines.put(None)
                return
            yield line

    @property
    def exit_code(self) -> Optional[int]:
        """None while it runs."""
        return self._exit_code if self._ended.is_set() else None

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits for the end; False: it still runs after `timeout` seconds."""
        return self._ended.wait(timeout)

    def stop(self, timeout: float = 60) -> None:
        """SIGTERM; after `timeout` seconds SIGKILL. Returns when it has ended."""
        self._close()
        if not self._ended.wait(timeout):
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self._reader.join()

    def error(self) -> ProgramError:
        """What the ended program said last."""
        code = self._exit_code if self._exit_code is not None else 1
        said = [line for line in self.log if line.startswith(self.command)]
        text = said[-1] if said else self.log[-1] if self.log else ""
        text = re.sub(rf"^{re.escape(self.command)}(?: \(worker [^)]*\))?: ", "", text)
        return ProgramError(text or f"{self.command} ended with exit code {code}", code)
