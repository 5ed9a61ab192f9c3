# SPDX-License-Identifier: Apache-2.0
"""tlt for Python: train, generate and talk to a server. All work is done by the program `tlt`.

    for row in tlt.train("recipes/demo.toml", {"trainer.total_training_steps": 5}).metrics():
        print(row["step"], row["main/score"])
    for response in tlt.generate("runs/demo", ["7,6,3:60<think>"], max_tokens=200, seed=1):
        print(response.text)

The program is the one of the variable TLT_BIN, of this package (the wheel of `make wheel`), or of the PATH.
"""
from .client import Client
from .errors import ProgramError, ServerError, TltError, UnreachableError
from .generation import Response, Server, generate
from .program import find_program
from .training import Run, train

__all__ = [
    "Client",
    "ProgramError",
    "Response",
    "Run",
    "Server",
    "ServerError",
    "TltError",
    "UnreachableError",
    "find_program",
    "generate",
    "train",
]
__version__ = "0.1.0"
