# SPDX-License-Identifier: Apache-2.0
"""What this package raises; str(error) is the sentence of the server or of the program."""
from typing import Optional


class TltError(Exception):
    """Any error of this package."""


class ProgramError(TltError):
    """The program `tlt` ended with an error: its sentence, and `exit_code` (docs/launching.md)."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code


class ServerError(TltError):
    """The server refused a request: its sentence, the HTTP `status`, and OpenAI's `type`, `param` and `code`."""

    def __init__(
        self,
        message: str,
        status: int,
        type: Optional[str] = None,
        param: Optional[str] = None,
        code: Optional[str] = None,
    ):
        super().__init__(message)
        self.status, self.type, self.param, self.code = status, type, param, code


class UnreachableError(TltError):
    """No answer: no server at this address, a broken connection, or the timeout."""
