# SPDX-License-Identifier: Apache-2.0
"""Shared by verl_reward.py and trl_reward.py: loads a Python function and implements the protocol of tlt's reward `command`.

docs/rewards.md describes the protocol. Standard library only.
"""
import importlib
import importlib.util
import inspect
import json
import math
import os
import sys


def load_module(path):
    """Loads a .py file, or an installed module such as verl.utils.reward_score.gsm8k."""
    if not path.endswith(".py"):
        return importlib.import_module(path)
    if not os.path.isfile(path):
        sys.exit(f"{path}: no such file (this is {os.getcwd()})")
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))  # so that the file can import modules next to it
    spec = importlib.util.spec_from_file_location("custom_reward", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["custom_reward"] = module  # as in verl: dataclasses of the file look up their module here
    spec.loader.exec_module(module)
    return module


def functions_of(module):
    """Names of the functions defined in the module, without names that begin with _."""
    return [name for name, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")]


def find_function(module, path, name):
    if not callable(getattr(module, name, None)):
        sys.exit(f"{path} has no function {name}; it has: {', '.join(functions_of(module)) or 'none'}")
    return getattr(module, name)


def accepted(function, arguments):
    """The arguments that the function has a parameter for."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return arguments
    names = {parameter.name for parameter in parameters}
    return {name: value for name, value in arguments.items() if name in names}


def is_number(value):
    return isinstance(value, (bool, int, float)) or hasattr(value, "item") and getattr(value, "size", 1) == 1


def plain(value):
    value = float(value)
    if not math.isfinite(value):
        raise ValueError(f"the score is {value}")
    return value


def answer_rows(answer):
    """Writes answer(row) for each row of standard input. Output of the user's functions goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin.buffer:
        row = json.loads(line)
        try:
            result = answer(row)
        except Exception as error:  # an error of the user's function costs only this sample its score
            result = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps({**result, "id": row["id"]}) + "\n")
        answers.flush()
